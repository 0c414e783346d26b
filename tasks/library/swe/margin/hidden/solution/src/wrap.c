#include "margin_wrap.h"

#include <stdbool.h>
#include <string.h>

#include "margin_utf8.h"
#include "margin_width.h"

struct output {
    char *bytes;
    size_t size;
    size_t length; /* of all that was put, also of what did not fit */
    size_t column; /* the width of the line under way */
    bool full;
};

/* Puts bytes that belong together: all of them or, if they do not fit, none of these and of all that follow. */
static void put(struct output *out, const char *bytes, size_t count) {
    if (!out->full && out->length + count < out->size) {
        memcpy(out->bytes + out->length, bytes, count);
        out->bytes[out->length + count] = 0;
    } else {
        out->full = true;
    }
    out->length += count;
}

static void put_text(struct output *out, const char *text, size_t length) {
    uint32_t code;
    out->column += margin_text_width(text, length);
    for (size_t at = 0, size; at < length; at += size) {
        size = margin_decode(text + at, length - at, &code);
        put(out, text + at, size);
    }
}

static void end_line(struct output *out) {
    put(out, "\n", 1);
    out->column = 0;
}

/* Puts a word at the beginning of a line, cut where it must be. */
static void put_word(struct output *out, const char *word, size_t length, size_t width) {
    while (margin_text_width(word, length) > width) {
        size_t part = margin_cut(word, length, width);
        if (part == 0) { /* a character wider than the line, and its marks */
            uint32_t code;
            part = margin_decode(word, length, &code);
            part += margin_cut(word + part, length - part, 0);
        }
        if (part == length) {
            break;
        }
        put_text(out, word, part);
        end_line(out);
        word += part;
        length -= part;
    }
    put_text(out, word, length);
}

static void wrap_paragraph(struct output *out, const char *text, size_t length, size_t width) {
    const char *end = text + length;
    bool first = true;
    while (text < end) {
        size_t spaces = 0;
        while (text + spaces < end && text[spaces] == ' ') {
            spaces++;
        }
        const char *word = text + spaces;
        size_t size = 0;
        while (word + size < end && word[size] != ' ') {
            size++;
        }
        if (size == 0) { /* only spaces are left */
            return;
        }
        if (first || out->column + spaces + margin_text_width(word, size) <= width) {
            size_t room = first && spaces + margin_text_width(word, size) > width ? 0 : spaces;
            put_text(out, text, room);
        } else {
            end_line(out);
        }
        put_word(out, word, size, width);
        text = word + size;
        first = false;
    }
}

size_t margin_wrap(const char *text, size_t width, char *out, size_t size) {
    struct output output = {out, size, 0, 0, false};
    if (width == 0) {
        width = 1;
    }
    if (size > 0) {
        out[0] = 0;
    }
    for (;;) {
        size_t length = strcspn(text, "\n");
        wrap_paragraph(&output, text, length, width);
        if (text[length] == 0) {
            return output.length;
        }
        end_line(&output);
        text += length + 1;
    }
}
