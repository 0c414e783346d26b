#ifndef MARGIN_WRAP_H
#define MARGIN_WRAP_H

#include <stddef.h>

/* Writes at most size bytes of the wrapped text, and returns how many bytes all of it has, without the 0. */
size_t margin_wrap(const char *text, size_t width, char *out, size_t size);

#endif
