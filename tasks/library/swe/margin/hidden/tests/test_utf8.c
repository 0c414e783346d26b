#include "check.h"
#include "margin_utf8.h"

/* Checks that the bytes decode to these codes, of these sizes, one after the other. */
static void check_all(const char *text, size_t length, const uint32_t *codes, const size_t *sizes) {
    size_t at = 0;
    for (int i = 0; at < length; i++) {
        uint32_t code = 1;
        size_t size = margin_decode(text + at, length - at, &code);
        if (code != codes[i] || size != sizes[i]) {
            fprintf(stderr, "character %d: U+%04X in %d bytes, wanted U+%04X in %d\n", i, (unsigned)code, (int)size,
                    (unsigned)codes[i], (int)sizes[i]);
            exit(1);
        }
        at += size;
    }
    CHECK(at == length);
}

#define CODES(...) (const uint32_t[]){__VA_ARGS__}
#define SIZES(...) (const size_t[]){__VA_ARGS__}
#define ALL(text, codes, sizes) check_all(text, sizeof text - 1, codes, sizes)

/* So many bytes that are no UTF-8, one by one. */
static void check_bad(const char *text, size_t length) {
    CHECK(!margin_valid(text, length));
    for (size_t at = 0; at < length; at++) {
        uint32_t code = 1;
        CHECK(margin_decode(text + at, length - at, &code) == 1);
        CHECK(code == MARGIN_REPLACEMENT);
    }
}

#define BAD(text) check_bad(text, sizeof text - 1)

CASE(characters_of_each_size) {
    ALL("a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80z", CODES('a', 0xE9, 0x20AC, 0x1F600, 'z'), SIZES(1, 2, 3, 4, 1));
}

CASE(the_ends_of_each_size) {
    ALL("\x7F\xC2\x80\xDF\xBF\xE0\xA0\x80\xEF\xBF\xBF\xF0\x90\x80\x80\xF4\x8F\xBF\xBF",
        CODES(0x7F, 0x80, 0x7FF, 0x800, 0xFFFF, 0x10000, 0x10FFFF), SIZES(1, 2, 2, 3, 3, 4, 4));
    ALL("\xED\x9F\xBF\xEE\x80\x80", CODES(0xD7FF, 0xE000), SIZES(3, 3));
}

CASE(a_zero_is_a_character) {
    ALL("a\0b", CODES('a', 0, 'b'), SIZES(1, 1, 1));
    CHECK(margin_valid("a\0b", 3));
}

CASE(valid_texts) {
    CHECK(margin_valid("", 0));
    CHECK(margin_valid("Gr\xC3\xBC\xC3\x9F" "e \xE6\x9D\xB1 \xF0\x9F\x98\x80", 16));
}

CASE(bytes_that_begin_nothing) {
    BAD("\x80");
    BAD("\xBF\x80");
    BAD("\xFE\xFF");
    BAD("\xF8\x88\x80\x80\x80");
}

CASE(longer_than_needed) {
    BAD("\xC0\x80");
    BAD("\xC0\xAF");
    BAD("\xC1\xBF");
    BAD("\xE0\x80\xAF");
    BAD("\xE0\x9F\xBF");
    BAD("\xF0\x80\x80\xAF");
    BAD("\xF0\x8F\xBF\xBF");
}

CASE(surrogates) {
    BAD("\xED\xA0\x80");
    BAD("\xED\xBF\xBF");
    BAD("\xED\xA0\xBD\xED\xB8\x80");
}

CASE(above_the_last_code) {
    BAD("\xF4\x90\x80\x80");
    BAD("\xF5\x80\x80\x80");
    BAD("\xF7\xBF\xBF\xBF");
}

CASE(cut_off_at_the_end) {
    BAD("\xC3");
    BAD("\xE2\x82");
    BAD("\xF0\x9F\x98");
    BAD("\xF0");
}

CASE(nothing_is_read_beyond_the_length) {
    /* What stands behind would complete the character. */
    uint32_t code = 1;
    CHECK(margin_decode("\xC3\xA9", 1, &code) == 1);
    CHECK(code == MARGIN_REPLACEMENT);
    CHECK(margin_decode("\xF0\x9F\x98\x80", 3, &code) == 1);
    CHECK(code == MARGIN_REPLACEMENT);
    CHECK(!margin_valid("\xC3\xA9", 1));
    CHECK(!margin_valid("a\xE2\x82\xAC", 3));
}

CASE(cut_off_in_the_middle) {
    ALL("\xC3z", CODES(0xFFFD, 'z'), SIZES(1, 1));
    ALL("\xE2\x82z", CODES(0xFFFD, 0xFFFD, 'z'), SIZES(1, 1, 1));
    ALL("\xE2\xC3\xA9", CODES(0xFFFD, 0xE9), SIZES(1, 2));
    ALL("\xF0\x9F\x98\xE2\x82\xAC", CODES(0xFFFD, 0xFFFD, 0xFFFD, 0x20AC), SIZES(1, 1, 1, 3));
}
