#include "hive_store.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char SPECIAL[] = "\\\t\n\r";
static const char LETTERS[] = "\\tnr";

struct entry {
    const char *key;
    const char *value;
};

static int by_key(const void *one, const void *other) {
    return strcmp(((const struct entry *)one)->key, ((const struct entry *)other)->key);
}

static void write_text(FILE *file, const char *text) {
    for (; *text != 0; text++) {
        const char *special = strchr(SPECIAL, *text);
        if (special != NULL) {
            fputc('\\', file);
            fputc(LETTERS[special - SPECIAL], file);
        } else {
            fputc(*text, file);
        }
    }
}

static bool write_all(const struct hive_map *map, FILE *file) {
    size_t count = hive_map_count(map), place = 0, found = 0;
    struct entry *entries = malloc((count + 1) * sizeof *entries);
    const char *key;
    void *value;
    if (entries == NULL) {
        return false;
    }
    while (hive_map_next(map, &place, &key, &value)) {
        entries[found++] = (struct entry){key, value};
    }
    qsort(entries, found, sizeof *entries, by_key);
    for (size_t i = 0; i < found; i++) {
        write_text(file, entries[i].key);
        fputc('\t', file);
        write_text(file, entries[i].value);
        fputc('\n', file);
    }
    free(entries);
    return !ferror(file);
}

bool hive_store_save(const struct hive_map *map, const char *path) {
    size_t length = strlen(path);
    char *fresh = malloc(length + 5);
    if (fresh == NULL) {
        return false;
    }
    memcpy(fresh, path, length);
    memcpy(fresh + length, ".new", 5);
    FILE *file = fopen(fresh, "wb");
    bool good = file != NULL && write_all(map, file);
    if (file != NULL && fclose(file) != 0) {
        good = false;
    }
    good = good && rename(fresh, path) == 0;
    if (!good) {
        int error = errno;
        if (file != NULL) {
            remove(fresh);
        }
        errno = error;
    }
    free(fresh);
    return good;
}

/* Undoes the escapes of a text in place. False if one is unknown. */
static bool unescape(char *text) {
    char *end = text;
    for (; *text != 0; text++) {
        if (*text != '\\') {
            *end++ = *text;
            continue;
        }
        text += 1;
        const char *letter = *text == 0 ? NULL : strchr(LETTERS, *text);
        if (letter == NULL) {
            return false;
        }
        *end++ = SPECIAL[letter - LETTERS];
    }
    *end = 0;
    return true;
}

/* Puts one line into the map. */
static bool read_line(struct hive_map *map, char *line) {
    char *tab = strchr(line, '\t');
    if (tab == NULL) {
        return false;
    }
    *tab = 0;
    if (!unescape(line) || !unescape(tab + 1)) {
        return false;
    }
    char *value = strdup(tab + 1);
    if (value == NULL || !hive_map_set(map, line, value)) {
        free(value);
        return false;
    }
    return true;
}

struct hive_map *hive_store_load(const char *path, size_t *line) {
    *line = 0;
    FILE *file = fopen(path, "rb");
    struct hive_map *map = file == NULL ? NULL : hive_map_new(free);
    char *text = NULL;
    size_t room = 0, number = 0;
    ssize_t length;
    while (map != NULL && (length = getline(&text, &room, file)) >= 0) {
        number += 1;
        if (length > 0 && text[length - 1] == '\n') {
            text[length - 1] = 0;
        }
        if (!read_line(map, text)) {
            *line = number;
            hive_map_free(map);
            map = NULL;
        }
    }
    if (map != NULL && ferror(file)) {
        hive_map_free(map);
        map = NULL;
    }
    free(text);
    if (file != NULL) {
        fclose(file);
    }
    return map;
}
