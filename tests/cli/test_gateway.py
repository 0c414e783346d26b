"""``forkgym gateway``, as a process of its own."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import urllib.request

from forkgym.agents.records import read_episodes
from forkgym.cli.main import main


def test_serve_and_keep_records(tmp_path):
    (tmp_path / "turns.yaml").write_text("- hello\n- again\n")
    records = tmp_path / "episodes.jsonl"
    command = [sys.executable, "-m", "forkgym.cli.main", "gateway", "--policy", f"scripted:{tmp_path}/turns.yaml",
               "--port", "0", "--out", str(records)]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            found = re.search(r"http://127\.0\.0\.1:\d+", process.stdout.readline())
            assert found
            url = found[0]
            body = json.dumps({"messages": [{"role": "user", "content": "hi"}], "temperature": 0.5}).encode()
            with urllib.request.urlopen(f"{url}/e/mine/v1/chat/completions", body, timeout=30) as answer:
                assert json.load(answer)["choices"][0]["message"]["content"] == "hello"
        finally:
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "Traceback" not in said
    (episode,) = read_episodes(records).episodes
    assert (episode.id, episode.harness, episode.sampling["temperature"]) == ("mine", "gateway", 0.5)
    assert sum(episode.segments[0].sampled) == 6


def test_wrong_options(tmp_path, capsys):
    (tmp_path / "turns.yaml").write_text("- hello\n")
    policy = ["gateway", "--policy", f"scripted:{tmp_path}/turns.yaml"]
    assert main(["gateway", "--port", "1"]) == 2
    assert main([*policy, "--socket", "a", "--port", "1"]) == 2
    assert "give one of them" in capsys.readouterr().err
    assert main([*policy, "--out", str(tmp_path)]) == 2
    assert "is a folder" in capsys.readouterr().err
    assert main([*policy, "--socket", str(tmp_path / "absent" / "s")]) == 2
    assert "cannot listen" in capsys.readouterr().err
