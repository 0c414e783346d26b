void kern(const float* a, float* out, int n, int m) {
    for (int j = 0; j < m; j++) {
        float sum = 0;
        for (int i = 0; i < n; i++) sum += a[i * m + j];
        out[j] = sum;
    }
}
