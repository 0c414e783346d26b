/* Eight bytes per step by eight tables: what a byte does to the remainder after 0 to 7 further bytes. */
#include <stdint.h>
#include <string.h>

void kern(const uint8_t* restrict x, uint32_t* restrict out, int n) {
    uint32_t table[8][256], crc = 0xFFFFFFFFu;
    for (uint32_t b = 0; b < 256; b++) {
        uint32_t v = b;
        for (int bit = 0; bit < 8; bit++) v = v >> 1 ^ (0xEDB88320u & -(v & 1));
        table[0][b] = v;
    }
    for (int t = 1; t < 8; t++)
        for (int b = 0; b < 256; b++) table[t][b] = table[t - 1][b] >> 8 ^ table[0][table[t - 1][b] & 255];
    int i = 0;
    for (; i + 8 <= n; i += 8) {
        uint32_t low, high;
        memcpy(&low, x + i, 4);
        memcpy(&high, x + i + 4, 4);
        low ^= crc;
        crc = table[7][low & 255] ^ table[6][low >> 8 & 255] ^ table[5][low >> 16 & 255] ^ table[4][low >> 24] ^
              table[3][high & 255] ^ table[2][high >> 8 & 255] ^ table[1][high >> 16 & 255] ^ table[0][high >> 24];
    }
    for (; i < n; i++) crc = crc >> 8 ^ table[0][(crc ^ x[i]) & 255];
    out[0] = ~crc;
}
