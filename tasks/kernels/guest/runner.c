/* Calls kernels in worker processes, checks every output, and reads the clocks of the workers from outside.
 *
 * The job comes on stdin (see build.py), one JSON object per line goes to stdout, which no worker can reach. A worker's
 * processor time is what its clock shows between two of its answers: work done behind an answer counts for the next.
 */
#define _GNU_SOURCE
#include "generate.h"
#include "worker.h"
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <sys/stat.h>
#include "compare.h"
#include "glue.h"

#define CANARY 0xC3
#define CANARY_BYTES 4096ul
#define WARM_UP 2

enum who { CANDIDATE, BASELINE, CONTROL, EXPERT, REFERENCE, NOTHING, WORKERS };
enum role { SCALAR, IN, OUT, INOUT };
enum placement { ALIGNED, AT_END, AT_START };
enum outcome { FINE, CRASHED, TIMED_OUT, CHATTER };

static const char *NAMES[] = {"candidate", "baseline", "control", "expert", "reference", "nothing"};

struct parameter {
    int role, dtype, kind;
    double rtol, atol;
    size_t slot;
    char alphabet[80];
    char *input, *expected, *earlier; /* the runner's own copies */
};

struct worker {
    pid_t pid;
    int ask, done, status;
    clockid_t clock;
    int64_t cpu_before;
};

static struct parameter params[MAX_ARGS];
static struct worker workers[WORKERS];
static size_t slots[MAX_ARGS], offsets[MAX_ARGS], placed[MAX_ARGS];
static int n_params, has_earlier, arena_fd;
static char *arena; /* of all workers: equal pages, equal caches; whoever is not called is stopped */
static int64_t timeout_ns;
static double values[64][MAX_ARGS][4]; /* per shape and parameter: count or value, low, high, below */

static void do_nothing(void) {}

static void broken(const char *what) {
    printf("{\"k\":\"broken\",\"what\":\"%s: %s\"}\n", what, strerror(errno));
    exit(0);
}

