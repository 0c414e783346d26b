/* First the largest number, which is found many at a time, then the block where it stands. */
#define BLOCK 256

void kern(const int* restrict x, int* restrict out, int n, int m) {
    for (int i = 0; i < n; i++) {
        const int* row = x + (long)i * m;
        int largest = row[0], start = 0;
        for (int b = 0; b < m; b += BLOCK) {
            int end = m - b < BLOCK ? m : b + BLOCK, here = row[b];
            for (int j = b; j < end; j++) here = here > row[j] ? here : row[j];
            if (here > largest) largest = here, start = b;
        }
        while (row[start] != largest) start++;
        out[i] = start;
    }
}
