void kern(const float* x, const float* f, float* out, int c, int k, int h, int w) {
    for (int o = 0; o < k; o++)
        for (int i = 0; i < h; i++)
            for (int j = 0; j < w; j++) {
                float sum = 0;
                for (int in = 0; in < c; in++)
                    for (int dy = 0; dy < 3; dy++)
                        for (int dx = 0; dx < 3; dx++)
                            sum += f[((o * c + in) * 3 + dy) * 3 + dx] * x[(in * (h + 2) + i + dy) * (w + 2) + j + dx];
                out[(o * h + i) * w + j] = sum;
            }
}
