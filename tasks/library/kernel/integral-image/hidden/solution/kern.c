/* Line by line: a running sum along the line, then the line above is added, many at once. */
#include <stdint.h>

void kern(const uint8_t* restrict a, uint32_t* restrict out, int h, int w) {
    for (int i = 0; i < h; i++) {
        uint32_t sum = 0, *line = out + (long)i * w;
        for (int j = 0; j < w; j++) line[j] = sum += a[(long)i * w + j];
        if (i)
            for (int j = 0; j < w; j++) line[j] += line[j - w];
    }
}
