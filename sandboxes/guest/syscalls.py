"""The Linux calls that Python has no function for, by ctypes. Failures raise ``OSError`` with the errno."""

from __future__ import annotations

import ctypes
import os
import platform
import struct

_X86 = platform.machine() == "x86_64"
# Numbers above 423 are the same on all architectures.
_NUMBERS = {
    "clone": 56 if _X86 else 220,
    "capset": 126 if _X86 else 91,
    "pivot_root": 155 if _X86 else 41,
    "mount": 165 if _X86 else 40,
    "umount2": 166 if _X86 else 39,
    "unshare": 272 if _X86 else 97,
    "setns": 308 if _X86 else 268,
    "open_tree": 428,
    "move_mount": 429,
    "fsopen": 430,
    "fsconfig": 431,
    "fsmount": 432,
    "close_range": 436,
    "openat2": 437,
    "mount_setattr": 442,
}

CLONE_NEWNS, CLONE_NEWCGROUP, CLONE_NEWUTS, CLONE_NEWIPC = 0x20000, 0x2000000, 0x4000000, 0x8000000
CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x10000000, 0x20000000, 0x40000000
MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_BIND, MS_REC, MS_PRIVATE, MS_SLAVE = 2, 4, 8, 4096, 16384, 1 << 18, 1 << 19
MNT_DETACH = 2
AT_FDCWD, AT_EMPTY_PATH, AT_RECURSIVE = -100, 0x1000, 0x8000
OPEN_TREE_CLONE, OPEN_TREE_CLOEXEC = 1, os.O_CLOEXEC
MOVE_MOUNT_F_EMPTY_PATH, MOVE_MOUNT_T_EMPTY_PATH = 4, 0x40
ATTR_RDONLY, ATTR_NOSUID, ATTR_NODEV, ATTR_IDMAP = 1, 2, 4, 0x100000
RESOLVE_NO_MAGICLINKS, RESOLVE_IN_ROOT = 2, 0x10
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_NAME, PR_SET_SECCOMP = 1, 4, 15, 22
PR_CAPBSET_DROP, PR_SET_SECUREBITS, PR_SET_NO_NEW_PRIVS = 24, 28, 38
SECBIT_NO_SETUID_FIXUP = 1 << 2
LAST_CAPABILITY = 40

_FSCONFIG_SET_FLAG, _FSCONFIG_SET_STRING, _FSCONFIG_SET_FD, _FSCONFIG_CREATE = 0, 1, 5, 6
_libc = ctypes.CDLL(None, use_errno=True)
# Keeps the interpreter's lock: a raw clone must not return in the child with the lock released.
_locked_libc = ctypes.PyDLL(None, use_errno=True)


def _call(name: str, *arguments: object) -> int:
    converted = [os.fsencode(value) if isinstance(value, str) else value for value in arguments]
    about = ", ".join(value for value in arguments if isinstance(value, str) and value)
    return _check(_libc.syscall(_NUMBERS[name], *converted), f"{name}({about})")


