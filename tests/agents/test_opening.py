"""A policy from one line of text."""

from __future__ import annotations

from pathlib import Path

import pytest

from forkgym.agents.base import SamplingParams
from forkgym.agents.policies.opening import open_policy, parse_spec
from forkgym.errors import ConfigError


def test_lines(tmp_path: Path) -> None:
    assert parse_spec("smollm2-135m") == ("hf", "smollm2-135m", {})
    assert parse_spec("hf:runs/a,context=64, dtype = float32") == (
        "hf",
        "runs/a",
        {"context": "64", "dtype": "float32"},
    )
    assert parse_spec("endpoint:http://[::1]:80/v1#m") == ("endpoint", "http://[::1]:80/v1#m", {})
    odd = tmp_path / "a:b"
    odd.mkdir()
    assert parse_spec(str(odd)) == ("hf", str(odd), {})


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("hf:", "names no place"),
        ("hf:tiny-random,context", "write option=value, not 'context'"),
        ("hf:tiny-random,contxt=64", "contxt: Unexpected keyword argument"),
        ("hf:tiny-random,context=long", "context: Input should be a valid integer"),
        ("hf:tiny-random,dtype=float8", "unknown dtype 'float8'"),
        ("hf:tiny-randm", "did you mean 'tiny-random'"),
        ("smollm", "unknown model 'smollm'"),
        ("scriptd:x", "unknown policy engine 'scriptd'; did you mean 'scripted'"),
        ("scripted:absent.yaml", "cannot read the script absent.yaml"),
    ],
)
def test_wrong_lines_say_what_is_wrong(line: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message.replace("(", r"\(")):
        open_policy(line)


@pytest.mark.parametrize("text", ["a: 1", "[1, 2]", "- [x"])
def test_a_script_is_a_list_of_texts(tmp_path: Path, text: str) -> None:
    (tmp_path / "turns.yaml").write_text(text)
    with pytest.raises(ConfigError, match="script"):
        open_policy(f"scripted:{tmp_path / 'turns.yaml'}")


@pytest.mark.parametrize(("name", "text"), [("t.yaml", "- one\n- |\n  two\n"), ("t.json", '["one", "two\\n"]')])
def test_a_script_is_spoken(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    with open_policy(f"scripted:{tmp_path / name},window=100", slots=3) as opened:
        params = SamplingParams(stop_ids=(257,))
        [first] = opened.policy.generate([[1]], params)
        [second] = opened.policy.generate([[1, *first.ids, 2]], params)
        assert opened.tokenizer.decode(first.ids + second.ids) == "one<|im_end|>two\n<|im_end|>"


def test_a_model_takes_the_callers_slots_unless_the_line_says_other() -> None:
    with open_policy("hf:tiny-random,context=64,dtype=float32", slots=3) as opened:
        assert getattr(opened.policy, "context", None) == 64
        [completion] = opened.policy.generate([[1, 2]], SamplingParams(max_tokens=9, seed=0, stop=("\x00\x01",)))
        assert len(completion.ids) == 9
