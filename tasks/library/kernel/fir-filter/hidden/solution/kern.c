/* Sixty-four outputs at a time stay in registers while the taps pass by. */
#define BLOCK 64

void kern(const float* restrict x, const float* restrict h, float* restrict out, int n, int k) {
    int i = 0;
    for (; i + BLOCK <= n; i += BLOCK) {
        float sum[BLOCK] = {0};
        for (int j = 0; j < k; j++)
            for (int l = 0; l < BLOCK; l++) sum[l] += h[j] * x[i + j + l];
        for (int l = 0; l < BLOCK; l++) out[i + l] = sum[l];
    }
    for (; i < n; i++) {
        float sum = 0;
        for (int j = 0; j < k; j++) sum += h[j] * x[i + j];
        out[i] = sum;
    }
}
