void kern(const float* x, float* g, int n, int m) {
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) {
            float sum = 0;
            for (int k = 0; k < m; k++) sum += x[i * m + k] * x[j * m + k];
            g[i * n + j] = sum;
        }
}
