/* Windows of twice the width are the maximum of two of half the width: about log2(w) passes over a block. */
#define BLOCK 1024

static int larger(int a, int b) { return a > b ? a : b; }

void kern(const int* restrict x, int* restrict out, int n, int w) {
    if (w > 2048) {
        for (int i = 0; i < n; i++) {
            int best = x[i];
            for (int j = i; j < i + w; j++) best = larger(best, x[j]);
            out[i] = best;
        }
        return;
    }
    int wide[BLOCK + 2048];
    for (int start = 0; start < n; start += BLOCK) {
        int count = n - start < BLOCK ? n - start : BLOCK, have = 1, left = count + w - 1;
        for (int i = 0; i < left; i++) wide[i] = x[start + i];
        for (; 2 * have <= w; have *= 2) {
            left -= have;
            for (int i = 0; i < left; i++) wide[i] = larger(wide[i], wide[i + have]);
        }
        for (int i = 0; i < count; i++) out[start + i] = larger(wide[i], wide[i + w - have]);
    }
}
