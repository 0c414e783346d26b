"""The persistent shell of the local backend: what survives, what reopens it, and what cannot fool it."""

import threading

import pytest

from forkgym.sandboxes import create
from forkgym.sandboxes.errors import SandboxDeadError


@pytest.fixture(scope="module")
def box():
    with create("local") as sandbox:
        yield sandbox


@pytest.fixture
def shell(box, request):
    return box.shell(request.node.name)


def test_state_survives_between_runs(shell):
    shell.run(
        "cd /tmp; export A='x y\nz'; B=local; declare -A M=([k]=v); list=(1 2 3); f() { echo f$1; }; alias g='f 9'"
    )
    assert (
        shell.run('pwd; echo "$A"; echo $B ${M[k]} ${list[2]}; f 1; g').stdout == b"/tmp\nx y\nz\nlocal v 3\nf1\nf9\n"
    )


@pytest.mark.parametrize("end", ["exit 7", "set -e; (exit 7)", "exec sh -c 'exit 7'"])
def test_a_shell_that_ends_gives_its_code_and_reopens_with_its_state(shell, end):
    shell.run("cd /usr; export KEPT=yes; B=2; f() { echo f; }")
    assert shell.run(end).exit_code == 7
    assert shell.restarts == 1
    assert shell.run("pwd; echo $KEPT $B; f; false; echo on").stdout == b"/usr\nyes 2\nf\non\n"


def test_a_killed_shell_reopens(shell):
    shell.run("cd /usr; export KEPT=yes")
    assert shell.run("kill -9 $$").exit_code == -9
    assert shell.run("pwd; echo $KEPT").stdout == b"/usr\nyes\n"


def test_a_deadline_ends_a_spinning_shell_and_keeps_output_and_place(shell):
    shell.run("cd /usr; export KEPT=yes")
    result = shell.run("cd /tmp; echo early; while :; do :; done", timeout=0.5)
    assert result.timed_out
    assert result.stdout == b"early\n"
    assert shell.run("pwd; echo $KEPT").stdout == b"/tmp\nyes\n"
    assert shell.restarts == 1


def test_nothing_after_the_deadline_runs(shell, box):
    assert shell.run("sleep 30; touch /tmp/after", timeout=0.3).timed_out
    assert shell.run("ls /tmp/after").exit_code == 2


def test_a_deadline_spares_servers_of_earlier_runs(shell, box):
    shell.run("sleep 8100 & sleep 0.05")
    assert shell.run("sleep 8101", timeout=0.3).timed_out
    assert box.exec("pgrep -fc 'sleep 810'").stdout.strip() != b"0"
    assert box.exec(["pgrep", "-fc", "sleep 8100"]).stdout == b"1\n"
    assert box.exec(["pgrep", "-fc", "sleep 8101"]).stdout == b"0\n"


@pytest.mark.parametrize(
    "command", ["echo 'a", 'echo "a', "if true; then", "f() {", "a=(1 2", "echo $((1 +", "for ((", "echo )"]
)
def test_a_syntax_error_is_a_result(shell, command):
    result = shell.run(command)
    assert result.exit_code != 0
    assert b"bash:" in result.stdout
    assert shell.run("echo on").stdout == b"on\n"
    assert shell.restarts == 0


def test_loops_of_ours_cannot_be_left(shell):
    result = shell.run("break; continue; return; echo x")
    assert result.stdout.endswith(b"x\n")
    assert shell.run("echo on").stdout == b"on\n"
    assert shell.restarts == 0


def test_standard_input_is_at_its_end(shell):
    assert shell.run("cat; read x; echo $?; python3 -c 'import sys; print(len(sys.stdin.read()))'").stdout == b"1\n0\n"


def test_a_nul_byte_is_refused_and_a_megabyte_is_not(shell):
    assert shell.run("echo a\0b").exit_code == 126
    assert shell.run("echo \ud800").exit_code == 126
    assert shell.run(f"v='{'y' * 1_000_000}'; echo ${{#v}}").stdout == b"1000000\n"
    assert shell.run(": \\\n\\\necho on").exit_code == 0


