#include <stdint.h>
#include <stdlib.h>

static int at(const uint8_t* a, int h, int w, int i, int j) {
    i = i < 0 ? 0 : i >= h ? h - 1 : i;
    j = j < 0 ? 0 : j >= w ? w - 1 : j;
    return a[i * w + j];
}

void kern(const uint8_t* a, uint8_t* out, int h, int w) {
    for (int i = 0; i < h; i++)
        for (int j = 0; j < w; j++) {
            int gx = 0, gy = 0;
            for (int d = -1; d <= 1; d++) {
                int weight = d ? 1 : 2;
                gx += weight * (at(a, h, w, i + d, j + 1) - at(a, h, w, i + d, j - 1));
                gy += weight * (at(a, h, w, i + 1, j + d) - at(a, h, w, i - 1, j + d));
            }
            int sum = abs(gx) + abs(gy);
            out[i * w + j] = sum > 255 ? 255 : sum;
        }
}
