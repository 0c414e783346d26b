/* Sixteen steps of bisection on the value: each counts, many numbers at once, how many are smaller. */
#include <stdint.h>

void kern(const int16_t* restrict x, int16_t* restrict out, int n, int m) {
    for (int r = 0; r < n; r++) {
        const int16_t* row = x + (long)r * m;
        int place = (m - 1) / 2, found = -32768;
        for (int bit = 32768; bit; bit /= 2) {
            int16_t limit = (int16_t)(found + bit);
            int smaller = 0;
            for (int i = 0; i < m; i++) smaller += row[i] < limit;
            if (smaller <= place) found += bit;
        }
        out[r] = (int16_t)found;
    }
}