def test_our_descriptors_are_closed_for_commands(shell):
    assert shell.run("ls /proc/self/fd | tr '\\n' ' '").stdout == b"0 1 2 3 "
    assert shell.run("printf 'x\\0000\\0/\\0' >&62; false").exit_code == 1
    assert shell.run("printf '0\\0' >&10; echo 0 > /proc/$$/fd/62; false").exit_code == 1
    assert shell.run("echo next").stdout == b"next\n"


def test_field_separators_do_not_reach_our_protocol(shell):
    assert shell.run("IFS=0123456789; (exit 147)").exit_code == 147
    assert shell.run("(exit 12)").exit_code == 12


FORGERY = r"""
python3 - <<'END'
import os, re
shell = f"/proc/{os.getppid()}/fd/"
script = os.read(os.open(shell + "255", os.O_RDONLY | os.O_NONBLOCK), 1 << 16)
token = re.search(rb'printf "%s\S*" (\w{16})', script).group(1) + b"\0"
for number in os.listdir(shell):
    if number not in ("0", "1", "2", "255") and "pipe" in os.readlink(shell + number):
        os.write(os.open(shell + number, os.O_WRONLY), token + REPORT + token)
        print("written")
END
"""


@pytest.mark.parametrize("report", ["b''", "b'zero\\0/\\0'", "b'7\\0'", "b'-1\\0/\\0'"])
def test_a_report_that_bash_did_not_write_is_no_answer(shell, report):
    result = shell.run(FORGERY.replace("REPORT", report), timeout=1.5)
    assert (result.stdout, result.timed_out) == (b"written\n", True)  # the real one was eaten with the script
    assert shell.run("echo next").stdout == b"next\n"


def test_tracing_shows_the_command_not_our_protocol(shell):
    shell.run("set -x")
    assert b"printf" not in shell.run("true").stdout
    shell.run("set +x")


def test_a_deleted_directory_is_an_error_of_the_command_only(shell):
    shell.run("mkdir -p /tmp/gone && cd /tmp/gone && rmdir /tmp/gone")
    assert shell.run("touch here").exit_code == 1
    assert shell.run("cd /tmp && pwd").stdout == b"/tmp\n"


def test_shells_of_several_names_and_threads_do_not_mix(box):
    failures = []

    def work(number):
        shell = box.shell(f"thread-{number}")
        shell.run(f"N={number}")
        for _ in range(20):
            if shell.run("echo $N").stdout != f"{number}\n".encode():
                failures.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_one_shell_serves_threads_one_after_the_other(box):
    shell = box.shell("shared")
    outputs = []
    threads = [
        threading.Thread(target=lambda n=number: outputs.append(shell.run(f"sleep 0.05; echo {n}").stdout))
        for number in range(5)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outputs) == [f"{number}\n".encode() for number in range(5)]


def test_the_old_directory_is_kept_when_a_fork_moves_the_shell(box):
    shell = box.shell("old")
    shell.run("cd /tmp; cd /usr; touch /tmp/x")
    child = box.fork()[0]
    assert shell.run("cd -").stdout == b"/tmp\n"
    assert child.shell("old").run("cd -").stdout == b"/tmp\n"
    child.close()


def test_a_sandbox_closed_by_another_thread_is_told_whatever_its_shell_was_doing():
    told = []

    def run(box):
        try:
            while True:
                box.shell().run("echo x; sleep 0.001")
        except Exception as error:
            told.append(type(error))

    for _ in range(20):
        with create("local") as box:
            box.shell().run("true")
            threads = [threading.Thread(target=run, args=(box,)) for _ in range(3)]
            for thread in threads:
                thread.start()
        for thread in threads:
            thread.join()
    assert told == [SandboxDeadError] * 60
