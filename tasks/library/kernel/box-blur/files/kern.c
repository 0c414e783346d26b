#include <stdint.h>

void kern(const uint8_t* a, uint8_t* out, int h, int w, int r) {
    for (int i = 0; i < h; i++)
        for (int j = 0; j < w; j++) {
            int sum = 0, count = 0;
            for (int y = i - r; y <= i + r; y++)
                for (int x = j - r; x <= j + r; x++)
                    if (y >= 0 && y < h && x >= 0 && x < w) sum += a[y * w + x], count++;
            out[i * w + j] = sum / count;
        }
}
