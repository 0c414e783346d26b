/* Thirty-two partial sums per row, so that the additions do not wait for each other. */
#define LANES 32

static float total(const float* part) {
    float sum = 0;
    for (int j = 0; j < LANES; j++) sum += part[j];
    return sum;
}

void kern(const float* restrict x, float* restrict out, int n, int m) {
    for (int i = 0; i < n; i++) {
        const float* row = x + (long)i * m;
        float part[LANES] = {0}, square[LANES] = {0};
        int j = 0;
        for (; j + LANES <= m; j += LANES)
            for (int l = 0; l < LANES; l++) part[l] += row[j + l];
        for (; j < m; j++) part[0] += row[j];
        float mean = total(part) / m;
        for (j = 0; j + LANES <= m; j += LANES)
            for (int l = 0; l < LANES; l++) square[l] += (row[j + l] - mean) * (row[j + l] - mean);
        for (; j < m; j++) square[0] += (row[j] - mean) * (row[j] - mean);
        out[2 * i] = mean;
        out[2 * i + 1] = total(square) / m;
    }
}
