void kern(const int* x, int* out, int n, int m) {
    for (int i = 0; i < n; i++) {
        int best = 0;
        for (int j = 1; j < m; j++)
            if (x[i * m + j] > x[i * m + best]) best = j;
        out[i] = best;
    }
}
