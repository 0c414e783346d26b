/* The entry outside, the columns of the dense matrices inside: whole rows are added. */
void kern(const int* restrict start, const int* restrict col, const float* restrict val, const float* restrict b,
          float* restrict y, int n, int m, int e) {
    for (int i = 0; i < n; i++) {
        float* row = y + (long)i * m;
        for (int c = 0; c < m; c++) row[c] = 0;
        for (int k = start[i]; k < start[i + 1]; k++) {
            const float* from = b + (long)col[k] * m;
            for (int c = 0; c < m; c++) row[c] += val[k] * from[c];
        }
    }
}
