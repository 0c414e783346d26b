"""C10: what was printed before a timeout is kept."""

from forkgym.sandboxes import create


def test_output_before_a_timeout_is_kept_and_the_next_command_works():
    with create() as box:
        for run in (box.exec, box.shell().run):
            result = run("echo early; sleep 30", timeout=1)
            assert (result.timed_out, result.stdout) == (True, b"early\n")
            assert run("echo next").stdout == b"next\n"
