#include "margin_utf8.h"

/* How many bytes a character has that begins with this byte, and the bits of its code there; 0 if none does. */
static size_t expected(unsigned char first, uint32_t *bits) {
    if (first < 0x80) {
        *bits = first;
        return 1;
    }
    if (first >= 0xC2 && first < 0xE0) {
        *bits = first & 0x1F;
        return 2;
    }
    if (first >= 0xE0 && first < 0xF0) {
        *bits = first & 0x0F;
        return 3;
    }
    if (first >= 0xF0 && first < 0xF5) {
        *bits = first & 0x07;
        return 4;
    }
    return 0;
}

static bool is_allowed(uint32_t code, size_t size) {
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    return code >= least[size] && code <= 0x10FFFF && (code < 0xD800 || code > 0xDFFF);
}

/* The size of a character that is UTF-8, or 0. */
static size_t decode(const char *text, size_t length, uint32_t *code) {
    size_t size = expected((unsigned char)text[0], code);
    if (size == 0 || size > length) {
        return 0;
    }
    for (size_t i = 1; i < size; i++) {
        unsigned char byte = (unsigned char)text[i];
        if ((byte & 0xC0) != 0x80) {
            return 0;
        }
        *code = *code << 6 | (byte & 0x3F);
    }
    return is_allowed(*code, size) ? size : 0;
}

size_t margin_decode(const char *text, size_t length, uint32_t *code) {
    size_t size = decode(text, length, code);
    if (size == 0) {
        *code = MARGIN_REPLACEMENT;
        return 1;
    }
    return size;
}

bool margin_valid(const char *text, size_t length) {
    uint32_t code;
    size_t size;
    for (size_t at = 0; at < length; at += size) {
        size = decode(text + at, length - at, &code);
        if (size == 0) {
            return false;
        }
    }
    return true;
}
