#include <stdint.h>

#include "check.h"
#include "hive_map.h"

enum { MANY = 2000 };

static int frees;

static void count_free(void *value) {
    (void)value;
    frees += 1;
}

static const char *name(int number) {
    static char text[32];
    snprintf(text, sizeof text, "key %d", number);
    return text;
}

static void *mark(int number) {
    return (void *)(intptr_t)(number + 1);
}

static struct hive_map *filled(int count) {
    struct hive_map *map = hive_map_new(NULL);
    for (int i = 0; i < count; i++) {
        CHECK(hive_map_set(map, name(i), mark(i)));
    }
    return map;
}

CASE(many_keys) {
    struct hive_map *map = filled(MANY);
    CHECK(hive_map_count(map) == MANY);
    for (int i = 0; i < MANY; i++) {
        CHECK(hive_map_get(map, name(i)) == mark(i));
    }
    CHECK(hive_map_get(map, name(MANY)) == NULL);
    hive_map_free(map);
}

CASE(odd_keys) {
    struct hive_map *map = hive_map_new(NULL);
    CHECK(hive_map_set(map, "", mark(1)));
    CHECK(hive_map_set(map, "\xff\xfe", mark(2)));
    CHECK(hive_map_set(map, " ", mark(3)));
    CHECK(hive_map_get(map, "") == mark(1));
    CHECK(hive_map_get(map, "\xff\xfe") == mark(2));
    CHECK(hive_map_get(map, " ") == mark(3));
    hive_map_free(map);
}

CASE(keys_are_copied) {
    struct hive_map *map = hive_map_new(NULL);
    char key[8] = "one";
    CHECK(hive_map_set(map, key, mark(1)));
    strcpy(key, "two");
    CHECK(hive_map_set(map, key, mark(2)));
    strcpy(key, "three");
    CHECK(hive_map_get(map, "one") == mark(1));
    CHECK(hive_map_get(map, "two") == mark(2));
    CHECK(hive_map_get(map, "three") == NULL);
    CHECK(hive_map_count(map) == 2);
    hive_map_free(map);
}

CASE(delete_keeps_the_others) {
    for (int gone = 0; gone < 6; gone++) {
        struct hive_map *map = filled(6);
        CHECK(hive_map_delete(map, name(gone)));
        for (int i = 0; i < 6; i++) {
            CHECK(hive_map_get(map, name(i)) == (i == gone ? NULL : mark(i)));
        }
        CHECK(hive_map_count(map) == 5);
        hive_map_free(map);
    }
}

CASE(delete_every_other) {
    struct hive_map *map = filled(MANY);
    for (int i = 0; i < MANY; i += 2) {
        CHECK(hive_map_delete(map, name(i)));
    }
    CHECK(hive_map_count(map) == MANY / 2);
    for (int i = 0; i < MANY; i++) {
        CHECK(hive_map_get(map, name(i)) == (i % 2 ? mark(i) : NULL));
    }
    for (int i = 0; i < MANY; i += 2) {
        CHECK(!hive_map_delete(map, name(i)));
        CHECK(hive_map_set(map, name(i), mark(i)));
    }
    CHECK(hive_map_count(map) == MANY);
    for (int i = 0; i < MANY; i++) {
        CHECK(hive_map_get(map, name(i)) == mark(i));
    }
    hive_map_free(map);
}

CASE(set_after_delete_is_no_second_entry) {
    struct hive_map *map = filled(6);
    for (int gone = 0; gone < 6; gone++) {
        CHECK(hive_map_delete(map, name(gone)));
        for (int i = 0; i < 6; i++) {
            if (i != gone) {
                CHECK(hive_map_set(map, name(i), mark(i + 100)));
            }
        }
        CHECK(hive_map_count(map) == 5);
        CHECK(hive_map_set(map, name(gone), mark(gone)));
        CHECK(hive_map_count(map) == 6);
    }
    hive_map_free(map);
}

CASE(passing_keys_do_not_grow_the_map) {
    struct hive_map *map = hive_map_new(NULL);
    for (int i = 0; i < 50000; i++) {
        CHECK(hive_map_set(map, name(i), mark(i)));
        if (i >= 3) {
            CHECK(hive_map_delete(map, name(i - 3)));
        }
    }
    CHECK(hive_map_count(map) == 3);
    CHECK(hive_map_capacity(map) <= 16);
    hive_map_free(map);
}

CASE(missing_keys_end) {
    struct hive_map *map = hive_map_new(NULL);
    for (int i = 0; i < 1000; i++) {
        CHECK(hive_map_set(map, name(i), mark(i)));
        CHECK(hive_map_delete(map, name(i)));
        CHECK(hive_map_get(map, "never there") == NULL);
        CHECK(!hive_map_delete(map, "never there"));
    }
    CHECK(hive_map_count(map) == 0);
    hive_map_free(map);
}

