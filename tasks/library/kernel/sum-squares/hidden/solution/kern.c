/* Many independent partial sums, which the compiler keeps in vector registers. */
#define LANES 64

void kern(const float* x, float* out, int n) {
    float part[LANES] = {0};
    int i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++) part[j] += x[i + j] * x[i + j];
    float sum = 0;
    for (; i < n; i++) sum += x[i] * x[i];
    for (int j = 0; j < LANES; j++) sum += part[j];
    out[0] = sum;
}
