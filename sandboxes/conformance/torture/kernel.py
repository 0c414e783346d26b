"""System calls that a sandbox has no business with: each must fail, for the user and for root inside."""

from __future__ import annotations

from forkgym.sandboxes.base import Sandbox
from forkgym.sandboxes.conformance.torture.attack import attack, equal, python, true

# Calls by the C library's name where it has one, else by number. Prints the names of those that worked.
_PROBE = """
import ctypes, os, platform, signal, sys
libc = ctypes.CDLL(None, use_errno=True)
x86 = platform.machine() == "x86_64"
NULL, P = None, ctypes.c_void_p
buffer = ctypes.create_string_buffer(4096)

def number(x, arm):
    return x if x86 else arm

def attempt(name, function, *arguments):
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        signal.alarm(5)
        os._exit(0 if function(*arguments) != -1 else 1)
    if os.waitpid(child, 0)[1] == 0:
        print(name)

def call(name, *arguments):
    attempt(name, getattr(libc, name), *arguments)

def raw(name, x, arm, *arguments):
    attempt(name, libc.syscall, number(x, arm), *arguments)
"""


def _none_works(box: Sandbox, calls: str) -> None:
    equal("calls that worked", python(box, _PROBE + calls), b"")
    result = box.exec(["python3", "-c", _PROBE + calls], user="root", timeout=20)
    equal("calls that worked for root inside", (result.exit_code, result.stdout), (0, b""))


@attack()
def mount_calls(box: Sandbox) -> None:
    """No file system is mounted, moved, unmounted or reconfigured, through the old calls or the new."""
    _none_works(
        box,
        """
call("mount", b"none", b"/mnt", b"tmpfs", 0, NULL)
call("mount", b"/", b"/mnt", NULL, 4096, NULL)
call("mount", NULL, b"/", NULL, 32 | 4096, NULL)
call("umount2", b"/proc", 2)
raw("pivot_root", 155, 41, b".", b".")
raw("open_tree", 428, 428, -100, b"/", 1)
raw("fsopen", 430, 430, b"tmpfs", 0)
raw("fspick", 433, 433, -100, b"/", 0)
raw("mount_setattr", 442, 442, -100, b"/", 0, buffer, 32)
call("swapon", b"/etc/passwd", 0)
""",
    )


@attack()
def namespace_calls(box: Sandbox) -> None:
    """No namespace is made or entered."""
    _none_works(
        box,
        """
for flag in (0x10000000, 0x20000, 0x20000000, 0x40000000, 0x8000000, 0x4000000, 0x2000000):
    call("unshare", flag)
    raw("clone", 56, 220, flag | 17, 0, 0, 0, 0)
for name in ("user", "mnt", "pid", "net", "ipc", "uts"):
    call("setns", os.open(f"/proc/self/ns/{name}", os.O_RDONLY), 0)
""",
    )


@attack()
def kernel_calls(box: Sandbox) -> None:
    """Modules, kexec, reboot, accounting, quotas and the kernel's log are closed."""
    _none_works(
        box,
        """
raw("init_module", 175, 105, buffer, 10, b"")
raw("finit_module", 313, 273, 0, b"", 0)
raw("delete_module", 176, 106, b"none", 0)
raw("kexec_load", 246, 104, 0, 0, 0, 0)
call("reboot", 0x89abcdef)
call("acct", b"/tmp/acct")
raw("quotactl", 179, 60, 0x800001 << 8, 0, 0, 0)
call("klogctl", 3, buffer, 100)
call("sethostname", b"other", 5)
call("setdomainname", b"other", 5)
""",
    )


@attack()
def clock_calls(box: Sandbox) -> None:
    """The machine's clock cannot be set or tuned."""
    _none_works(
        box,
        """
zero = (ctypes.c_long * 2)(1, 0)
call("settimeofday", zero, NULL)
call("clock_settime", 0, zero)
tune = (ctypes.c_long * 32)(); tune[0] = 0x4000
call("adjtimex", tune)
raw("clock_adjtime", 305, 266, 0, tune)
""",
    )


