/* The matrix is symmetric: half of it is enough. Each product in sixteen partial sums. */
#define LANES 16

static float product(const float* restrict a, const float* restrict b, int m) {
    float part[LANES] = {0};
    int k = 0;
    for (; k + LANES <= m; k += LANES)
        for (int l = 0; l < LANES; l++) part[l] += a[k + l] * b[k + l];
    float sum = 0;
    for (; k < m; k++) sum += a[k] * b[k];
    for (int step = LANES / 2; step; step /= 2)
        for (int l = 0; l < step; l++) part[l] += part[l + step];
    return sum + part[0];
}

void kern(const float* restrict x, float* restrict g, int n, int m) {
    for (int i = 0; i < n; i++)
        for (int j = 0; j <= i; j++) g[i * n + j] = g[j * n + i] = product(x + (long)i * m, x + (long)j * m, m);
}
