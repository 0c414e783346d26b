#ifndef MARGIN_UTF8_H
#define MARGIN_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { MARGIN_REPLACEMENT = 0xFFFD };

/* The number of bytes of the first character and its code; length must be above 0. */
size_t margin_decode(const char *text, size_t length, uint32_t *code);

bool margin_valid(const char *text, size_t length);

#endif
