/* A whole line of the output gathers one channel's nine products at a time. */
void kern(const float* restrict x, const float* restrict f, float* restrict out, int c, int k, int h, int w) {
    for (int o = 0; o < k; o++)
        for (int i = 0; i < h; i++) {
            float* line = out + ((long)o * h + i) * w;
            for (int j = 0; j < w; j++) line[j] = 0;
            for (int in = 0; in < c; in++) {
                const float* g = f + (o * c + in) * 9;
                const float* a = x + ((long)in * (h + 2) + i) * (w + 2);
                const float *b = a + w + 2, *d = b + w + 2;
                for (int j = 0; j < w; j++)
                    line[j] += (g[0] * a[j] + g[1] * a[j + 1] + g[2] * a[j + 2]) +
                               (g[3] * b[j] + g[4] * b[j + 1] + g[5] * b[j + 2]) +
                               (g[6] * d[j] + g[7] * d[j + 1] + g[8] * d[j + 2]);
            }
        }
}
