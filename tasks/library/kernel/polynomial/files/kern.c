void kern(const float* c, const float* x, float* out, int n, int k) {
    for (int i = 0; i < n; i++) {
        double sum = 0, power = 1;
        for (int j = 0; j < k; j++) {
            sum += c[j] * power;
            power *= x[i];
        }
        out[i] = sum;
    }
}
