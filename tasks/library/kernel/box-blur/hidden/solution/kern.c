/* Column sums move down by a line added and a line taken off; along the line a window moves over them. */
#include <stdint.h>

void kern(const uint8_t* restrict a, uint8_t* restrict out, int h, int w, int r) {
    int column[w];
    for (int j = 0; j < w; j++) column[j] = 0;
    for (int y = 0; y < r && y < h; y++)
        for (int j = 0; j < w; j++) column[j] += a[(long)y * w + j];
    for (int i = 0; i < h; i++) {
        if (i + r < h)
            for (int j = 0; j < w; j++) column[j] += a[(long)(i + r) * w + j];
        if (i - r > 0)
            for (int j = 0; j < w; j++) column[j] -= a[(long)(i - r - 1) * w + j];
        int top = i - r > 0 ? i - r : 0, bottom = i + r < h ? i + r : h - 1, lines = bottom - top + 1, sum = 0;
        for (int x = 0; x < r && x < w; x++) sum += column[x];
        for (int j = 0; j < w; j++) {
            if (j + r < w) sum += column[j + r];
            if (j - r > 0) sum -= column[j - r - 1];
            int left = j - r > 0 ? j - r : 0, right = j + r < w ? j + r : w - 1;
            out[(long)i * w + j] = sum / (lines * (right - left + 1));
        }
    }
}
