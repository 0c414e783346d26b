#include <math.h>

void kern(const float* pos, const float* mass, float* acc, int n) {
    for (int i = 0; i < n; i++) {
        double sum[3] = {0, 0, 0};
        for (int j = 0; j < n; j++) {
            double d[3], square = 0.01;
            for (int k = 0; k < 3; k++) {
                d[k] = (double)pos[3 * j + k] - pos[3 * i + k];
                square += d[k] * d[k];
            }
            for (int k = 0; k < 3; k++) sum[k] += mass[j] * d[k] / (square * sqrt(square));
        }
        for (int k = 0; k < 3; k++) acc[3 * i + k] = sum[k];
    }
}
