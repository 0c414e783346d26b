"""Attempts to get out: to the host's files, processes, sockets and secrets, and to other sandboxes."""

from __future__ import annotations

import contextlib
import os
import socket
import tempfile
import uuid
from collections.abc import Generator
from pathlib import Path

from forkgym.sandboxes.base import Backend, Sandbox, SandboxSpec
from forkgym.sandboxes.conformance.expect import case
from forkgym.sandboxes.conformance.torture.attack import attack, equal, output, python, refused, true, usable


@attack()
def privileged_files_of_the_host(box: Sandbox) -> None:
    """Shadow files, keys, memory and disks of the host are absent or closed."""
    for path in ("/etc/shadow", "/etc/gshadow", "/etc/sudoers", "/root/.ssh", "/dev/mem", "/dev/kmem", "/dev/kmsg"):
        refused(box, f"cat {path} || ls {path}")
    disks = output(box, "find /dev -type b 2>/dev/null | wc -l")
    equal("block devices", disks, b"0\n")
    equal("homes of others", output(box, "ls -A /home /root 2>/dev/null | grep -v : | grep -v '^$' | sort"), b"agent\n")


@attack()
def device_nodes(box: Sandbox) -> None:
    """No device node can be made, by the user or by root inside, that opens a device."""
    for user in (None, "root"):
        result = box.exec(
            "mknod /tmp/disk b 8 0 && cat /tmp/disk | head -c 1; mknod /tmp/m c 1 1 && cat /tmp/m", user=user
        )
        true(f"a device was read as {user}", result.exit_code != 0 and result.stdout == b"")


@attack()
def kernel_settings(box: Sandbox) -> None:
    """/proc/sys, /sys and the triggers of the kernel cannot be written, not even by root inside."""
    targets = (
        "/proc/sys/kernel/core_pattern",
        "/proc/sys/vm/overcommit_memory",
        "/proc/sysrq-trigger",
        "/proc/sys/kernel/hostname",
        "/proc/sys/fs/file-max",
        "/sys/kernel/mm/transparent_hugepage/enabled",
        "/sys/fs/cgroup/cgroup.procs",
        "/sys/fs/cgroup/memory/release_agent",
    )
    for user in (None, "root"):
        for path in targets:
            result = box.exec(f'v=$(cat {path} 2>/dev/null || echo 1); echo "$v" >{path}', user=user)
            true(f"{path} was written as {user}", result.exit_code != 0)


@attack()
def kernel_memory(box: Sandbox) -> None:
    """The kernel's memory, keys and log are hidden."""
    result = box.exec("head -c 10 /proc/kcore; cat /proc/keys; dmesg", timeout=20)
    equal("read", result.stdout, b"")


@attack()
def setuid_programs(box: Sandbox) -> None:
    """Setuid programs, of the image or made by root inside, give nobody more power."""
    box.exec("cp /bin/bash /tmp/rootbash && chmod 4755 /tmp/rootbash", user="root")
    equal(
        "a setuid shell",
        box.exec("/tmp/rootbash -p -c 'id -u' 2>/dev/null || true").stdout.strip() in (b"1000", b""),
        True,
    )
    for command in ("su -c id", "sudo -n id", "mount -t tmpfs x /mnt", "newuidmap $$ 0 0 1", "passwd -d root"):
        refused(box, f"{command} </dev/null 2>/dev/null")
    equal("file capabilities", output(box, "cat /proc/self/status | grep CapEff | cut -f2"), b"0000000000000000\n")


@attack()
def root_inside_is_not_root_outside(box: Sandbox) -> None:
    """Root inside cannot mount, unshare, trace the first process or load modules."""
    status = output(box, "true")
    equal("nothing said", status, b"")
    for command in (
        "mount -t tmpfs x /mnt",
        "unshare -m true",
        "umount /proc",
        "chroot / mount -t proc x /mnt",
        "swapon /etc/passwd",
        "insmod x",
        "hostname other",
        "date -s 2001-01-01",
    ):
        result = box.exec(f"{command} 2>/dev/null", user="root", timeout=20)
        true(f"{command!r} worked as root", result.exit_code != 0)


