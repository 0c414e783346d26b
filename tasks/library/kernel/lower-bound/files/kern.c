void kern(const int* a, const int* x, int* out, int n, int q) {
    for (int i = 0; i < q; i++) {
        int low = 0, high = n;
        while (low < high) {
            int mid = (low + high) / 2;
            if (a[mid] < x[i]) low = mid + 1;
            else high = mid;
        }
        out[i] = low;
    }
}
