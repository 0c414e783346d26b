void kern(const float* x, float* out, int n, int m) {
    for (int i = 0; i < n; i++) {
        double mean = 0, square = 0;
        for (int j = 0; j < m; j++) mean += x[i * m + j];
        mean /= m;
        for (int j = 0; j < m; j++) square += (x[i * m + j] - mean) * (x[i * m + j] - mean);
        out[2 * i] = mean;
        out[2 * i + 1] = square / m;
    }
}