@attack()
def chroot_escape(box: Sandbox) -> None:
    """The classic way out of a chroot, by root inside, ends at the sandbox's own root."""
    escape = (
        "import os\nos.makedirs('/tmp/jail', exist_ok=True)\ntop = os.open('/', os.O_RDONLY)\n"
        "try:\n os.chroot('/tmp/jail'); os.fchdir(top)\n for _ in range(64): os.chdir('..')\n os.chroot('.')\n"
        "except OSError: pass\nprint(open('/etc/hostname').read(), end='')"
    )
    here = output(box, "cat /etc/hostname")
    result = box.exec(["python3", "-c", escape], user="root", timeout=20)
    true(f"it read {result.stdout!r}", result.stdout in (here, b""))


@case
def host_loopback(backend: Backend) -> None:
    """A service on the host's loopback cannot be reached, over IPv4 or IPv6; the sandbox's own loopback works."""
    with socket.create_server(("127.0.0.1", 0)) as server, backend.create(SandboxSpec()) as box:
        port = server.getsockname()[1]
        refused(box, f"exec 3<>/dev/tcp/127.0.0.1/{port}", f"exec 3<>/dev/tcp/::1/{port}")
        program = (
            "import socket, threading\ns = socket.create_server(('127.0.0.1', 0))\n"
            "c = socket.create_connection(s.getsockname(), 5); print('own loopback')"
        )
        equal("own loopback", python(box, program), b"own loopback\n")
        usable(box)


@attack()
def outside_addresses(box: Sandbox) -> None:
    """Neither the internet, nor a name server, nor a metadata service answers, and no call waits for them."""
    for target in (
        "8.8.8.8/53",
        "1.1.1.1/443",
        "169.254.169.254/80",
        "10.0.0.1/80",
        "172.17.0.1/2375",
        "example.com/80",
    ):
        refused(box, f"exec 3<>/dev/tcp/{target}")
    refused(box, "exec 3<>/dev/udp/8.8.8.8/53 && echo x >&3")


@attack()
def raw_sockets(box: Sandbox) -> None:
    """Raw and packet sockets and exotic families are refused."""
    kinds = "((2, 3, 1), (17, 3, 3), (38, 5, 0), (40, 1, 0), (16, 3, 9), (31, 3, 1))"
    probe = (
        f"import socket\nfor family, kind, proto in {kinds}:\n"
        " try: socket.socket(family, kind, proto); print(family)\n except OSError: pass"
    )
    equal("families that opened", python(box, probe), b"")


@case
def abstract_sockets(backend: Backend) -> None:
    """Abstract sockets of the host and of another sandbox cannot be reached."""
    name = f"\0forkgym-torture-{uuid.uuid4().hex}"
    connect = f"import socket; socket.socket(socket.AF_UNIX).connect({name!r})"
    with socket.socket(socket.AF_UNIX) as server, backend.create(SandboxSpec()) as box:
        server.bind(name)
        server.listen()
        true("the host's socket was reached", not box.exec(["python3", "-c", connect]).ok)
        with backend.create(SandboxSpec()) as other:
            listen = (
                f"import socket, time; s = socket.socket(socket.AF_UNIX); s.bind({name!r}); s.listen(); time.sleep(60)"
            )
            other.exec(["bash", "-c", 'python3 -c "$1" >/dev/null 2>&1 & sleep 0.3', "x", listen])
            true("the neighbour's socket was reached", not box.exec(["python3", "-c", connect]).ok)


@attack()
def sockets_of_daemons(box: Sandbox) -> None:
    """No socket of a daemon of the host is to be found."""
    found = output(box, "find /run /var/run /tmp /dev -type s 2>/dev/null; ls /var/run/docker.sock 2>/dev/null; true")
    equal("sockets", found, b"")


@contextlib.contextmanager
def _secret() -> Generator[str]:
    token = uuid.uuid4().hex
    os.environ["FORKGYM_TORTURE_SECRET"] = token
    try:
        yield token
    finally:
        del os.environ["FORKGYM_TORTURE_SECRET"]


