"""A seccomp filter assembled by hand: what commands in a sandbox may never ask of the kernel.

Everything is allowed but the calls below; the namespaces, the missing capabilities and the uid are the walls, and this
filter takes away the parts of the kernel with the worst record. Layout of the input: ``struct seccomp_data`` of
``linux/seccomp.h``; instructions: ``linux/bpf_common.h``.
"""

from __future__ import annotations

import errno
import platform
import struct

from forkgym.sandboxes.errors import SandboxUnavailableError

_AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_X32_BIT = 0x40000000

# Same numbers on every architecture since Linux 5.1.
_COMMON = {
    "io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427,
    "open_tree": 428, "move_mount": 429, "fsopen": 430, "fsconfig": 431, "fsmount": 432, "fspick": 433,
    "pidfd_getfd": 438, "mount_setattr": 442, "quotactl_fd": 443, "open_tree_attr": 467,
}  # fmt: skip
_DENIED = {
    "x86_64": _COMMON | {
        "ptrace": 101, "syslog": 103, "uselib": 134, "vhangup": 153, "pivot_root": 155, "acct": 163,
        "settimeofday": 164, "mount": 165, "umount2": 166, "swapon": 167, "swapoff": 168, "reboot": 169,
        "sethostname": 170, "setdomainname": 171, "iopl": 172, "ioperm": 173, "init_module": 175,
        "delete_module": 176, "quotactl": 179, "nfsservctl": 180, "lookup_dcookie": 212, "clock_settime": 227,
        "kexec_load": 246, "add_key": 248, "request_key": 249, "keyctl": 250, "unshare": 272,
        "perf_event_open": 298, "open_by_handle_at": 304, "clock_adjtime": 305, "setns": 308,
        "process_vm_readv": 310, "process_vm_writev": 311, "kcmp": 312, "finit_module": 313,
        "kexec_file_load": 320, "bpf": 321, "userfaultfd": 323,
    },
    "aarch64": _COMMON | {
        "lookup_dcookie": 18, "umount2": 39, "mount": 40, "pivot_root": 41, "nfsservctl": 42, "vhangup": 58,
        "quotactl": 60, "acct": 89, "unshare": 97, "kexec_load": 104, "init_module": 105, "delete_module": 106,
        "clock_settime": 112, "syslog": 116, "ptrace": 117, "reboot": 142, "sethostname": 161,
        "setdomainname": 162, "settimeofday": 170, "add_key": 217, "request_key": 218, "keyctl": 219,
        "swapon": 224, "swapoff": 225, "perf_event_open": 241, "open_by_handle_at": 265, "clock_adjtime": 266,
        "setns": 268, "process_vm_readv": 270, "process_vm_writev": 271, "kcmp": 272, "finit_module": 273,
        "bpf": 280, "userfaultfd": 282, "kexec_file_load": 294,
    },
}  # fmt: skip
# Calls whose arguments decide.
_CHECKED = {
    "x86_64": {"ioctl": 16, "socket": 41, "socketpair": 53, "clone": 56, "clone3": 435},
    "aarch64": {"ioctl": 29, "socket": 198, "socketpair": 199, "clone": 220, "clone3": 435},
}

_NAMESPACE_FLAGS = 0x7E020000  # NEWNS | NEWCGROUP | NEWUTS | NEWIPC | NEWUSER | NEWPID | NEWNET
_TERMINAL_INJECTION = (0x5412, 0x541C)  # TIOCSTI, TIOCLINUX
_AF_UNIX, _AF_INET, _AF_INET6, _AF_NETLINK, _NETLINK_ROUTE = 1, 2, 10, 16, 0

_LOAD, _JEQ, _JGE, _JSET, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NR, _ARCH, _ARG0, _ARG1, _ARG2 = 0, 4, 16, 24, 32  # offsets of the low words (both machines are little-endian)
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000

_Instruction = tuple[int, int, int, int]  # code, jump if true, jump if false, constant


def program(machine: str | None = None) -> bytes:
    """The filter for ``machine`` (default: this one), as the ``struct sock_filter`` array that the kernel takes.

    A foreign architecture kills the process. Denied calls fail with EPERM; ``clone3`` and the x32 calls with ENOSYS,
    so that the C library falls back to ``clone`` whose flags can be read; socket families other than unix, inet,
    inet6 and route netlink with EAFNOSUPPORT. Raises ``SandboxUnavailableError`` for an unknown machine.
    """
    machine = machine or platform.machine()
    if machine not in _AUDIT_ARCH:
        known = ", ".join(sorted(_AUDIT_ARCH))
        raise SandboxUnavailableError(f"no system call filter for {machine!r}; the local backend knows {known}")
    code: list[_Instruction] = [
        (_LOAD, 0, 0, _ARCH),
        (_JEQ, 1, 0, _AUDIT_ARCH[machine]),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NR),
    ]
    if machine == "x86_64":
        code += [(_JGE, 0, 1, _X32_BIT), _fail(errno.ENOSYS)]
    for number in sorted(_DENIED[machine].values()):
        code += [(_JEQ, 0, 1, number), _fail(errno.EPERM)]
    checked = _CHECKED[machine]
    code += [(_JEQ, 0, 1, checked["clone3"]), _fail(errno.ENOSYS)]
    for name, body in _argument_checks().items():
        code += [(_JEQ, 0, len(body), checked[name]), *body]
    code.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(struct.pack("<HBBI", *instruction) for instruction in code)


def _argument_checks() -> dict[str, list[_Instruction]]:
    allow, family = (_RETURN, 0, 0, _ALLOW), _fail(errno.EAFNOSUPPORT)
    return {
        "clone": [(_LOAD, 0, 0, _ARG0), (_JSET, 0, 1, _NAMESPACE_FLAGS), _fail(errno.EPERM), allow],
        "ioctl": [
            (_LOAD, 0, 0, _ARG1),
            (_JEQ, 1, 0, _TERMINAL_INJECTION[0]),
            (_JEQ, 0, 1, _TERMINAL_INJECTION[1]),
            _fail(errno.EPERM),
            allow,
        ],
        "socket": [
            (_LOAD, 0, 0, _ARG0),
            (_JEQ, 5, 0, _AF_UNIX),
            (_JEQ, 4, 0, _AF_INET),
            (_JEQ, 3, 0, _AF_INET6),
            (_JEQ, 0, 3, _AF_NETLINK),
            (_LOAD, 0, 0, _ARG2),
            (_JEQ, 0, 1, _NETLINK_ROUTE),
            allow,
            family,
        ],
        "socketpair": [(_LOAD, 0, 0, _ARG0), (_JEQ, 0, 1, _AF_UNIX), allow, family],
    }


def _fail(number: int) -> _Instruction:
    return (_RETURN, 0, 0, _ERRNO | number)
