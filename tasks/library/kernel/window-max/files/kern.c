void kern(const int* x, int* out, int n, int w) {
    for (int i = 0; i < n; i++) {
        int best = x[i];
        for (int j = i + 1; j < i + w; j++)
            if (x[j] > best) best = x[j];
        out[i] = best;
    }
}
