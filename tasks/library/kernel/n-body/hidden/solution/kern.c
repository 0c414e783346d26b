/* Coordinates apart, sixteen bodies side by side in single precision, and one reciprocal per pair. */
#pragma GCC optimize("fast-math")
#include <math.h>

#define LANES 16

static void some(const float* restrict pos, const float* restrict mass, float* restrict acc, int n, int first,
                 int count) {
    float x[LANES], y[LANES], z[LANES], ax[LANES] = {0}, ay[LANES] = {0}, az[LANES] = {0};
    for (int l = 0; l < LANES; l++) {
        const float* p = pos + 3 * (first + (l < count ? l : 0));
        x[l] = p[0], y[l] = p[1], z[l] = p[2];
    }
    for (int j = 0; j < n; j++) {
        float px = pos[3 * j], py = pos[3 * j + 1], pz = pos[3 * j + 2], m = mass[j];
        for (int l = 0; l < LANES; l++) {
            float dx = px - x[l], dy = py - y[l], dz = pz - z[l];
            float square = dx * dx + dy * dy + dz * dz + 0.01f;
            float f = m / (square * sqrtf(square));
            ax[l] += f * dx, ay[l] += f * dy, az[l] += f * dz;
        }
    }
    for (int l = 0; l < count; l++) {
        float* a = acc + 3 * (first + l);
        a[0] = ax[l], a[1] = ay[l], a[2] = az[l];
    }
}

void kern(const float* pos, const float* mass, float* acc, int n) {
    for (int i = 0; i < n; i += LANES) some(pos, mass, acc, n, i, n - i < LANES ? n - i : LANES);
}
