/* A multiplication waits for the one before it, but not for other records: eight are hashed side by side. */
#include <stdint.h>

#define PRIME 16777619u

void kern(const uint8_t* restrict x, uint32_t* restrict out, int n, int m) {
    int r = 0;
    for (; r + 8 <= n; r += 8) {
        const uint8_t* p = x + (long)r * m;
        uint32_t a = 2166136261u, b = a, c = a, d = a, e = a, f = a, g = a, h = a;
        for (long i = 0; i < m; i++) {
            a = (a ^ p[i]) * PRIME;
            b = (b ^ p[m + i]) * PRIME;
            c = (c ^ p[2L * m + i]) * PRIME;
            d = (d ^ p[3L * m + i]) * PRIME;
            e = (e ^ p[4L * m + i]) * PRIME;
            f = (f ^ p[5L * m + i]) * PRIME;
            g = (g ^ p[6L * m + i]) * PRIME;
            h = (h ^ p[7L * m + i]) * PRIME;
        }
        uint32_t all[8] = {a, b, c, d, e, f, g, h};
        for (int k = 0; k < 8; k++) out[r + k] = all[k];
    }
    for (; r < n; r++) {
        uint32_t hash = 2166136261u;
        for (int i = 0; i < m; i++) hash = (hash ^ x[(long)r * m + i]) * PRIME;
        out[r] = hash;
    }
}