@case
def secrets_of_the_trainer(backend: Backend) -> None:
    """The trainer's variables are found neither by the user nor by root inside."""
    with _secret() as token, backend.create(SandboxSpec()) as box:
        for user in (None, "root"):
            search = (
                "env; cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline /proc/self/mountinfo /proc/self/cgroup 2>/dev/null"
            )
            true(f"found as {user}", token.encode() not in box.exec(search, user=user, max_output=None).stdout)
        usable(box)


@attack()
def first_process_is_closed(box: Sandbox) -> None:
    """Memory, descriptors, variables and root of the first process are closed to the user."""
    for name in ("mem", "environ", "maps", "fd/0", "root/etc", "cwd/etc", "exe", "stack", "syscall", "auxv", "io"):
        refused(box, f"cat /proc/1/{name} || ls /proc/1/{name}/.")
    equal("descriptors", box.exec("readlink /proc/1/fd/* 2>/dev/null").stdout, b"")


@case
def neighbours(backend: Backend) -> None:
    """Another sandbox's files, processes, signals and shared memory are out of reach."""
    token = uuid.uuid4().hex
    with backend.create(SandboxSpec()) as one, backend.create(SandboxSpec()) as two:
        places = "/work /tmp /var/tmp /dev/shm /home/agent"
        output(one, f"for d in {places}; do echo {token} >$d/mine; done; (sleep 8400 >/dev/null 2>&1 &)")
        ipc = "import ctypes\nlibc = ctypes.CDLL(None)\nprint(libc.shmget(0x4711, 4096, 0o1666) >= 0)"
        equal("a segment of one's own", python(one, ipc), b"True\n")
        get = ipc.replace("0o1666", "0o666")
        equal("the neighbour's segment", python(two, get), b"False\n")
        equal("its files", output(two, f"grep -rls {token} {places} /run /proc/*/root/work 2>/dev/null; true"), b"")
        equal(
            "its processes",
            output(two, "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' ' | grep -c 'sleep 840[0]'; true"),
            b"0\n",
        )
        two.exec("kill -9 -1", timeout=20)
        equal("alive", output(one, "cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -c 'sleep 840[0]'"), b"1\n")
        usable(two)


@case
def shared_image(backend: Backend) -> None:
    """What root inside does to the system's files is seen by no other sandbox, present or future, nor by the host."""
    look = "cat /etc/passwd; ls /usr/bin | wc -l; stat -c %a /etc /usr /usr/bin; stat -c %Y /etc/passwd /usr/bin"
    ruin = "echo evil >>/etc/passwd; rm -rf /usr/share/doc; touch /usr/bin/evil /etc/evil; chmod 777 /etc"
    with backend.create(SandboxSpec()) as one, backend.create(SandboxSpec()) as two:
        before = output(two, look)
        one.exec(ruin, user="root")
        with backend.create(SandboxSpec()) as three:
            equal("the neighbour", output(two, look), before)
            equal("a later one", output(three, look), before)
        true("a file appeared on the host", not Path("/usr/bin/evil").exists() and not Path("/etc/evil").exists())


@case
def shown_host_directory(backend: Backend) -> None:
    """A host directory is hidden unless shown, whoever asks."""
    token = uuid.uuid4().hex
    with tempfile.TemporaryDirectory() as folder, backend.create(SandboxSpec()) as box:
        Path(folder, "secret").write_text(token)
        os.chmod(folder, 0o755)
        for user in (None, "root"):
            result = box.exec(f"cat {folder}/secret; cat /proc/*/root{folder}/secret", user=user, timeout=20)
            true(f"read as {user}", token.encode() not in result.stdout)
        usable(box)


CASES = (
    privileged_files_of_the_host,
    device_nodes,
    kernel_settings,
    kernel_memory,
    setuid_programs,
    root_inside_is_not_root_outside,
    chroot_escape,
    host_loopback,
    outside_addresses,
    raw_sockets,
    abstract_sockets,
    sockets_of_daemons,
    secrets_of_the_trainer,
    first_process_is_closed,
    neighbours,
    shared_image,
    shown_host_directory,
)
