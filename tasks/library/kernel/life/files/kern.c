#include <stdint.h>

void kern(const uint8_t* a, uint8_t* out, int h, int w) {
    for (int i = 0; i < h; i++)
        for (int j = 0; j < w; j++) {
            int sum = 0;
            for (int y = i - 1; y <= i + 1; y++)
                for (int x = j - 1; x <= j + 1; x++) {
                    int line = y < 0 ? h - 1 : y < h ? y : 0, column = x < 0 ? w - 1 : x < w ? x : 0;
                    if (y != i || x != j) sum += a[line * w + column];
                }
            out[i * w + j] = sum == 3 || (sum == 2 && a[i * w + j]);
        }
}
