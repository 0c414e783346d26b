#include "check.h"
#include "margin_wrap.h"

#define EURO "\xE2\x82\xAC"
#define EAST "\xE6\x9D\xB1" /* wide */
#define ACUTE "\xCC\x81"    /* a combining mark */

static void check_wrap(const char *text, size_t width, const char *wanted) {
    static char out[4096];
    CHECK(margin_wrap(text, width, out, sizeof out) == strlen(wanted));
    CHECK_TEXT(out, wanted);
}

CASE(short_texts) {
    check_wrap("", 10, "");
    check_wrap("one", 10, "one");
    check_wrap("one two", 7, "one two");
}

CASE(breaks_at_spaces) {
    check_wrap("one two three four", 9, "one two\nthree\nfour");
    check_wrap("one two three four", 10, "one two\nthree four");
    check_wrap("a b c d e", 1, "a\nb\nc\nd\ne");
    check_wrap("aa bb cc", 5, "aa bb\ncc");
    check_wrap("aa bb cc", 4, "aa\nbb\ncc");
}

CASE(spaces) {
    check_wrap("one  two   three", 8, "one  two\nthree");
    check_wrap("one     two", 7, "one\ntwo");
    check_wrap("one two   ", 20, "one two");
    check_wrap("one   \ntwo  \n", 20, "one\ntwo\n");
    check_wrap("   ", 2, "");
}

CASE(spaces_at_the_beginning) {
    check_wrap("  one two", 9, "  one two");
    check_wrap("  one two", 6, "  one\ntwo");
    check_wrap("one\n  two three", 7, "one\n  two\nthree");
    check_wrap("    one", 5, "one");
}

CASE(line_feeds) {
    check_wrap("one\ntwo", 20, "one\ntwo");
    check_wrap("one\n\ntwo\n", 20, "one\n\ntwo\n");
    check_wrap("\n\n", 20, "\n\n");
    check_wrap("one two\nthree four", 9, "one two\nthree\nfour");
}

CASE(long_words) {
    check_wrap("abcdefghij", 4, "abcd\nefgh\nij");
    check_wrap("abcdefgh", 4, "abcd\nefgh");
    check_wrap("x abcdefghij y", 4, "x\nabcd\nefgh\nij y");
    check_wrap("abcdef gh", 4, "abcd\nef\ngh");
    check_wrap("ab", 0, "a\nb");
}

CASE(columns_are_not_bytes) {
    check_wrap(EURO EURO " " EURO EURO, 5, EURO EURO " " EURO EURO);
    check_wrap(EURO EURO " " EURO EURO, 4, EURO EURO "\n" EURO EURO);
    check_wrap("Gr\xC3\xBC\xC3\x9F" "e aus K\xC3\xB6ln", 9, "Gr\xC3\xBC\xC3\x9F" "e aus\nK\xC3\xB6ln");
    check_wrap(EURO EURO EURO, 2, EURO EURO "\n" EURO);
}

CASE(wide_characters) {
    check_wrap(EAST EAST EAST, 4, EAST EAST "\n" EAST);
    check_wrap(EAST EAST EAST, 5, EAST EAST "\n" EAST);
    check_wrap("a " EAST EAST, 5, "a\n" EAST EAST);
    check_wrap("a " EAST EAST, 6, "a " EAST EAST);
}

CASE(a_character_wider_than_the_line) {
    check_wrap(EAST, 1, EAST);
    check_wrap(EAST EAST, 1, EAST "\n" EAST);
    check_wrap("a" EAST "b", 1, "a\n" EAST "\nb");
    check_wrap("x " EAST " y", 1, "x\n" EAST "\ny");
    check_wrap(EAST, 0, EAST);
}

CASE(marks_of_a_character_wider_than_the_line) {
    check_wrap(EAST ACUTE, 1, EAST ACUTE);
    check_wrap(EAST ACUTE ACUTE EAST, 1, EAST ACUTE ACUTE "\n" EAST);
    check_wrap("x " EAST ACUTE EAST " y", 1, "x\n" EAST ACUTE "\n" EAST "\ny");
}

CASE(after_a_character_wider_than_the_line) {
    check_wrap(EAST " a b", 1, EAST "\na\nb");
    check_wrap(EAST "\n" EAST "\n", 1, EAST "\n" EAST "\n");
}

CASE(marks_stay_with_their_character) {
    check_wrap("e" ACUTE "e" ACUTE "e" ACUTE, 2, "e" ACUTE "e" ACUTE "\ne" ACUTE);
    check_wrap("ae" ACUTE " b", 4, "ae" ACUTE " b");
}

CASE(a_no_break_space) {
    check_wrap("10\xC2\xA0km far", 6, "10\xC2\xA0km\nfar");
    check_wrap("go 10\xC2\xA0km", 6, "go\n10\xC2\xA0km");
}

CASE(bad_bytes) {
    check_wrap("\xFF\xFF\xFF", 2, "\xFF\xFF\n\xFF");
}

CASE(the_length_of_all) {
    char out[16];
    CHECK(margin_wrap("one two three", 8, NULL, 0) == 13);
    CHECK(margin_wrap("abcdefghij", 4, NULL, 0) == 12);
    CHECK(margin_wrap("one two three", 8, out, 5) == 13);
    CHECK_TEXT(out, "one ");
}

CASE(nothing_is_written_behind_the_end) {
    char out[16];
    for (size_t size = 0; size <= 14; size++) {
        memset(out, '#', sizeof out);
        CHECK(margin_wrap("one two three", 8, out, size) == 13);
        for (size_t i = size; i < sizeof out; i++) {
            CHECK(out[i] == '#');
        }
        if (size > 0) {
            CHECK(strlen(out) == size - 1);
            CHECK(strncmp(out, "one two\nthree", size - 1) == 0);
        }
    }
}

CASE(cut_between_characters) {
    char out[16];
    CHECK(margin_wrap(EURO EURO EURO, 9, out, 9) == 9);
    CHECK_TEXT(out, EURO EURO);
    CHECK(margin_wrap(EURO EURO EURO, 9, out, 10) == 9);
    CHECK_TEXT(out, EURO EURO EURO);
    CHECK(margin_wrap("a" EURO "b", 9, out, 4) == 5);
    CHECK_TEXT(out, "a");
    CHECK(margin_wrap(EURO, 9, out, 1) == 3);
    CHECK_TEXT(out, "");
}

CASE(after_a_cut_nothing_follows) {
    char out[16];
    CHECK(margin_wrap("a" EURO " b", 9, out, 4) == 6);
    CHECK_TEXT(out, "a");
}
