void kern(const float* l, const float* b, float* y, int n, int m) {
    for (int c = 0; c < m; c++)
        for (int i = 0; i < n; i++) {
            float v = b[i * m + c];
            for (int k = 0; k < i; k++) v -= l[i * n + k] * y[k * m + c];
            y[i * m + c] = v;
        }
}
