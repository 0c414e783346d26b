/* Merge sort from the bottom up; the merge takes the smaller head without a branch. Runs of eight by insertion. */
static void merge(const int* restrict from, int* restrict to, int a, int mid, int end) {
    int b = mid, k = a;
    while (a < mid && b < end) {
        int left = from[a], right = from[b], second = right < left;
        to[k++] = second ? right : left;
        b += second;
        a += !second;
    }
    while (a < mid) to[k++] = from[a++];
    while (b < end) to[k++] = from[b++];
}

void kern(const int* x, int* out, int n) {
    int other[n], *from = out, *to = other;
    for (int start = 0; start < n; start += 8) {
        int end = start + 8 < n ? start + 8 : n;
        for (int i = start; i < end; i++) {
            int v = x[i], j = i;
            for (; j > start && out[j - 1] > v; j--) out[j] = out[j - 1];
            out[j] = v;
        }
    }
    for (long width = 8; width < n; width *= 2) {
        for (long a = 0; a < n; a += 2 * width)
            merge(from, to, a, a + width < n ? a + width : n, a + 2 * width < n ? a + 2 * width : n);
        int* swap = from;
        from = to;
        to = swap;
    }
    if (from != out)
        for (int i = 0; i < n; i++) out[i] = from[i];
}
