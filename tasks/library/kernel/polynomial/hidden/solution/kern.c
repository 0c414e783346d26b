/* Horner's rule for 64 places side by side. */
#define LANES 64

void kern(const float* restrict c, const float* restrict x, float* restrict out, int n, int k) {
    int i = 0;
    for (; i + LANES <= n; i += LANES) {
        float sum[LANES];
        for (int l = 0; l < LANES; l++) sum[l] = c[k - 1];
        for (int j = k - 2; j >= 0; j--)
            for (int l = 0; l < LANES; l++) sum[l] = sum[l] * x[i + l] + c[j];
        for (int l = 0; l < LANES; l++) out[i + l] = sum[l];
    }
    for (; i < n; i++) {
        float sum = c[k - 1];
        for (int j = k - 2; j >= 0; j--) sum = sum * x[i] + c[j];
        out[i] = sum;
    }
}
