void kern(const int* x, int* out, int n) {
    for (int i = 0; i < n; i++) {
        int v = x[i], j = i;
        for (; j > 0 && out[j - 1] > v; j--) out[j] = out[j - 1];
        out[j] = v;
    }
}