@attack()
def keyring_calls(box: Sandbox) -> None:
    """The kernel's key rings, which no namespace separates, are closed."""
    _none_works(
        box,
        """
raw("add_key", 248, 217, b"user", b"torture", b"x", 1, -3)
raw("request_key", 249, 218, b"user", b"torture", NULL, 0)
raw("keyctl", 250, 219, 0, -3, 0)
raw("keyctl_join", 250, 219, 1, b"torture")
""",
    )


@attack()
def tracing_calls(box: Sandbox) -> None:
    """Neither the first process nor a neighbour of one's own can be traced or read into."""
    _none_works(
        box,
        """
iov = (ctypes.c_void_p * 2)(ctypes.addressof(buffer), 16)
call("ptrace", 16, 1, NULL, NULL)
call("ptrace", 0x4206, 1, NULL, NULL)
call("process_vm_readv", 1, iov, 1, iov, 1, 0)
call("process_vm_writev", 1, iov, 1, iov, 1, 0)
raw("kcmp", 312, 272, 1, os.getpid(), 0, 0, 0)
raw("pidfd_getfd", 438, 438, os.pidfd_open(1), 0, 0)
""",
    )


@attack()
def risky_calls(box: Sandbox) -> None:
    """The parts of the kernel with the worst record are out of reach."""
    _none_works(
        box,
        """
raw("bpf", 321, 280, 0, buffer, 64)
raw("io_uring_setup", 425, 425, 8, buffer)
raw("perf_event_open", 298, 241, buffer, 0, -1, -1, 0)
raw("userfaultfd", 323, 282, 0)
raw("open_by_handle_at", 304, 265, -100, buffer, 0)
if x86:
    call("iopl", 3)
    call("ioperm", 0x80, 1, 1)
    libc.syscall(0x40000000 + 39) != -1 and print("x32")
""",
    )


@attack()
def terminal_injection(box: Sandbox) -> None:
    """Characters cannot be pushed into a terminal that somebody else reads."""
    probe = (
        "import fcntl, os, pty\nmaster, slave = pty.openpty()\n"
        "try: fcntl.ioctl(slave, 0x5412, b'x'); print('pushed')\nexcept OSError: print('held')"
    )
    equal("TIOCSTI", python(box, probe), b"held\n")


@attack()
def foreign_signals(box: Sandbox) -> None:
    """Signals by number reach only one's own processes: the host's ids mean nothing inside."""
    host = ["kill", "-0", "1000000"]
    true("a process of the host was found", not box.exec(host).ok)
    count = python(
        box, "import os\nn = 0\nfor p in range(2, 40000):\n try: os.kill(p, 0); n += 1\n except OSError: pass\nprint(n)"
    )
    true(f"{count!r} processes can be signalled", int(count) <= 4)


@attack()
def dropping_the_filter(box: Sandbox) -> None:
    """Privileges once given up cannot be taken back."""
    probe = """
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, PR_CAPBSET_READ, PR_SET_SECUREBITS = 38, 22, 23, 28
attempt("no_new_privs off", libc.prctl, PR_SET_NO_NEW_PRIVS, 0, 0, 0, 0)
attempt("securebits", libc.prctl, PR_SET_SECUREBITS, 0, 0, 0, 0)
attempt("ambient", libc.prctl, 47, 2, 21, 0, 0)
for function in ("setuid", "setgid", "setresuid"):
    attempt(function, getattr(libc, function), 0, 0, 0)
if any(libc.prctl(PR_CAPBSET_READ, number, 0, 0, 0) == 1 for number in range(41)):
    print("a capability in the bounding set")
"""
    equal("taken back", python(box, _PROBE + probe), b"")


CASES = (
    mount_calls,
    namespace_calls,
    kernel_calls,
    clock_calls,
    keyring_calls,
    tracing_calls,
    risky_calls,
    terminal_injection,
    foreign_signals,
    dropping_the_filter,
)
