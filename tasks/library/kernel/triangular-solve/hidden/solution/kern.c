/* Right sides inside: a row of y is a row of b less multiples of the rows of y above. */
void kern(const float* restrict l, const float* restrict b, float* restrict y, int n, int m) {
    for (int i = 0; i < n; i++) {
        float* row = y + (long)i * m;
        const float* left = l + (long)i * n;
        for (int c = 0; c < m; c++) row[c] = b[(long)i * m + c];
        int k = 0;
        for (; k + 4 <= i; k += 4) {
            const float* up = y + (long)k * m;
            float f0 = left[k], f1 = left[k + 1], f2 = left[k + 2], f3 = left[k + 3];
            for (int c = 0; c < m; c++)
                row[c] -= (f0 * up[c] + f1 * up[m + c]) + (f2 * up[2 * m + c] + f3 * up[3 * m + c]);
        }
        for (; k < i; k++)
            for (int c = 0; c < m; c++) row[c] -= left[k] * y[(long)k * m + c];
    }
}
