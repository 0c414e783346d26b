/* Rows of c as sums of rows of b: the inner loop runs along memory, four rows of c at once share each row of b. */
static void rows(const float* restrict a, const float* restrict b, float* restrict c, int n, int count) {
    for (int i = 0; i < count * n; i++) c[i] = 0;
    if (count == 4) {
        float *restrict c0 = c, *restrict c1 = c + n, *restrict c2 = c + 2 * n, *restrict c3 = c + 3 * n;
        for (int k = 0; k < n; k++) {
            const float* restrict row = b + (long)k * n;
            float a0 = a[k], a1 = a[n + k], a2 = a[2 * n + k], a3 = a[3 * n + k];
            for (int j = 0; j < n; j++) {
                c0[j] += a0 * row[j];
                c1[j] += a1 * row[j];
                c2[j] += a2 * row[j];
                c3[j] += a3 * row[j];
            }
        }
        return;
    }
    for (int r = 0; r < count; r++)
        for (int k = 0; k < n; k++)
            for (int j = 0; j < n; j++) c[r * n + j] += a[r * n + k] * b[(long)k * n + j];
}

void kern(const float* a, const float* b, float* c, int n) {
    for (int i = 0; i < n; i += 4) rows(a + (long)i * n, b, c + (long)i * n, n, n - i < 4 ? n - i : 4);
}