CASE(a_third_of_a_large_map_passes) {
    struct hive_map *map = filled(300);
    size_t capacity = hive_map_capacity(map);
    for (int i = 0; i < 20000; i++) {
        CHECK(hive_map_delete(map, name(i)));
        CHECK(hive_map_set(map, name(i + 300), mark(i + 300)));
    }
    CHECK(hive_map_count(map) == 300);
    CHECK(hive_map_capacity(map) <= 2 * capacity);
    for (int i = 20000; i < 20300; i++) {
        CHECK(hive_map_get(map, name(i)) == mark(i));
    }
    hive_map_free(map);
}

CASE(room_is_left) {
    struct hive_map *map = hive_map_new(NULL);
    for (int i = 0; i < MANY; i++) {
        CHECK(hive_map_set(map, name(i), mark(i)));
        CHECK(hive_map_count(map) * 4 <= hive_map_capacity(map) * 3);
    }
    CHECK(hive_map_capacity(map) <= 4 * MANY);
    hive_map_free(map);
}

CASE(replacing_frees_the_old_value) {
    struct hive_map *map = hive_map_new(count_free);
    CHECK(hive_map_set(map, "a", mark(1)));
    CHECK(hive_map_set(map, "a", mark(2)));
    CHECK(frees == 1);
    CHECK(hive_map_get(map, "a") == mark(2));
    CHECK(hive_map_count(map) == 1);
    hive_map_free(map);
    CHECK(frees == 2);
}

CASE(setting_the_same_pointer_frees_nothing) {
    struct hive_map *map = hive_map_new(count_free);
    CHECK(hive_map_set(map, "a", mark(1)));
    CHECK(hive_map_set(map, "a", mark(1)));
    CHECK(frees == 0);
    CHECK(hive_map_get(map, "a") == mark(1));
    hive_map_free(map);
    CHECK(frees == 1);
}

CASE(setting_the_same_text_twice) {
    struct hive_map *map = hive_map_new(free);
    char *text = strdup("still here");
    CHECK(hive_map_set(map, "a", text));
    CHECK(hive_map_set(map, "a", hive_map_get(map, "a")));
    CHECK_TEXT(hive_map_get(map, "a"), "still here");
    hive_map_free(map);
}

CASE(deleting_frees_once) {
    struct hive_map *map = hive_map_new(count_free);
    CHECK(hive_map_set(map, "a", mark(1)));
    CHECK(hive_map_set(map, "b", mark(2)));
    CHECK(hive_map_delete(map, "a"));
    CHECK(frees == 1);
    CHECK(!hive_map_delete(map, "a"));
    CHECK(frees == 1);
    hive_map_free(map);
    CHECK(frees == 2);
}

CASE(taking_frees_nothing) {
    struct hive_map *map = hive_map_new(count_free);
    CHECK(hive_map_set(map, "a", mark(1)));
    CHECK(hive_map_set(map, "b", mark(2)));
    CHECK(hive_map_take(map, "a") == mark(1));
    CHECK(hive_map_take(map, "a") == NULL);
    CHECK(hive_map_get(map, "a") == NULL);
    CHECK(hive_map_count(map) == 1);
    CHECK(frees == 0);
    hive_map_free(map);
    CHECK(frees == 1);
}

CASE(growing_frees_nothing) {
    struct hive_map *map = hive_map_new(count_free);
    for (int i = 0; i < MANY; i++) {
        CHECK(hive_map_set(map, name(i), mark(i)));
    }
    CHECK(frees == 0);
    hive_map_free(map);
    CHECK(frees == MANY);
}

CASE(a_value_may_be_null) {
    struct hive_map *map = hive_map_new(count_free);
    CHECK(hive_map_set(map, "a", NULL));
    CHECK(hive_map_count(map) == 1);
    CHECK(hive_map_delete(map, "a"));
    hive_map_free(map);
    CHECK(frees == 0);
}

CASE(next_sees_each_once) {
    struct hive_map *map = filled(100);
    static int seen[100];
    size_t place = 0, count = 0;
    const char *key;
    void *value;
    for (int i = 0; i < 100; i += 3) {
        CHECK(hive_map_delete(map, name(i)));
    }
    while (hive_map_next(map, &place, &key, &value)) {
        int number = atoi(key + 4);
        CHECK(value == mark(number));
        CHECK(number % 3 != 0);
        CHECK(seen[number]++ == 0);
        count += 1;
    }
    CHECK(count == hive_map_count(map));
    hive_map_free(map);
}

CASE(deleting_while_walking) {
    struct hive_map *map = filled(100);
    size_t place = 0;
    int count = 0;
    const char *key;
    void *value;
    while (hive_map_next(map, &place, &key, &value)) {
        char own[32];
        strcpy(own, key);
        CHECK(hive_map_delete(map, own));
        count += 1;
    }
    CHECK(count == 100);
    CHECK(hive_map_count(map) == 0);
    hive_map_free(map);
}
