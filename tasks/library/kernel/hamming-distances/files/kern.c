#include <stdint.h>

void kern(const uint64_t* a, const uint64_t* b, int* out, int n, int m, int w) {
    for (int i = 0; i < n; i++)
        for (int j = 0; j < m; j++) {
            int count = 0;
            for (int k = 0; k < w; k++)
                for (uint64_t x = a[i * w + k] ^ b[j * w + k]; x; x &= x - 1) count++;
            out[i * m + j] = count;
        }
}
