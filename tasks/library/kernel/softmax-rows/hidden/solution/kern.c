/* exp as 2^whole times a polynomial of the rest, many at once, and each only once. */
#include <stdint.h>
#include <string.h>

#define LANES 16

static float power(float x) {
    float t = x * 1.44269504f, whole = (t + 12582912.0f) - 12582912.0f, f = (t - whole) * 0.69314718f;
    float p = 1 + f * (1 + f * (0.5f + f * (0.16666667f + f * (0.04166667f + f * (0.0083333333f + f * 0.0013888889f)))));
    int32_t bits = ((int32_t)whole + 127) << 23;
    float scale;
    memcpy(&scale, &bits, 4);
    return p * scale;
}

void kern(const float* restrict x, float* restrict out, int n, int m) {
    for (int i = 0; i < n; i++) {
        const float* row = x + (long)i * m;
        float* to = out + (long)i * m;
        float top[LANES], part[LANES] = {0};
        int j = 0;
        for (int l = 0; l < LANES; l++) top[l] = row[0];
        for (; j + LANES <= m; j += LANES)
            for (int l = 0; l < LANES; l++) top[l] = top[l] > row[j + l] ? top[l] : row[j + l];
        for (; j < m; j++) top[0] = top[0] > row[j] ? top[0] : row[j];
        for (int l = 1; l < LANES; l++) top[0] = top[0] > top[l] ? top[0] : top[l];
        float largest = top[0];
        for (j = 0; j < m; j++) to[j] = power(row[j] - largest);
        for (j = 0; j + LANES <= m; j += LANES)
            for (int l = 0; l < LANES; l++) part[l] += to[j + l];
        for (; j < m; j++) part[0] += to[j];
        for (int l = 1; l < LANES; l++) part[0] += part[l];
        float scale = 1 / part[0];
        for (j = 0; j < m; j++) to[j] *= scale;
    }
}
