/* Differences between neighbours are -1, 0 or 1: two bits each, so that a word holds 64 rows of a column. */
#include <stdint.h>

typedef struct {
    uint64_t up, down;
} Column;

/* One letter against 64 rows. Returns the difference in the last row, -1 to 1; in is the one above the first. */
static int step(Column* c, uint64_t equal, int in, int last) {
    uint64_t up = c->up, down = c->down, x = equal | down;
    if (in < 0) equal |= 1;
    uint64_t diagonal = (((equal & up) + up) ^ up) | equal;
    uint64_t plus = down | ~(diagonal | up), minus = up & diagonal;
    int result = (int)(plus >> last & 1) - (int)(minus >> last & 1);
    plus = plus << 1 | (in > 0);
    minus = minus << 1 | (in < 0);
    c->up = minus | ~(x | plus);
    c->down = plus & x;
    return result;
}

void kern(const char* a, const char* b, int* out, int n, int m) {
    int words = (n + 63) / 64, distance = n;
    uint64_t equal[words][4];
    Column column[words];
    for (int w = 0; w < words; w++) {
        column[w] = (Column){~(uint64_t)0, 0};
        for (int l = 0; l < 4; l++) equal[w][l] = 0;
    }
    for (int i = 0; i < n; i++) equal[i / 64][a[i] >> 1 & 3] |= (uint64_t)1 << (i % 64);
    for (int j = 0; j < m; j++) {
        int carry = 1, letter = b[j] >> 1 & 3;
        for (int w = 0; w < words; w++)
            carry = step(&column[w], equal[w][letter], carry, w + 1 < words ? 63 : (n - 1) % 64);
        distance += carry;
    }
    out[0] = distance;
}