def _check(result: int, name: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
    return result


def mount(source: str | None, target: str, kind: str | None, flags: int = 0, options: str | None = None) -> None:
    """mount(2)."""
    _call("mount", source, target, kind, ctypes.c_ulong(flags), options)


def umount(target: str) -> None:
    """Take the top mount at ``target`` away at once, its uses may last."""
    _call("umount2", target, MNT_DETACH)


def pivot_here() -> None:
    """Make the working directory, a mount, the root of every process of the mount namespace; drop the old root."""
    _call("pivot_root", ".", ".")
    umount(".")
    os.chdir("/")


def unshare(flags: int) -> None:
    """unshare(2)."""
    _call("unshare", flags)


def setns(fd: int, flags: int) -> None:
    """Enter the namespaces ``flags`` of the process behind the pidfd ``fd``."""
    _call("setns", fd, flags)


def clone_process(flags: int) -> int:
    """fork() with namespace flags; 0 in the child. Only for a process of one thread."""
    pid = _check(_locked_libc.syscall(_NUMBERS["clone"], ctypes.c_ulong(flags | 17), 0, 0, 0, 0), "clone")
    if pid == 0:
        ctypes.pythonapi.PyOS_AfterFork_Child()
    return pid


def open_tree(path: str, *, clone: bool = False, recursive: bool = False, directory: int = AT_FDCWD) -> int:
    """A descriptor of the mount at ``path``; with ``clone`` of a detached copy of it."""
    flags = OPEN_TREE_CLOEXEC | (OPEN_TREE_CLONE if clone else 0) | (AT_RECURSIVE if recursive else 0)
    return _call("open_tree", directory, path, flags | (0 if path else AT_EMPTY_PATH))


def move_mount(fd: int, target: str | int) -> None:
    """Attach the mount ``fd`` at ``target``, a path or a descriptor of one."""
    if isinstance(target, int):
        _call("move_mount", fd, "", target, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH)
    else:
        _call("move_mount", fd, "", AT_FDCWD, target, MOVE_MOUNT_F_EMPTY_PATH)


def mount_setattr(fd: int, *, set: int = 0, clear: int = 0, userns: int = 0, recursive: bool = False) -> None:
    """Change attributes of a mount. Setting read-only fails with EBUSY while anybody can write through it."""
    attributes = struct.pack("QQQQ", set, clear, 0, userns)
    flags = AT_EMPTY_PATH | (AT_RECURSIVE if recursive else 0)
    _call("mount_setattr", fd, "", flags, attributes, len(attributes))


def new_filesystem(kind: str, options: dict[str, str | int | None], lowers: list[int] | None = None) -> int:
    """A detached mount of a new file system; an ``int`` option is passed as a descriptor, ``None`` as a flag."""
    context = _call("fsopen", kind, 1)
    try:
        for lower in lowers or []:
            _call("fsconfig", context, _FSCONFIG_SET_FD, "lowerdir+", None, lower)
        for key, value in options.items():
            if isinstance(value, int):
                _call("fsconfig", context, _FSCONFIG_SET_FD, key, None, value)
            elif value is None:
                _call("fsconfig", context, _FSCONFIG_SET_FLAG, key, None, 0)
            else:
                _call("fsconfig", context, _FSCONFIG_SET_STRING, key, value, 0)
        _call("fsconfig", context, _FSCONFIG_CREATE, None, None, 0)
        return _call("fsmount", context, 1, 0)
    finally:
        os.close(context)


def openat2(path: str, flags: int, mode: int = 0, root: int | None = None) -> int:
    """Open without following the links of /proc that lead anywhere; with ``root``, as if that directory were "/"."""
    resolve = RESOLVE_NO_MAGICLINKS | (0 if root is None else RESOLVE_IN_ROOT)
    how = struct.pack("QQQ", flags | os.O_CLOEXEC, mode if flags & os.O_CREAT else 0, resolve)
    return _call("openat2", AT_FDCWD if root is None else root, path, how, len(how))


def prctl(option: int, *arguments: int) -> None:
    """prctl(2)."""
    padded = [ctypes.c_ulong(value) for value in (*arguments, 0, 0, 0, 0)[:4]]
    _check(_libc.prctl(option, *padded), f"prctl {option}")


def set_name(name: str) -> None:
    """The command name that ``ps`` shows."""
    _check(_libc.prctl(PR_SET_NAME, name.encode(), 0, 0, 0), "prctl name")


def set_fs_ids(user: int, group: int) -> None:
    """The ids that file access is judged by; they never fail, so there is nothing to check."""
    _libc.setfsgid(group)
    _libc.setfsuid(user)


def drop_bounding_set(keep: frozenset[int] = frozenset()) -> None:
    """No program started from here can gain capabilities other than ``keep``. Unknown numbers are skipped."""
    for capability in range(LAST_CAPABILITY + 1):
        if capability not in keep:
            _libc.prctl(PR_CAPBSET_DROP, ctypes.c_ulong(capability), 0, 0, 0)


def set_capabilities(keep: frozenset[int] = frozenset()) -> None:
    """Reduce the effective, permitted and inheritable sets to ``keep``."""
    mask = sum(1 << capability for capability in keep)
    low, high = mask & 0xFFFFFFFF, mask >> 32
    header = struct.pack("II", 0x20080522, 0)
    _call("capset", header, struct.pack("IIIIII", low, low, 0, high, high, 0))


def install_seccomp(program: bytes) -> None:
    """Install a classic BPF filter for this process and all it starts."""
    buffer = ctypes.create_string_buffer(program, len(program))
    descriptor = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(buffer))
    _check(_libc.prctl(PR_SET_SECCOMP, 2, descriptor, 0, 0), "seccomp")


def close_others(keep: list[int]) -> None:
    """Close every descriptor above 2 that is not in ``keep``."""
    first = 3
    for fd in sorted(keep):
        if fd > first:
            _call("close_range", first, fd - 1, 0)
        first = max(first, fd + 1)
    _call("close_range", first, ctypes.c_uint(0xFFFFFFFF), 0)


def overwrite_command_line(text: str) -> None:
    """Replace what /proc/self/cmdline shows, in place: the real one names paths of the host."""
    with open("/proc/self/stat") as file:
        fields = file.read().rpartition(") ")[2].split()
    start, end = int(fields[45]), int(fields[46])  # arg_start and arg_end, fields 48 and 49 of proc(5)
    data = text.encode()[: end - start - 1]
    ctypes.memset(start, 0, end - start)
    ctypes.memmove(start, data, len(data))
