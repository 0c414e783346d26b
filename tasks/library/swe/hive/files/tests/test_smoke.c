#include "check.h"
#include "hive_map.h"
#include "hive_store.h"

CASE(set_and_get) {
    struct hive_map *map = hive_map_new(NULL);
    CHECK(hive_map_set(map, "a", "1"));
    CHECK_TEXT(hive_map_get(map, "a"), "1");
    CHECK(hive_map_get(map, "b") == NULL);
    CHECK(hive_map_count(map) == 1);
    hive_map_free(map);
}

CASE(save_and_load) {
    struct hive_map *map = hive_map_new(NULL);
    size_t line;
    hive_map_set(map, "colour", "green");
    CHECK(hive_store_save(map, "smoke.txt"));
    hive_map_free(map);
    map = hive_store_load("smoke.txt", &line);
    CHECK(map != NULL);
    CHECK_TEXT(hive_map_get(map, "colour"), "green");
    hive_map_free(map);
    remove("smoke.txt");
}
