extern "C" void kern(const int* x, int* out, int n) {
    for (int r = 0; r < n; r++)
        for (int i = 0; i < 8; i++) {
            int v = x[8 * r + i], j = i;
            for (; j > 0 && out[8 * r + j - 1] > v; j--) out[8 * r + j] = out[8 * r + j - 1];
            out[8 * r + j] = v;
        }
}
