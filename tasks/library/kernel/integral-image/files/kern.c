#include <stdint.h>

void kern(const uint8_t* a, uint32_t* out, int h, int w) {
    for (int j = 0; j < w; j++) {
        uint32_t sum = 0;
        for (int i = 0; i < h; i++) {
            sum += a[i * w + j];
            out[i * w + j] = sum + (j ? out[i * w + j - 1] : 0);
        }
    }
}
