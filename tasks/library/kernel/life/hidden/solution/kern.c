/* Only the first and the last column need to wrap; in between many cells are done at once. */
#include <stdint.h>

static uint8_t next(int sum, int alive) { return (sum == 3) | ((sum == 2) & alive); }

static uint8_t edge(const uint8_t* up, const uint8_t* mid, const uint8_t* down, int j, int w) {
    int l = j ? j - 1 : w - 1, r = j + 1 < w ? j + 1 : 0;
    return next(up[l] + up[j] + up[r] + mid[l] + mid[r] + down[l] + down[j] + down[r], mid[j]);
}

void kern(const uint8_t* restrict a, uint8_t* restrict out, int h, int w) {
    for (int i = 0; i < h; i++) {
        const uint8_t *mid = a + (long)i * w, *up = a + (long)(i ? i - 1 : h - 1) * w;
        const uint8_t* down = a + (long)(i + 1 < h ? i + 1 : 0) * w;
        uint8_t* row = out + (long)i * w;
        row[0] = edge(up, mid, down, 0, w);
        for (int j = 1; j < w - 1; j++) {
            uint8_t sum = up[j - 1] + up[j] + up[j + 1] + mid[j - 1] + mid[j + 1] + down[j - 1] + down[j] + down[j + 1];
            row[j] = (uint8_t)(sum == 3) | ((uint8_t)(sum == 2) & mid[j]);
        }
        row[w - 1] = edge(up, mid, down, w - 1, w);
    }
}
