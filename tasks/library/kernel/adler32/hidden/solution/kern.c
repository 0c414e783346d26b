/* Within a block a grows by the sum and b by a weighted sum; the remainder is taken once per block. */
#include <stdint.h>

#define BLOCK 2048

void kern(const uint8_t* restrict x, uint32_t* restrict out, int n) {
    uint64_t a = 1, b = 0;
    int i = 0;
    for (; i + BLOCK <= n; i += BLOCK) {
        uint32_t sum = 0, weighted = 0;
        for (int j = 0; j < BLOCK; j++) {
            sum += x[i + j];
            weighted += x[i + j] * (uint32_t)(BLOCK - j);
        }
        b = (b + BLOCK * a + weighted) % 65521;
        a = (a + sum) % 65521;
    }
    for (; i < n; i++) {
        a += x[i];
        b += a;
    }
    out[0] = (uint32_t)(b % 65521 << 16 | a % 65521);
}
