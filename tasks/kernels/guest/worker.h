/* A process that holds one kernel and nothing else: no files, no privileges, no system calls beyond a few. */
#include <dlfcn.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MAX_ARGS 16
#define PAGE 4096ul
#define ASK_FD 3
#define DONE_FD 4
#define NOBODY 65534
#define LOADED 'L'
#define NOT_LOADED 'N'
#define DONE 'D'

#if defined(__x86_64__)
#define MACHINE AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define MACHINE AUDIT_ARCH_AARCH64
#endif

struct request {
    uint64_t pointers[MAX_ARGS]; /* addresses in the worker, one per parameter */
    double scalars[MAX_ARGS];    /* whole numbers below 2^53 */
};

typedef void (*caller)(void *function, char **pointers, const double *scalars);

#define LOAD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define GIVE(what) BPF_STMT(BPF_RET | BPF_K, what)
#define IS(value, yes, no) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, yes, no)
#define HAS(bits, yes, no) BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, bits, yes, no)
#define OK SECCOMP_RET_ALLOW
#define KILL SECCOMP_RET_KILL_PROCESS
#define ALLOW(call) IS(__NR_##call, 0, 1), GIVE(OK)
#define ALLOW_FD(call, fd) IS(__NR_##call, 0, 4), LOAD(args[0]), IS(fd, 0, 1), GIVE(OK), GIVE(KILL)

/* Memory may be had, code may not be made; two pipe ends may be used; all else ends the process. */
static int lock_down(void) {
    struct sock_filter code[] = {
        LOAD(arch), IS(MACHINE, 1, 0), GIVE(KILL), LOAD(nr),
        ALLOW_FD(read, ASK_FD), ALLOW_FD(write, DONE_FD),
        ALLOW(brk), ALLOW(munmap), ALLOW(mremap), ALLOW(madvise), ALLOW(exit_group), ALLOW(rt_sigreturn),
        IS(__NR_mmap, 0, 6), LOAD(args[2]), HAS(PROT_EXEC, 3, 0), LOAD(args[3]), HAS(MAP_ANONYMOUS, 0, 1), GIVE(OK),
        GIVE(KILL), GIVE(KILL),
    };
    struct sock_fprog filter = {sizeof code / sizeof *code, code};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter);
}

static void set_limit(int what, rlim_t value) {
    struct rlimit limit = {value, value};
    setrlimit(what, &limit);
}

static void say(char what) {
    if (write(DONE_FD, &what, 1) != 1) _exit(3);
}

/* The arena's slots, each between two pages that cannot be touched. */
static char *map_slots(int arena, const size_t *slots, int n, char **starts) {
    size_t total = PAGE, at = 0;
    for (int i = 0; i < n; i++) total += slots[i] + PAGE;
    char *base = mmap(NULL, total, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0), *next = base + PAGE;
    if (base == MAP_FAILED) return NULL;
    for (int i = 0; i < n; i++) {
        starts[i] = next;
        if (slots[i] && mmap(next, slots[i], PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_POPULATE, arena,
                             (off_t)at) == MAP_FAILED)
            return NULL;
        at += slots[i];
        next += slots[i] + PAGE;
    }
    return base;
}

/* Never returns. The request's pointers are offsets from the start of each slot. */
static void work(const char *library, const char *name, int arena, const size_t *slots, int n, caller call,
                 void *builtin) {
    char *starts[MAX_ARGS], *pointers[MAX_ARGS];
    struct request ask;
    void *function = builtin;
    if (!map_slots(arena, slots, n, starts)) _exit(4);
    /* Where the sandbox knows one user only this fails; the filter below is the wall, and this a second one. */
    if (getuid() == 0 && !setgroups(0, NULL) && !setresgid(NOBODY, NOBODY, NOBODY)) (void)!setresuid(NOBODY, NOBODY, NOBODY);
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* also if the runner is killed while this one is stopped */
    set_limit(RLIMIT_CORE, 0);
    set_limit(RLIMIT_FSIZE, 0);
    set_limit(RLIMIT_AS, 1ul << 30);
    if (!builtin) {
        void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
        function = handle ? dlsym(handle, name) : NULL;
    }
    for (int fd = 0; fd < 64; fd++)
        if (fd != ASK_FD && fd != DONE_FD) close(fd);
    if (!function) {
        say(NOT_LOADED);
        _exit(6);
    }
    if (lock_down()) _exit(7);
    say(LOADED);
    for (;;) {
        if (read(ASK_FD, &ask, sizeof ask) != (ssize_t)sizeof ask) _exit(0);
        for (int i = 0; i < n; i++) pointers[i] = starts[i] + ask.pointers[i];
        call(function, pointers, ask.scalars);
        say(DONE);
    }
}
