/* Line by line along memory; a line outside the cube is skipped as a whole. */
static void add(const float* restrict from, float* restrict to, int n) {
    for (int i = 0; i < n; i++) to[i] += from[i];
}

void kern(const float* restrict a, float* restrict out, int n) {
    long plane = (long)n * n;
    for (int z = 0; z < n; z++)
        for (int y = 0; y < n; y++) {
            const float* line = a + z * plane + (long)y * n;
            float* to = out + z * plane + (long)y * n;
            for (int x = 0; x < n; x++) to[x] = -6 * line[x];
            add(line, to + 1, n - 1);
            add(line + 1, to, n - 1);
            if (y) add(line - n, to, n);
            if (y + 1 < n) add(line + n, to, n);
            if (z) add(line - plane, to, n);
            if (z + 1 < n) add(line + plane, to, n);
        }
}
