/* Sixteen searches step together and never branch on what they find. */
#define TOGETHER 16

static void search(const int* restrict a, const int* restrict x, int* restrict out, int n, int count) {
    int base[TOGETHER] = {0};
    int left = n;
    for (; left > 1; left -= left / 2) {
        int half = left / 2;
        for (int l = 0; l < count; l++) base[l] += a[base[l] + half - 1] < x[l] ? half : 0;
    }
    for (int l = 0; l < count; l++) out[l] = base[l] + (a[base[l]] < x[l]);
}

void kern(const int* restrict a, const int* restrict x, int* restrict out, int n, int q) {
    int i = 0;
    for (; i + TOGETHER <= q; i += TOGETHER) search(a, x + i, out + i, n, TOGETHER);
    if (i < q) search(a, x + i, out + i, n, q - i);
}
