"""The filter is run twice: by an interpreter of classic BPF written from its manual, and by the kernel."""

import errno
import json
import platform
import struct
import subprocess
import sys

import pytest

from forkgym.sandboxes.errors import SandboxUnavailableError
from forkgym.sandboxes.local import seccomp

X86, ARM, I386 = 0xC000003E, 0xC00000B7, 0x40000003
ALLOW, KILL = "allow", "kill"
NEWNS, NEWUSER, THREAD_FLAGS = 0x00020000, 0x10000000, 0x003D0F00  # the last is what pthread_create passes
# From the tables in the kernel's sources, not from the module under test.
NUMBERS = {
    "x86_64": {"read": 0, "ioctl": 16, "socket": 41, "socketpair": 53, "clone": 56, "fork": 57, "execve": 59,
               "ptrace": 101, "mount": 165, "reboot": 169, "keyctl": 250, "unshare": 272, "setns": 308, "bpf": 321,
               "io_uring_setup": 425, "fsopen": 430, "clone3": 435, "mount_setattr": 442},
    "aarch64": {"read": 63, "ioctl": 29, "socket": 198, "socketpair": 199, "clone": 220, "execve": 221,
                "ptrace": 117, "mount": 40, "reboot": 142, "keyctl": 219, "unshare": 97, "setns": 268, "bpf": 280,
                "io_uring_setup": 425, "fsopen": 430, "clone3": 435, "mount_setattr": 442},
}  # fmt: skip
ARCH = {"x86_64": X86, "aarch64": ARM}


def decide(program, arch, number, *arguments):
    """Interpret the program over one system call; returns allow, kill or an errno."""
    padded = [*arguments, *[0] * (6 - len(arguments))]
    data = struct.pack("<iIQ6Q", number if number < 1 << 31 else number - (1 << 32), arch, 0, *padded)
    code = list(struct.iter_unpack("<HBBI", program))
    accumulator, at = 0, 0
    while True:
        operation, if_true, if_false, constant = code[at]
        at += 1
        if operation == 0x20:
            (accumulator,) = struct.unpack_from("<I", data, constant)
        elif operation == 0x06:
            action = {0x7FFF0000: ALLOW, 0x80000000: KILL}.get(constant)
            return action or constant - 0x00050000
        else:
            test = {0x15: accumulator == constant, 0x35: accumulator >= constant, 0x45: bool(accumulator & constant)}
            at += if_true if test[operation] else if_false


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
@pytest.mark.parametrize(
    ("call", "arguments", "expected"),
    [
        ("read", (), ALLOW),
        ("execve", (), ALLOW),
        ("mount", (), errno.EPERM),
        ("fsopen", (), errno.EPERM),
        ("mount_setattr", (), errno.EPERM),
        ("unshare", (NEWUSER,), errno.EPERM),
        ("setns", (), errno.EPERM),
        ("bpf", (), errno.EPERM),
        ("ptrace", (), errno.EPERM),
        ("keyctl", (), errno.EPERM),
        ("reboot", (), errno.EPERM),
        ("io_uring_setup", (), errno.EPERM),
        ("clone3", (), errno.ENOSYS),
        ("clone", (17,), ALLOW),
        ("clone", (THREAD_FLAGS,), ALLOW),
        ("clone", (NEWUSER | 17,), errno.EPERM),
        ("clone", (NEWNS,), errno.EPERM),
        ("clone", (0x40000000,), errno.EPERM),
        ("ioctl", (0, 0x5401), ALLOW),
        ("ioctl", (0, 0x5412), errno.EPERM),
        ("ioctl", (0, 0x541C), errno.EPERM),
        ("ioctl", (0, 1 << 32 | 0x5412), errno.EPERM),
        ("socket", (1, 1), ALLOW),
        ("socket", (2, 1), ALLOW),
        ("socket", (10, 2), ALLOW),
        ("socket", (16, 3, 0), ALLOW),
        ("socket", (16, 3, 9), errno.EAFNOSUPPORT),
        ("socket", (17, 3), errno.EAFNOSUPPORT),
        ("socket", (38, 5), errno.EAFNOSUPPORT),
        ("socket", (40, 1), errno.EAFNOSUPPORT),
        ("socketpair", (1, 1), ALLOW),
        ("socketpair", (30, 1), errno.EAFNOSUPPORT),
    ],
)
def test_decision(machine, call, arguments, expected):
    assert decide(seccomp.program(machine), ARCH[machine], NUMBERS[machine][call], *arguments) == expected


@pytest.mark.parametrize(("machine", "foreign"), [("x86_64", I386), ("x86_64", ARM), ("aarch64", X86)])
def test_a_foreign_architecture_is_killed(machine, foreign):
    assert decide(seccomp.program(machine), foreign, 0) == KILL


def test_x32_calls_do_not_exist():
    program = seccomp.program("x86_64")
    assert decide(program, X86, 0x40000000 | 165) == errno.ENOSYS
    assert decide(program, X86, 0xFFFFFFFF) == errno.ENOSYS


def test_unknown_machine_is_a_clear_error():
    with pytest.raises(SandboxUnavailableError, match=r"'riscv64'.*aarch64, x86_64"):
        seccomp.program("riscv64")


def test_most_calls_are_allowed():
    program = seccomp.program("x86_64")
    refused = [number for number in range(480) if decide(program, X86, number, 1) != ALLOW]
    assert 45 <= len(refused) <= 60


# Runs in a fresh interpreter, because a filter cannot be taken off again.
PROBE = """
import ctypes, errno, json, os, socket, struct, subprocess, sys, threading
libc = ctypes.CDLL(None, use_errno=True)
program = bytes.fromhex(sys.argv[1])
buffer = ctypes.create_string_buffer(program)
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(buffer)), 0, 0) == 0

def call(*arguments):
    return 0 if libc.syscall(*arguments) >= 0 else ctypes.get_errno()

def try_socket(*arguments):
    try:
        socket.socket(*arguments).close()
    except OSError as error:
        return error.errno
    return 0

def unshare():
    return 0 if libc.unshare(0x10000000) == 0 else ctypes.get_errno()

thread = threading.Thread(target=int)
thread.start()
thread.join()
print(json.dumps({
    "unshare": unshare(),
    "mount": 0 if libc.mount(b"none", b"/mnt", b"tmpfs", 0, None) == 0 else ctypes.get_errno(),
    "io_uring": call(425, 1, None),
    "clone3": call(435, None, 0),
    "packet": try_socket(socket.AF_PACKET, socket.SOCK_RAW),
    "alg": try_socket(socket.AF_ALG, socket.SOCK_SEQPACKET),
    "unix": try_socket(socket.AF_UNIX, socket.SOCK_STREAM),
    "inet": try_socket(socket.AF_INET, socket.SOCK_STREAM),
    "route": try_socket(socket.AF_NETLINK, socket.SOCK_RAW, 0),
    "child": subprocess.run(["true"]).returncode,
}))
"""


def test_the_kernel_takes_the_program_and_acts_on_it():
    assert platform.machine() in ARCH
    done = subprocess.run(
        [sys.executable, "-c", PROBE, seccomp.program().hex()], capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "unshare": errno.EPERM,
        "mount": errno.EPERM,
        "io_uring": errno.EPERM,
        "clone3": errno.ENOSYS,
        "packet": errno.EAFNOSUPPORT,
        "alg": errno.EAFNOSUPPORT,
        "unix": 0,
        "inet": 0,
        "route": 0,
        "child": 0,
    }
