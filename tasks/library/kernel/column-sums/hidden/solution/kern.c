/* Rows outside: memory is read in order, and each column's sum is independent of its neighbours'. */
void kern(const float* restrict a, float* restrict out, int n, int m) {
    for (int j = 0; j < m; j++) out[j] = a[j];
    int i = 1;
    for (; i + 4 <= n; i += 4) {
        const float* row = a + (long)i * m;
        for (int j = 0; j < m; j++) out[j] += (row[j] + row[m + j]) + (row[2 * m + j] + row[3 * m + j]);
    }
    for (; i < n; i++)
        for (int j = 0; j < m; j++) out[j] += a[(long)i * m + j];
}
