#include "check.h"
#include "margin_utf8.h"
#include "margin_width.h"
#include "margin_wrap.h"

CASE(decode) {
    uint32_t code;
    CHECK(margin_decode("a", 1, &code) == 1);
    CHECK(code == 'a');
}

CASE(width) {
    CHECK(margin_text_width("abc", 3) == 3);
}

CASE(wrap) {
    char out[64];
    CHECK(margin_wrap("one two three", 8, out, sizeof out) == 13);
    CHECK_TEXT(out, "one two\nthree");
}
