/* Is an output right? And if not, what does it look like? */

struct difference {
    size_t wrong, unwritten, total; /* elements */
    double worst;                   /* the largest error, in units of the output's root mean square */
    int stale, constant, varied, copied;
};

/* Memory that nobody has written yet: NaN for floating point, an unlikely pattern for whole numbers. */
static int poison_byte(enum dtype type) { return type <= F64 ? 0xFF : 0xA5; }

static double root_mean_square(const void *data, size_t n, enum dtype type) {
    double sum = 0;
    size_t finite = 0;
    for (size_t i = 0; i < n; i++) {
        double v = get(data, i, type);
        if (isfinite(v)) sum += v * v, finite++;
    }
    return finite ? sqrt(sum / (double)finite) : 0;
}

static int all_equal(const char *data, size_t n, size_t item) {
    return n < 2 || !memcmp(data, data + item, (n - 1) * item);
}

/* NaN is right only where NaN is expected, an infinity only where the same is. */
static int close_enough(double got, double want, double rtol, double absolute, double rms, double *worst) {
    if (isnan(want) || isnan(got)) return isnan(want) && isnan(got);
    if (isinf(want) || isinf(got)) return want == got;
    double error = fabs(got - want), relative = rms > 0 ? error / rms : error;
    if (relative > *worst) *worst = relative;
    return error <= rtol * fabs(want) + absolute;
}

static void compare(struct difference *d, const char *got, const char *want, size_t n, enum dtype type, double rtol,
                    double atol) {
    size_t item = (size_t)ITEM[type];
    char poison[8];
    double rms = type <= F64 ? root_mean_square(want, n, type) : 0;
    memset(poison, poison_byte(type), sizeof poison);
    d->total += n;
    for (size_t i = 0; i < n; i++) {
        const char *g = got + i * item, *w = want + i * item;
        if (!memcmp(g, w, item)) continue;
        int good = type <= F64 && close_enough(get(got, i, type), get(want, i, type), rtol, atol * rms, rms, &d->worst);
        if (good) continue;
        d->wrong++;
        if (type > F64) d->worst = INFINITY;
        if (!memcmp(g, poison, item)) d->unwritten++;
        else if (type <= F64 && !isfinite(get(got, i, type))) d->worst = INFINITY;
    }
    d->constant &= all_equal(got, n, item);
    d->varied |= !all_equal(want, n, item);
}
