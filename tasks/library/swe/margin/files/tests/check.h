/* A test program: CASE(name) { ... } defines a test, CHECK(condition) ends it with an error unless the condition holds.
 * Run with the name of a case; without one, all of them run. */
#ifndef CHECK_H
#define CHECK_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct check_case {
    const char *name;
    void (*run)(void);
    struct check_case *next;
};

static struct check_case *check_cases;

#define CASE(name)                                                                  \
    static void case_##name(void);                                                  \
    __attribute__((constructor)) static void add_##name(void) {                     \
        static struct check_case own = {#name, case_##name, NULL};                  \
        own.next = check_cases;                                                     \
        check_cases = &own;                                                         \
    }                                                                               \
    static void case_##name(void)

#define CHECK(condition)                                                            \
    do {                                                                            \
        if (!(condition)) {                                                         \
            fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition); \
            exit(1);                                                                \
        }                                                                           \
    } while (0)

#define CHECK_TEXT(found, wanted)                                                   \
    do {                                                                            \
        const char *check_found = (found), *check_wanted = (wanted);                \
        if (check_found == NULL || strcmp(check_found, check_wanted) != 0) {        \
            fprintf(stderr, "%s:%d: found \"%s\", wanted \"%s\"\n", __FILE__, __LINE__, \
                    check_found ? check_found : "(null)", check_wanted);            \
            exit(1);                                                                \
        }                                                                           \
    } while (0)

int main(int count, char **words) {
    int runs = 0;
    for (struct check_case *one = check_cases; one != NULL; one = one->next) {
        if (count < 2 || strcmp(words[1], one->name) == 0) {
            one->run();
            runs += 1;
        }
    }
    return runs == 0;
}

#endif
