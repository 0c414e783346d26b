static float at(const float* a, int n, int x, int y, int z) {
    if (x < 0 || y < 0 || z < 0 || x >= n || y >= n || z >= n) return 0;
    return a[(z * n + y) * n + x];
}

void kern(const float* a, float* out, int n) {
    for (int x = 0; x < n; x++)
        for (int y = 0; y < n; y++)
            for (int z = 0; z < n; z++)
                out[(z * n + y) * n + x] = at(a, n, x - 1, y, z) + at(a, n, x + 1, y, z) + at(a, n, x, y - 1, z) +
                                           at(a, n, x, y + 1, z) + at(a, n, x, y, z - 1) + at(a, n, x, y, z + 1) -
                                           6 * at(a, n, x, y, z);
}
