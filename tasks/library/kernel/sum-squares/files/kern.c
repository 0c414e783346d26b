void kern(const float* x, float* out, int n) {
    float sum = 0;
    for (int i = 0; i < n; i++) sum += x[i] * x[i];
    out[0] = sum;
}
