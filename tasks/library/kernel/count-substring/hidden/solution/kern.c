/* 256 places at a time: each letter of the pattern strikes out the places where it does not fit. */
#define BLOCK 256

void kern(const char* restrict text, const char* restrict pattern, int* restrict out, int n, int m) {
    int count = 0, i = 0, places = n - m + 1;
    for (; i + BLOCK <= places; i += BLOCK) {
        unsigned char misses[BLOCK] = {0};
        for (int j = 0; j < m; j++)
            for (int l = 0; l < BLOCK; l++) misses[l] |= text[i + j + l] ^ pattern[j];
        for (int l = 0; l < BLOCK; l++) count += !misses[l];
    }
    for (; i < places; i++) {
        int j = 0;
        while (j < m && text[i + j] == pattern[j]) j++;
        count += j == m;
    }
    out[0] = count;
}
