/* Fresh input data: every trial and every timed call gets its own. Values stay inside [low, high] of the argument. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum dtype { F32, F64, I8, U8, I16, U16, I32, U32, I64, U64 };
enum kind { VALUES, SORTED, INDEX, OFFSETS, TEXT };
enum dist { UNIFORM, ZEROS_ONES, CANCEL, WIDE_RANGE, CONSTANT, SPECIAL };

static const int ITEM[] = {4, 8, 1, 1, 2, 2, 4, 4, 8, 8};
static uint64_t random_state;

static uint64_t random_bits(void) { /* splitmix64 */
    uint64_t z = (random_state += 0x9E3779B97F4A7C15ull);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
}

static double unit(void) { return (double)(random_bits() >> 11) * 0x1p-53; }

static void put(void *data, size_t i, enum dtype type, double v) {
    switch (type) {
    case F32: ((float *)data)[i] = (float)v; break;
    case F64: ((double *)data)[i] = v; break;
    case I8: case U8: ((uint8_t *)data)[i] = (uint8_t)(int64_t)v; break;
    case I16: case U16: ((uint16_t *)data)[i] = (uint16_t)(int64_t)v; break;
    case I32: case U32: ((uint32_t *)data)[i] = (uint32_t)(int64_t)v; break;
    default: ((uint64_t *)data)[i] = (uint64_t)(int64_t)v;
    }
}

static double get(const void *data, size_t i, enum dtype type) {
    switch (type) {
    case F32: return ((const float *)data)[i];
    case F64: return ((const double *)data)[i];
    case I8: return ((const int8_t *)data)[i];
    case U8: return ((const uint8_t *)data)[i];
    case I16: return ((const int16_t *)data)[i];
    case U16: return ((const uint16_t *)data)[i];
    case I32: return ((const int32_t *)data)[i];
    case U32: return ((const uint32_t *)data)[i];
    case I64: return (double)((const int64_t *)data)[i];
    default: return (double)((const uint64_t *)data)[i];
    }
}

static void default_range(enum dtype type, double *low, double *high) {
    static const double lows[] = {-1, -1, -100, 0, -1000, 0, -1000, 0, -1000, 0};
    static const double highs[] = {1, 1, 100, 255, 1000, 2000, 1000, 2000, 1000, 2000};
    if (isnan(*low)) *low = lows[type] < *high || isnan(*high) ? lows[type] : *high - 1;
    if (isnan(*high)) *high = highs[type] > *low ? highs[type] : *low + 1;
}

/* Magnitudes over six decades, with the signs that the range has. */
static double wide(double low, double high) {
    double scale = low < 0 && (high <= 0 || unit() < 0.5) ? low : high;
    double floor = low > 0 ? low : high < 0 ? high : 0;
    double v = scale * exp2(-20 * unit());
    return floor > 0 && v < floor ? floor : floor < 0 && v > floor ? floor : v;
}

static double draw(enum dist dist, int whole, double low, double high, double before, size_t i) {
    double both = low <= 0 && high >= 1, v;
    double even = whole ? floor(low + (high - low + 1) * unit()) : low + (high - low) * unit();
    switch (dist) {
    case ZEROS_ONES: return random_bits() & 1 ? (both ? 1 : high) : (both ? 0 : low);
    case WIDE_RANGE: v = wide(low, high); return whole ? rint(v) : v;
    case CANCEL:
        if (whole || low >= 0) return even;
        v = i & 1 ? -before + 1e-3 * (high - low) * (unit() - 0.5) : high * (0.5 + 0.5 * unit());
        return v < low ? low : v > high ? high : v;
    case CONSTANT: return i ? before : even;
    case SPECIAL:
        v = unit();
        if (whole) return v < 0.01 ? low : v < 0.02 ? high : even;
        return v < 0.004 ? NAN : v < 0.008 ? INFINITY : v < 0.012 ? -INFINITY : even;
    default: return even;
    }
}

static enum dtype sort_type;

static int ascending(const void *a, const void *b) {
    double x = get(a, 0, sort_type), y = get(b, 0, sort_type);
    return x < y ? -1 : x > y;
}

static void generate(void *data, size_t n, enum dtype type, enum kind kind, enum dist dist, double low, double high,
                     double below, const char *alphabet) {
    size_t letters = strlen(alphabet);
    double before = 0;
    if (kind == TEXT) {
        if (dist == CONSTANT) letters = 1;
        if (dist == ZEROS_ONES && letters > 2) letters = 2;
        for (size_t i = 0; i < n; i++) put(data, i, type, (unsigned char)alphabet[random_bits() % letters]);
        return;
    }
    if (kind == INDEX || kind == OFFSETS) {
        low = 0;
        high = kind == INDEX ? below - 1 : below;
        for (size_t i = 0; i < n; i++) put(data, i, type, floor((high + 1) * unit()));
    } else {
        default_range(type, &low, &high);
        for (size_t i = 0; i < n; i++) put(data, i, type, before = draw(dist, type > F64, low, high, before, i));
    }
    if (kind == OFFSETS || kind == SORTED) {
        sort_type = type;
        qsort(data, n, (size_t)ITEM[type], ascending);
    }
    if (kind == OFFSETS) {
        put(data, 0, type, 0);
        put(data, n - 1, type, below);
    }
}
