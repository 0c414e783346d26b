#ifndef MARGIN_WIDTH_H
#define MARGIN_WIDTH_H

#include <stddef.h>
#include <stdint.h>

size_t margin_char_width(uint32_t code);

size_t margin_text_width(const char *text, size_t length);

/* The number of bytes of the longest beginning that is no wider than width. */
size_t margin_cut(const char *text, size_t length, size_t width);

#endif
