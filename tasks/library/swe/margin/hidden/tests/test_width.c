#include "check.h"
#include "margin_width.h"

#define EURO "\xE2\x82\xAC"
#define EAST "\xE6\x9D\xB1" /* wide */
#define ACUTE "\xCC\x81"    /* a combining mark */

static void check_range(uint32_t first, uint32_t last, size_t width, size_t outside) {
    CHECK(margin_char_width(first) == width);
    CHECK(margin_char_width(last) == width);
    CHECK(margin_char_width(first + (last - first) / 2) == width);
    if (first > 0) {
        CHECK(margin_char_width(first - 1) == outside);
    }
    CHECK(margin_char_width(last + 1) == outside);
}

CASE(ordinary_characters) {
    CHECK(margin_char_width('a') == 1);
    CHECK(margin_char_width(' ') == 1);
    CHECK(margin_char_width('~') == 1);
    CHECK(margin_char_width(0xA0) == 1);
    CHECK(margin_char_width(0x20AC) == 1);
    CHECK(margin_char_width(0xFFFD) == 1);
    CHECK(margin_char_width(0x10FFFF) == 1);
}

CASE(characters_without_width) {
    check_range(0x0000, 0x001F, 0, 1);
    check_range(0x007F, 0x009F, 0, 1);
    check_range(0x0300, 0x036F, 0, 1);
    check_range(0x200B, 0x200F, 0, 1);
    check_range(0xFE00, 0xFE0F, 0, 1);
}

CASE(wide_characters) {
    check_range(0x1100, 0x115F, 2, 1);
    check_range(0x2E80, 0x303E, 2, 1);
    check_range(0x3040, 0xA4CF, 2, 1);
    check_range(0xAC00, 0xD7A3, 2, 1);
    check_range(0xF900, 0xFAFF, 2, 1);
    check_range(0xFE30, 0xFE6F, 2, 1);
    check_range(0xFF00, 0xFF60, 2, 1);
    check_range(0xFFE0, 0xFFE6, 2, 1);
    check_range(0x1F300, 0x1F64F, 2, 1);
    check_range(0x1F900, 0x1F9FF, 2, 1);
    check_range(0x20000, 0x3FFFD, 2, 1);
    CHECK(margin_char_width(0x303F) == 1);
}

static size_t width(const char *text) {
    return margin_text_width(text, strlen(text));
}

CASE(widths_of_texts) {
    CHECK(width("") == 0);
    CHECK(width("abc") == 3);
    CHECK(width("Gr\xC3\xBC\xC3\x9F" "e") == 5);
    CHECK(width(EAST EAST) == 4);
    CHECK(width("e" ACUTE) == 1);
    CHECK(width("a" EURO EAST "\xF0\x9F\x98\x80") == 6);
    CHECK(width("\xFF\xC3") == 2);
    CHECK(margin_text_width(EURO EURO, 3) == 1);
}

static size_t cut(const char *text, size_t columns) {
    return margin_cut(text, strlen(text), columns);
}

CASE(cuts) {
    CHECK(cut("abcdef", 3) == 3);
    CHECK(cut("abc", 3) == 3);
    CHECK(cut("abc", 9) == 3);
    CHECK(cut("abc", 0) == 0);
    CHECK(cut("", 5) == 0);
}

CASE(cuts_between_characters) {
    CHECK(cut(EURO EURO EURO, 2) == 6);
    CHECK(cut("a" EURO "b", 1) == 1);
    CHECK(cut(EAST EAST, 3) == 3);
    CHECK(cut(EAST EAST, 4) == 6);
    CHECK(cut(EAST, 1) == 0);
}

CASE(marks_stay_with_their_character) {
    CHECK(cut("e" ACUTE "e" ACUTE, 1) == 3);
    CHECK(cut("ab" ACUTE ACUTE "c", 2) == 6);
    CHECK(cut(EAST ACUTE EAST, 2) == 5);
}
