/* Rows of c as sums of rows of b, so that the inner loop runs along memory. Four rows of b at a time. */
#include <stdint.h>

void kern(const int8_t* restrict a, const int8_t* restrict b, int* restrict c, int n) {
    for (int i = 0; i < n; i++) {
        const int8_t* left = a + (long)i * n;
        int* row = c + (long)i * n;
        for (int j = 0; j < n; j++) row[j] = 0;
        int k = 0;
        for (; k + 4 <= n; k += 4) {
            const int8_t* right = b + (long)k * n;
            int a0 = left[k], a1 = left[k + 1], a2 = left[k + 2], a3 = left[k + 3];
            for (int j = 0; j < n; j++)
                row[j] += a0 * right[j] + a1 * right[n + j] + a2 * right[2 * n + j] + a3 * right[3 * n + j];
        }
        for (; k < n; k++)
            for (int j = 0; j < n; j++) row[j] += left[k] * b[(long)k * n + j];
    }
}
