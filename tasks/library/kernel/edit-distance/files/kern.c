void kern(const char* a, const char* b, int* out, int n, int m) {
    int row[m + 1];
    for (int j = 0; j <= m; j++) row[j] = j;
    for (int i = 0; i < n; i++) {
        int corner = row[0];
        row[0] = i + 1;
        for (int j = 0; j < m; j++) {
            int best = corner + (a[i] != b[j]);
            corner = row[j + 1];
            if (corner + 1 < best) best = corner + 1;
            if (row[j] + 1 < best) best = row[j] + 1;
            row[j + 1] = best;
        }
    }
    out[0] = row[m];
}
