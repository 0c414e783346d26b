"""C03: nothing a command prints ends it early, even if it prints all that it can find out about its shell."""

from forkgym.sandboxes import create


def test_a_command_that_prints_every_marker_it_can_find_still_runs_to_its_end():
    look = "env; set; cat /proc/$$/environ /proc/$$/cmdline; ls -l /proc/$$/fd"
    with create() as box:
        shell = box.shell()
        found = shell.run(look).stdout
        box.write_file("markers", found)
        script = f"{look}; cat markers; cat markers >&2; sleep 0.5; echo late; exit_code_file=done; (exit 9)"
        result = shell.run(script, timeout=30)
        assert result.stdout.endswith(b"\nlate\n")
        assert (result.exit_code, result.timed_out) == (9, False)
        assert result.duration >= 0.5
        assert shell.run("echo next").stdout == b"next\n"
        assert shell.restarts == 0
