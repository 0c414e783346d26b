#ifndef HIVE_MAP_H
#define HIVE_MAP_H

#include <stdbool.h>
#include <stddef.h>

struct hive_map;

/* An empty map that frees values with free_value, or not at all if that is NULL. NULL without memory. */
struct hive_map *hive_map_new(void (*free_value)(void *));
void hive_map_free(struct hive_map *map);

/* Sets a key. False without memory: then nothing has changed, and the value still belongs to the caller. */
bool hive_map_set(struct hive_map *map, const char *key, void *value);

/* The value of a key, or NULL. */
void *hive_map_get(const struct hive_map *map, const char *key);

/* Whether there was such a key. */
bool hive_map_delete(struct hive_map *map, const char *key);

/* Removes a key and returns its value, which the caller owns from now on. NULL if there is none. */
void *hive_map_take(struct hive_map *map, const char *key);

size_t hive_map_count(const struct hive_map *map);

/* The number of slots. */
size_t hive_map_capacity(const struct hive_map *map);

/* The next entry, beginning with *place = 0; false at the end. */
bool hive_map_next(const struct hive_map *map, size_t *place, const char **key, void **value);

#endif
