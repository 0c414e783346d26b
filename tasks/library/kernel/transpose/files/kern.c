void kern(const float* a, float* out, int n, int m) {
    for (int i = 0; i < n; i++)
        for (int j = 0; j < m; j++) out[j * n + i] = a[i * m + j];
}
