#include <math.h>

void kern(const float* x, float* out, int n, int m) {
    for (int i = 0; i < n; i++) {
        float largest = x[i * m], sum = 0;
        for (int j = 1; j < m; j++) largest = fmaxf(largest, x[i * m + j]);
        for (int j = 0; j < m; j++) sum += expf(x[i * m + j] - largest);
        for (int j = 0; j < m; j++) out[i * m + j] = expf(x[i * m + j] - largest) / sum;
    }
}
