// A sorting network of 19 exchanges on sixteen rows at once: one vector register per column.
namespace {
constexpr int ROWS = 16;
constexpr int NETWORK[19][2] = {{0, 1}, {2, 3}, {4, 5}, {6, 7}, {0, 2}, {1, 3}, {4, 6}, {5, 7}, {1, 2}, {5, 6},
                                {0, 4}, {3, 7}, {1, 5}, {2, 6}, {1, 4}, {3, 6}, {2, 4}, {3, 5}, {3, 4}};

template <int COUNT>
void sort(const int* __restrict x, int* __restrict out) {
    int column[8][COUNT];
    for (int r = 0; r < COUNT; r++)
        for (int c = 0; c < 8; c++) column[c][r] = x[8 * r + c];
    for (auto& pair : NETWORK)
        for (int r = 0; r < COUNT; r++) {
            int a = column[pair[0]][r], b = column[pair[1]][r];
            column[pair[0]][r] = a < b ? a : b;
            column[pair[1]][r] = a < b ? b : a;
        }
    for (int r = 0; r < COUNT; r++)
        for (int c = 0; c < 8; c++) out[8 * r + c] = column[c][r];
}
}  // namespace

extern "C" void kern(const int* x, int* out, int n) {
    int r = 0;
    for (; r + ROWS <= n; r += ROWS) sort<ROWS>(x + 8L * r, out + 8L * r);
    for (; r < n; r++) sort<1>(x + 8L * r, out + 8L * r);
}
