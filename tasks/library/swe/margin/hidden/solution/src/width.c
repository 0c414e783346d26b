#include "margin_width.h"

#include <stdbool.h>

#include "margin_utf8.h"

struct range {
    uint32_t first;
    uint32_t last;
};

static const struct range NARROW[] = {
    {0x0000, 0x001F}, {0x007F, 0x009F}, {0x0300, 0x036F}, {0x200B, 0x200F}, {0xFE00, 0xFE0F},
};

static const struct range WIDE[] = {
    {0x1100, 0x115F}, {0x2E80, 0x303E}, {0x3040, 0xA4CF},   {0xAC00, 0xD7A3},   {0xF900, 0xFAFF},   {0xFE30, 0xFE6F},
    {0xFF00, 0xFF60}, {0xFFE0, 0xFFE6}, {0x1F300, 0x1F64F}, {0x1F900, 0x1F9FF}, {0x20000, 0x3FFFD},
};

/* Ranges are sorted and apart. */
static bool is_in(uint32_t code, const struct range *ranges, size_t count) {
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (code < ranges[middle].first) {
            high = middle;
        } else if (code > ranges[middle].last) {
            low = middle + 1;
        } else {
            return true;
        }
    }
    return false;
}

size_t margin_char_width(uint32_t code) {
    if (is_in(code, NARROW, sizeof NARROW / sizeof *NARROW)) {
        return 0;
    }
    return is_in(code, WIDE, sizeof WIDE / sizeof *WIDE) ? 2 : 1;
}

size_t margin_text_width(const char *text, size_t length) {
    size_t width = 0;
    uint32_t code;
    for (size_t at = 0; at < length;) {
        at += margin_decode(text + at, length - at, &code);
        width += margin_char_width(code);
    }
    return width;
}

size_t margin_cut(const char *text, size_t length, size_t width) {
    size_t at = 0, used = 0;
    uint32_t code;
    while (at < length) {
        size_t size = margin_decode(text + at, length - at, &code);
        size_t more = margin_char_width(code);
        if (used + more > width) {
            break;
        }
        used += more;
        at += size;
    }
    return at;
}