static int64_t now(clockid_t clock) {
    struct timespec t = {0, 0};
    syscall(SYS_clock_gettime, clock, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void end(struct worker *w) {
    if (w->pid && !kill(w->pid, SIGKILL)) waitpid(w->pid, NULL, 0);
    if (w->pid) close(w->ask), close(w->done);
    w->pid = 0;
}

static void end_workers(void) {
    for (int i = 0; i < WORKERS; i++) end(&workers[i]);
}

static enum outcome ended(struct worker *w) {
    w->pid = 0;
    return CRASHED;
}

/* Halts the worker, so that it can neither look at what others leave nor go on behind its answer. */
static enum outcome halt(struct worker *w) {
    kill(w->pid, SIGSTOP);
    waitpid(w->pid, &w->status, WUNTRACED);
    return WIFSTOPPED(w->status) ? FINE : ended(w);
}

/* One byte from the worker, or why there is none. */
static enum outcome await(struct worker *w, char wanted) {
    struct pollfd ready = {w->done, POLLIN, 0};
    char got = 0;
    int found;
    do found = poll(&ready, 1, (int)(timeout_ns / 1000000)); while (found < 0 && errno == EINTR);
    if (found == 0) return TIMED_OUT;
    if (read(w->done, &got, 1) == 1) {
        enum outcome outcome = halt(w);
        return outcome != FINE ? outcome : got == wanted && !poll(&ready, 1, 0) ? FINE : CHATTER;
    }
    waitpid(w->pid, &w->status, 0);
    return ended(w);
}

/* A copy on pages of memory of its own: where its code lies makes the same program up to a tenth slower or faster. */
static void copy(const char *path, const char *to) {
    size_t room = (1 + random_bits() % 64) * PAGE, got;
    char *filler = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    char block[4096];
    FILE *in = fopen(path, "re"), *out = fopen(to, "we");
    if (filler == MAP_FAILED || !in || !out) broken("copy");
    while ((got = fread(block, 1, sizeof block, in)) > 0)
        if (fwrite(block, 1, got, out) != got) broken("copy");
    if (ferror(in) || fclose(out) || chmod(to, 0755)) broken("copy");
    fclose(in);
    munmap(filler, room);
}

static void start(enum who who, const char *path, const char *function) {
    struct worker *w = &workers[who];
    char own[300];
    int ask[2], done[2];
    snprintf(own, sizeof own, "%s.%d.%s", path, (int)getpid(), NAMES[who]);
    if (*path) copy(path, own);
    if (pipe2(ask, O_CLOEXEC) || pipe2(done, O_CLOEXEC)) broken("set-up");
    fflush(stdout);
    if ((w->pid = fork()) < 0) broken("fork");
    if (w->pid == 0) {
        memset(workers, 0, sizeof workers); /* it ends nobody */
        int high = fcntl(arena_fd, F_DUPFD, 100), null = open("/dev/null", O_RDWR);
        int ask_end = fcntl(ask[0], F_DUPFD, 100), done_end = fcntl(done[1], F_DUPFD, 100);
        for (int fd = 0; fd < 3; fd++) dup2(null, fd);
        dup2(ask_end, ASK_FD);
        dup2(done_end, DONE_FD);
        for (int fd = 5; fd < 64; fd++) close(fd);
        close(ask_end);
        close(done_end);
        work(own, function, high, slots, n_params, who == NOTHING ? call_nothing : call_kernel,
             who == NOTHING ? (void *)do_nothing : NULL);
    }
    close(ask[0]);
    close(done[1]);
    w->ask = ask[1];
    w->done = done[0];
    if (clock_getcpuclockid(w->pid, &w->clock)) broken("clock");
    enum outcome outcome = await(w, LOADED);
    if (*path) unlink(own);
    if (outcome != FINE) {
        printf("{\"k\":\"load\",\"who\":\"%s\"}\n", NAMES[who]);
        exit(0);
    }
    w->cpu_before = now(w->clock);
}

static int is_input(const struct parameter *p) { return p->role == IN || p->role == INOUT; }
static int is_output(const struct parameter *p) { return p->role == OUT || p->role == INOUT; }
static size_t count_of(int shape, int i) { return (size_t)values[shape][i][0]; }
static size_t bytes_of(int shape, int i) { return count_of(shape, i) * (size_t)ITEM[params[i].dtype]; }

static void fresh_inputs(int shape, enum dist dist) {
    for (int i = 0; i < n_params; i++) {
        struct parameter *p = &params[i];
        const double *v = values[shape][i];
        if (is_input(p))
            generate(p->input, count_of(shape, i), p->dtype, p->kind, dist, v[1], v[2], v[3], p->alphabet);
    }
}

static size_t place_of(int shape, int i, enum placement placement) {
    size_t bytes = bytes_of(shape, i), room = slots[i] - bytes;
    return placement == AT_START ? 0 : placement == AT_END ? room : room & ~63ul;
}

/* Canaries in the slot before (side 0) and behind the data; returns whether they are as they were. */
static int canaries(char *slot, size_t size, size_t at, size_t bytes, int set) {
    size_t before = at < CANARY_BYTES ? at : CANARY_BYTES, behind = size - at - bytes;
    if (behind > CANARY_BYTES) behind = CANARY_BYTES;
    char *sides[] = {slot + at - before, slot + at + bytes};
    size_t lengths[] = {before, behind};
    for (int s = 0; s < 2; s++) {
        if (set) memset(sides[s], CANARY, lengths[s]);
        for (size_t i = 0; i < lengths[s]; i++)
            if ((unsigned char)sides[s][i] != CANARY) return 0;
    }
    return 1;
}

static enum outcome call(enum who who, int shape, enum placement placement, int64_t *cpu, int64_t *wall) {
    struct worker *w = &workers[who];
    struct request ask = {{0}, {0}};
    for (int i = 0; i < n_params; i++) {
        struct parameter *p = &params[i];
        ask.scalars[i] = values[shape][i][0];
        if (p->role == SCALAR) continue;
        size_t bytes = bytes_of(shape, i);
        char *slot = arena + offsets[i];
        ask.pointers[i] = placed[i] = place_of(shape, i, placement);
        canaries(slot, slots[i], placed[i], bytes, 1);
        if (is_input(p)) memcpy(slot + placed[i], p->input, bytes);
        else memset(slot + placed[i], poison_byte(p->dtype), bytes);
    }
    int64_t begun = now(CLOCK_MONOTONIC);
    kill(w->pid, SIGCONT);
    if (write(w->ask, &ask, sizeof ask) != (ssize_t)sizeof ask) {
        waitpid(w->pid, &w->status, 0);
        return ended(w);
    }
    enum outcome outcome = await(w, DONE);
    *wall = now(CLOCK_MONOTONIC) - begun;
    int64_t cpu_now = w->pid ? now(w->clock) : 0;
    *cpu = cpu_now - w->cpu_before;
    w->cpu_before = cpu_now;
    return outcome;
}

static void expect(int shape, enum placement placement) {
    int64_t cpu, wall;
    if (call(REFERENCE, shape, placement, &cpu, &wall) != FINE) {
        printf("{\"k\":\"broken\",\"what\":\"the reference crashed\"}\n");
        exit(0);
    }
    for (int i = 0; i < n_params; i++)
        if (is_output(&params[i]))
            memcpy(params[i].expected, arena + offsets[i] + placed[i], bytes_of(shape, i));
}

static void report(int shape, int dist, int timed, enum outcome outcome, const struct difference *d, int mutated,
                   int outside) {
    const struct worker *w = &workers[CANDIDATE];
    int signal = outcome == CRASHED && WIFSIGNALED(w->status) ? WTERMSIG(w->status) : 0;
    double worst = isfinite(d->worst) ? d->worst : 1e300;
    printf("{\"k\":\"check\",\"shape\":%d,\"dist\":%d,\"timed\":%d,\"outcome\":%d,\"signal\":%d,\"wrong\":%zu,"
           "\"unwritten\":%zu,\"total\":%zu,\"worst\":%.6g,\"stale\":%d,\"constant\":%d,\"copied\":%d,\"mutated\":%d,"
           "\"outside\":%d}\n",
           shape, dist, timed, outcome, signal, d->wrong, d->unwritten, d->total, worst, d->stale,
           d->constant && d->varied, d->copied, mutated, outside);
}

/* Compares what the candidate left in its arena with what was expected of it. Returns whether all is well. */
static int check(int shape, int dist, int timed, enum outcome outcome) {
    struct difference d = {0, 0, 0, 0, has_earlier, 1, 0, 0};
    int mutated = 0, outside = 0;
    for (int i = 0; i < n_params && outcome == FINE; i++) {
        struct parameter *p = &params[i];
        size_t bytes = bytes_of(shape, i);
        char *slot = arena + offsets[i], *got = slot + placed[i];
        if (p->role == SCALAR) continue;
        outside |= !canaries(slot, slots[i], placed[i], bytes, 0);
        if (p->role == IN) mutated |= memcmp(got, p->input, bytes) != 0;
        if (!is_output(p)) continue;
        compare(&d, got, p->expected, count_of(shape, i), p->dtype, p->rtol, p->atol);
        d.stale &= !memcmp(got, p->earlier, bytes);
        for (int j = 0; j < n_params; j++)
            if (is_input(&params[j]) && bytes_of(shape, j) == bytes) d.copied |= !memcmp(got, params[j].input, bytes);
        memcpy(p->earlier, got, bytes);
    }
    has_earlier = 1;
    int good = outcome == FINE && !d.wrong && !mutated && !outside;
    if (!good || !timed) report(shape, dist, timed, outcome, &d, mutated, outside);
    return good;
}

static int trial(int shape, int dist, enum placement placement) {
    int64_t cpu, wall;
    fresh_inputs(shape, dist);
    expect(shape, placement);
    return check(shape, dist, 0, call(CANDIDATE, shape, placement, &cpu, &wall));
}

static int timed_round(int shape, int dist, int set, int round) {
    enum who order[] = {CANDIDATE, BASELINE, CONTROL, EXPERT, NOTHING};
    int n = sizeof order / sizeof *order, good = 1;
    int64_t cpu, wall;
    fresh_inputs(shape, dist);
    expect(shape, ALIGNED);
    for (int i = n - 1; i > 0; i--) {
        int j = (int)(random_bits() % (uint64_t)(i + 1));
        enum who other = order[i];
        order[i] = order[j];
        order[j] = other;
    }
    for (int i = 0; i < n && good; i++) {
        if (!workers[order[i]].pid) continue;
        enum outcome outcome = call(order[i], shape, ALIGNED, &cpu, &wall);
        if (order[i] == CANDIDATE) good = check(shape, dist, 1, outcome);
        else if (outcome != FINE) broken(NAMES[order[i]]);
        if (good && round >= 0)
            printf("{\"k\":\"time\",\"shape\":%d,\"set\":%d,\"round\":%d,\"who\":\"%s\",\"cpu\":%" PRId64 ",\"wall\":%" PRId64 "}\n",
                   shape, set, round, NAMES[order[i]], cpu, wall);
    }
    return good;
}

static void need(int got, int wanted) {
    if (got != wanted) errno = EINVAL, broken("the job cannot be read");
}

static void read_parameters(void) {
    size_t at = 0;
    need(scanf("%d", &n_params), 1);
    for (int i = 0; i < n_params; i++) {
        struct parameter *p = &params[i];
        need(scanf("%d %d %d %lf %lf %zu %79s", &p->role, &p->dtype, &p->kind, &p->rtol, &p->atol, &p->slot, p->alphabet),
             7);
        slots[i] = p->slot;
        offsets[i] = at;
        at += p->slot;
        if (p->slot && (!(p->input = malloc(p->slot)) || !(p->expected = malloc(p->slot)) ||
                        !(p->earlier = calloc(1, p->slot))))
            broken("memory");
    }
}

int main(void) {
    char function[128], paths[REFERENCE + 1][256];
    int core, n_shapes, n_steps, shape, dist, placement, rounds;
    prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
    signal(SIGPIPE, SIG_IGN);
    atexit(end_workers);
    need(scanf("%" SCNu64 " %d %" SCNd64 " %127s", &random_state, &core, &timeout_ns, function), 4);
    for (int i = 0; i <= REFERENCE; i++) need(scanf("%255s", paths[i]), 1);
    read_parameters();
    need(scanf("%d", &n_shapes), 1);
    for (int s = 0; s < n_shapes; s++)
        for (int i = 0; i < n_params; i++)
            for (int k = 0; k < 4; k++) need(scanf("%lf", &values[s][i][k]), 1);
    size_t total = 0;
    for (int i = 0; i < n_params; i++) total += slots[i];
    if ((arena_fd = memfd_create("arena", MFD_CLOEXEC)) < 0 || ftruncate(arena_fd, (off_t)total)) broken("memory");
    arena = mmap(NULL, total, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, arena_fd, 0);
    if (arena == MAP_FAILED) broken("memory");
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    if (sched_setaffinity(0, sizeof one, &one)) broken("the processor core");
    for (int i = 0; i <= REFERENCE; i++)
        if (strcmp(paths[i], "-")) start(i, paths[i], function);
    start(NOTHING, "", "");
    need(scanf("%d", &n_steps), 1);
    for (int step = 0; step < n_steps; step++) {
        need(scanf("%d %d %d %d", &shape, &dist, &placement, &rounds), 4);
        for (int i = 0; i < REFERENCE && rounds; i++)
            if (workers[i].pid) end(&workers[i]), start(i, paths[i], function);
        for (int round = -WARM_UP; round < rounds && rounds; round++)
            if (!timed_round(shape, dist, step, round)) return 0;
        if (!rounds && !trial(shape, dist, placement)) return 0;
    }
    printf("{\"k\":\"end\"}\n");
    return 0;
}
