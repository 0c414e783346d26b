/* One instruction counts the bits of a word. */
#include <stdint.h>

void kern(const uint64_t* restrict a, const uint64_t* restrict b, int* restrict out, int n, int m, int w) {
    for (int i = 0; i < n; i++)
        for (int j = 0; j < m; j++) {
            const uint64_t *x = a + (long)i * w, *y = b + (long)j * w;
            int64_t count = 0;
            for (int k = 0; k < w; k++) count += __builtin_popcountll(x[k] ^ y[k]);
            out[(long)i * m + j] = (int)count;
        }
}
