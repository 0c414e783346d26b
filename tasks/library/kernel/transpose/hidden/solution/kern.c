/* In tiles, so that a line of the cache is used up before it is thrown out. */
#define TILE 16

void kern(const float* restrict a, float* restrict out, int n, int m) {
    for (int i = 0; i < n; i += TILE)
        for (int j = 0; j < m; j += TILE) {
            if (i + TILE > n || j + TILE > m) {
                for (int y = i; y < n && y < i + TILE; y++)
                    for (int x = j; x < m && x < j + TILE; x++) out[(long)x * n + y] = a[(long)y * m + x];
                continue;
            }
            float tile[TILE][TILE];
            for (int y = 0; y < TILE; y++)
                for (int x = 0; x < TILE; x++) tile[x][y] = a[(long)(i + y) * m + j + x];
            for (int x = 0; x < TILE; x++)
                for (int y = 0; y < TILE; y++) out[(long)(j + x) * n + i + y] = tile[x][y];
        }
}
