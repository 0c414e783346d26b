#include <sys/stat.h>
#include <unistd.h>

#include "check.h"
#include "hive_store.h"

/* Each case has a process of its own, but they may run beside each other in one directory. */
static const char *own_path(void) {
    static char path[64];
    snprintf(path, sizeof path, "store-%d.txt", (int)getpid());
    return path;
}

static void put(const char *text, size_t length) {
    FILE *file = fopen(own_path(), "wb");
    CHECK(file != NULL);
    CHECK(fwrite(text, 1, length, file) == length);
    CHECK(fclose(file) == 0);
}

static const char *contents(void) {
    static char text[4096];
    FILE *file = fopen(own_path(), "rb");
    CHECK(file != NULL);
    text[fread(text, 1, sizeof text - 1, file)] = 0;
    fclose(file);
    return text;
}

static struct hive_map *load(const char *text) {
    size_t line = 99;
    put(text, strlen(text));
    struct hive_map *map = hive_store_load(own_path(), &line);
    CHECK(map != NULL);
    CHECK(line == 0);
    remove(own_path());
    return map;
}

static size_t bad_line(const char *text) {
    size_t line = 99;
    put(text, strlen(text));
    CHECK(hive_store_load(own_path(), &line) == NULL);
    remove(own_path());
    return line;
}

CASE(lines_are_sorted) {
    struct hive_map *map = hive_map_new(NULL);
    hive_map_set(map, "pear", "3");
    hive_map_set(map, "apple", "1");
    hive_map_set(map, "Zoe", "0");
    hive_map_set(map, "fig", "2");
    CHECK(hive_store_save(map, own_path()));
    CHECK_TEXT(contents(), "Zoe\t0\napple\t1\nfig\t2\npear\t3\n");
    hive_map_free(map);
    remove(own_path());
}

CASE(an_empty_map) {
    struct hive_map *map = hive_map_new(NULL);
    CHECK(hive_store_save(map, own_path()));
    CHECK_TEXT(contents(), "");
    hive_map_free(map);
    map = load("");
    CHECK(hive_map_count(map) == 0);
    hive_map_free(map);
}

CASE(special_signs_are_escaped) {
    struct hive_map *map = hive_map_new(NULL);
    hive_map_set(map, "a\tb", "c\nd");
    hive_map_set(map, "back\\slash", "\r\n");
    hive_map_set(map, "n", "\\n");
    CHECK(hive_store_save(map, own_path()));
    CHECK_TEXT(contents(), "a\\tb\tc\\nd\nback\\\\slash\t\\r\\n\nn\t\\\\n\n");
    hive_map_free(map);
    remove(own_path());
}

CASE(escapes_are_undone) {
    struct hive_map *map = load("a\\tb\tc\\nd\nback\\\\slash\t\\r\\n\nn\t\\\\n\n");
    CHECK_TEXT(hive_map_get(map, "a\tb"), "c\nd");
    CHECK_TEXT(hive_map_get(map, "back\\slash"), "\r\n");
    CHECK_TEXT(hive_map_get(map, "n"), "\\n");
    CHECK(hive_map_count(map) == 3);
    hive_map_free(map);
}

CASE(what_is_saved_can_be_loaded) {
    static const char *texts[] = {"a", "\\", "\\\\", "\\t", "\t", "\n", "\r", "x\\ny", "é", " ", "\\\n", "tab\tnew\nline"};
    enum { COUNT = sizeof texts / sizeof *texts };
    struct hive_map *map = hive_map_new(NULL);
    size_t line;
    for (int i = 0; i < COUNT; i++) {
        hive_map_set(map, texts[i], (void *)texts[COUNT - 1 - i]);
    }
    CHECK(hive_store_save(map, own_path()));
    hive_map_free(map);
    map = hive_store_load(own_path(), &line);
    CHECK(map != NULL);
    CHECK(hive_map_count(map) == COUNT);
    for (int i = 0; i < COUNT; i++) {
        CHECK_TEXT(hive_map_get(map, texts[i]), texts[COUNT - 1 - i]);
    }
    hive_map_free(map);
    remove(own_path());
}

CASE(empty_keys_and_values) {
    struct hive_map *map = load("\tx\ny\t\n");
    CHECK_TEXT(hive_map_get(map, ""), "x");
    CHECK_TEXT(hive_map_get(map, "y"), "");
    hive_map_free(map);
}

CASE(the_last_line_needs_no_end) {
    struct hive_map *map = load("a\t1\nb\t22");
    CHECK_TEXT(hive_map_get(map, "b"), "22");
    CHECK(hive_map_count(map) == 2);
    hive_map_free(map);
}

CASE(the_later_value_counts) {
    struct hive_map *map = load("a\t1\nb\t2\na\t3\n");
    CHECK_TEXT(hive_map_get(map, "a"), "3");
    CHECK(hive_map_count(map) == 2);
    hive_map_free(map);
}

CASE(long_lines) {
    static char text[100004];
    memset(text, 'k', 50000);
    text[50000] = '\t';
    memset(text + 50001, 'v', 50000);
    strcpy(text + 100001, "\n");
    struct hive_map *map = load(text);
    CHECK(hive_map_count(map) == 1);
    text[50000] = 0;
    CHECK(strlen(hive_map_get(map, text)) == 50000);
    hive_map_free(map);
}

CASE(a_line_without_a_tab) {
    CHECK(bad_line("a\t1\nb\nc\t3\n") == 2);
    CHECK(bad_line("a\t1\n\n") == 2);
    CHECK(bad_line("x") == 1);
}

CASE(an_unknown_escape) {
    CHECK(bad_line("a\t1\nb\t2\nc\t\\x\n") == 3);
    CHECK(bad_line("\\ \t1\n") == 1);
}

CASE(a_lone_backslash_at_the_end) {
    CHECK(bad_line("a\tb\\\n") == 1);
    CHECK(bad_line("a\t1\nb\tc\\") == 2);
    CHECK(bad_line("a\\\tb\n") == 1);
}

CASE(a_missing_file) {
    size_t line = 99;
    CHECK(hive_store_load("there is no such file", &line) == NULL);
    CHECK(line == 0);
}

CASE(saving_replaces) {
    struct hive_map *map = hive_map_new(NULL);
    put("old\tcontents that are longer than the new ones\n", 47);
    hive_map_set(map, "a", "1");
    CHECK(hive_store_save(map, own_path()));
    CHECK_TEXT(contents(), "a\t1\n");
    hive_map_free(map);
    remove(own_path());
}

CASE(a_failed_save_leaves_nothing) {
    char directory[80], fresh[90];
    struct stat status;
    struct hive_map *map = hive_map_new(NULL);
    hive_map_set(map, "a", "1");
    /* A file cannot be renamed to a directory. */
    snprintf(directory, sizeof directory, "dir-%d", (int)getpid());
    snprintf(fresh, sizeof fresh, "%s.new", directory);
    CHECK(mkdir(directory, 0755) == 0);
    CHECK(!hive_store_save(map, directory));
    CHECK(stat(fresh, &status) != 0);
    CHECK(stat(directory, &status) == 0);
    rmdir(directory);
    CHECK(!hive_store_save(map, "no such directory/file"));
    hive_map_free(map);
}
