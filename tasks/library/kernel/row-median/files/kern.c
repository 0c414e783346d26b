#include <stdint.h>

void kern(const int16_t* x, int16_t* out, int n, int m) {
    for (int r = 0; r < n; r++) {
        int16_t row[m];
        for (int i = 0; i < m; i++) {
            int16_t v = x[r * m + i];
            int j = i;
            for (; j > 0 && row[j - 1] > v; j--) row[j] = row[j - 1];
            row[j] = v;
        }
        out[r] = row[(m - 1) / 2];
    }
}
