void kern(const char* text, const char* pattern, int* out, int n, int m) {
    int count = 0;
    for (int i = 0; i + m <= n; i++) {
        int j = 0;
        while (j < m && text[i + j] == pattern[j]) j++;
        count += j == m;
    }
    out[0] = count;
}
