void kern(const int* start, const int* col, const float* val, const float* b, float* y, int n, int m, int e) {
    for (int c = 0; c < m; c++)
        for (int i = 0; i < n; i++) {
            float sum = 0;
            for (int k = start[i]; k < start[i + 1]; k++) sum += val[k] * b[col[k] * m + c];
            y[i * m + c] = sum;
        }
}
