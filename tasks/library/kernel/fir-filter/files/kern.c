void kern(const float* x, const float* h, float* out, int n, int k) {
    for (int i = 0; i < n; i++) {
        float sum = 0;
        for (int j = 0; j < k; j++) sum += h[j] * x[i + j];
        out[i] = sum;
    }
}
