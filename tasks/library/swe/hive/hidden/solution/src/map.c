#include "hive_map.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_CAPACITY = 8 }; /* a power of two, as are all others */

struct slot {
    char *key; /* NULL: empty; DELETED: was in use */
    void *value;
    uint64_t hash;
};

struct hive_map {
    struct slot *slots;
    size_t capacity;
    size_t count;  /* slots that hold a key */
    size_t filled; /* slots that hold a key or a mark */
    void (*free_value)(void *);
};

static char deleted_mark;
#define DELETED (&deleted_mark)

static bool holds_key(const struct slot *slot) {
    return slot->key != NULL && slot->key != DELETED;
}

/* FNV-1a, 64 bits. */
static uint64_t hash_of(const char *key) {
    uint64_t hash = 14695981039346656037u;
    for (const unsigned char *byte = (const unsigned char *)key; *byte != 0; byte++) {
        hash = (hash ^ *byte) * 1099511628211u;
    }
    return hash;
}

struct hive_map *hive_map_new(void (*free_value)(void *)) {
    struct hive_map *map = calloc(1, sizeof *map);
    struct slot *slots = calloc(FIRST_CAPACITY, sizeof *slots);
    if (map == NULL || slots == NULL) {
        free(map);
        free(slots);
        return NULL;
    }
    map->slots = slots;
    map->capacity = FIRST_CAPACITY;
    map->free_value = free_value;
    return map;
}

static void drop_value(struct hive_map *map, void *value) {
    if (map->free_value != NULL && value != NULL) {
        map->free_value(value);
    }
}

void hive_map_free(struct hive_map *map) {
    if (map == NULL) {
        return;
    }
    for (size_t i = 0; i < map->capacity; i++) {
        if (holds_key(&map->slots[i])) {
            free(map->slots[i].key);
            drop_value(map, map->slots[i].value);
        }
    }
    free(map->slots);
    free(map);
}

/* The slot that holds the key, or NULL. */
static struct slot *find(const struct hive_map *map, const char *key) {
    uint64_t hash = hash_of(key);
    for (size_t i = hash & (map->capacity - 1);; i = (i + 1) & (map->capacity - 1)) {
        struct slot *slot = &map->slots[i];
        if (slot->key == NULL) {
            return NULL;
        }
        if (slot->key != DELETED && slot->hash == hash && strcmp(slot->key, key) == 0) {
            return slot;
        }
    }
}

/* The first slot that a key which is not in the map may use. */
static struct slot *vacant(struct slot *slots, size_t capacity, uint64_t hash) {
    size_t i = hash & (capacity - 1);
    while (holds_key(&slots[i])) {
        i = (i + 1) & (capacity - 1);
    }
    return &slots[i];
}

static bool rebuild(struct hive_map *map) {
    size_t capacity = map->count * 2 > map->capacity ? map->capacity * 2 : map->capacity;
    struct slot *slots = calloc(capacity, sizeof *slots);
    if (slots == NULL) {
        return false;
    }
    for (size_t i = 0; i < map->capacity; i++) {
        if (holds_key(&map->slots[i])) {
            *vacant(slots, capacity, map->slots[i].hash) = map->slots[i];
        }
    }
    free(map->slots);
    map->slots = slots;
    map->capacity = capacity;
    map->filled = map->count;
    return true;
}

bool hive_map_set(struct hive_map *map, const char *key, void *value) {
    struct slot *slot = find(map, key);
    if (slot != NULL) {
        if (slot->value != value) {
            drop_value(map, slot->value);
            slot->value = value;
        }
        return true;
    }
    if ((map->filled + 1) * 4 > map->capacity * 3 && !rebuild(map)) {
        return false;
    }
    char *copy = strdup(key);
    if (copy == NULL) {
        return false;
    }
    uint64_t hash = hash_of(key);
    slot = vacant(map->slots, map->capacity, hash);
    if (slot->key == NULL) {
        map->filled += 1;
    }
    *slot = (struct slot){copy, value, hash};
    map->count += 1;
    return true;
}

void *hive_map_get(const struct hive_map *map, const char *key) {
    struct slot *slot = find(map, key);
    return slot == NULL ? NULL : slot->value;
}

/* Empties a slot and returns its value. */
static void *clear(struct hive_map *map, struct slot *slot) {
    void *value = slot->value;
    free(slot->key);
    *slot = (struct slot){.key = DELETED};
    map->count -= 1;
    return value;
}

bool hive_map_delete(struct hive_map *map, const char *key) {
    struct slot *slot = find(map, key);
    if (slot == NULL) {
        return false;
    }
    drop_value(map, clear(map, slot));
    return true;
}

void *hive_map_take(struct hive_map *map, const char *key) {
    struct slot *slot = find(map, key);
    return slot == NULL ? NULL : clear(map, slot);
}

size_t hive_map_count(const struct hive_map *map) {
    return map->count;
}

size_t hive_map_capacity(const struct hive_map *map) {
    return map->capacity;
}

bool hive_map_next(const struct hive_map *map, size_t *place, const char **key, void **value) {
    for (; *place < map->capacity; *place += 1) {
        const struct slot *slot = &map->slots[*place];
        if (holds_key(slot)) {
            *key = slot->key;
            *value = slot->value;
            *place += 1;
            return true;
        }
    }
    return false;
}
