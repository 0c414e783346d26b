#ifndef HIVE_STORE_H
#define HIVE_STORE_H

#include <stdbool.h>
#include <stddef.h>

#include "hive_map.h"

/* Writes a map of texts. False, with errno set, if that failed; the old file is then as it was. */
bool hive_store_save(const struct hive_map *map, const char *path);

/* Reads a map of texts, which frees its values with free(). NULL if the file cannot be read (*line is 0) or if the line
 * with this number is malformed. */
struct hive_map *hive_store_load(const char *path, size_t *line);

#endif
