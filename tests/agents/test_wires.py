"""The comparison of streamed with whole answers: it holds in every dialect, and it sees a wrong stream."""

from __future__ import annotations

import json

import pytest

from forkgym.agents.formats.chatml import ChatML
from forkgym.agents.policies.scripted import ScriptedPolicy
from forkgym.agents.tokenizers import ByteTokenizer

pytest.importorskip("starlette", reason="the extra gateway is not installed")

from forkgym.agents.gateway.dialects import chat, gemini, messages, responses
from forkgym.agents.harnesses.wires import Asked, compare

TURN = (
    "<think>" + "I wonder. " * 20 + "</think>" + "Long words h\u00e9re. " * 9 + "\n"
    '<tool_call>\n{"name": "sh", "arguments": {"cmd": "ls -l ' + "a" * 90 + '"}}\n</tool_call>\n'
    '<tool_call>\n{"name": "sh", "arguments": {"cmd": "pwd"}}\n</tool_call>'
)
SCHEMA = {"type": "object", "properties": {"cmd": {"type": "string"}}}
USER = {"role": "user", "content": "go"}
BODIES = {
    "chat": ("/v1/chat/completions", {"messages": [USER], "n": 2, "tools": [
        {"type": "function", "function": {"name": "sh", "parameters": SCHEMA}}]}),
    "messages": ("/v1/messages", {"messages": [USER], "max_tokens": 900, "thinking": {"type": "enabled"}, "tools": [
        {"name": "sh", "input_schema": SCHEMA}]}),
    "responses": ("/v1/responses", {"input": "go", "tools": [
        {"type": "function", "name": "sh", "parameters": SCHEMA}]}),
    "gemini": ("/v1beta/models/m:streamGenerateContent?alt=sse", {
        "contents": [{"role": "user", "parts": [{"text": "go"}]}],
        "generationConfig": {"candidateCount": 2, "thinkingConfig": {"includeThoughts": True}},
        "tools": [{"functionDeclarations": [{"name": "sh", "parameters": SCHEMA}]}]}),
}  # fmt: skip
CHOICES = {"chat": 2, "messages": 1, "responses": 1, "gemini": 2}


def ask(dialect: str) -> tuple[bool, str]:
    path, body = BODIES[dialect]
    return compare([Asked(path, json.dumps(body).encode())], lambda: ScriptedPolicy([TURN]), ChatML(ByteTokenizer()))


@pytest.mark.parametrize("dialect", BODIES)
def test_equal_both_ways(dialect):
    tokens = CHOICES[dialect] * (len(ByteTokenizer().encode(TURN)) + 1)
    assert ask(dialect) == (True, f"1 answers, {tokens} tokens sampled, equal both ways")


@pytest.mark.parametrize("module", [chat, messages, responses, gemini], ids=list(BODIES))
@pytest.mark.parametrize("wrong", ["here. ", "aaaa", "wonder"])
def test_a_stream_that_loses_a_letter_is_seen(monkeypatch, module, wrong):
    """A letter of the text, of a call's arguments, or of the thoughts is another one in one event of the stream."""
    right = module.events
    wrong = wrong.replace("here", "h\\u00e9re")

    def events(reply):
        left = 1
        for name, data in right(reply):
            text = json.dumps(data)
            if left and wrong in text and "output_item.added" not in text:
                data, left = json.loads(text.replace(wrong, "X" + wrong[1:], 1)), 0
            yield name, data

    monkeypatch.setattr(module, "events", events)
    passed, detail = ask(module.name)
    assert not passed
    assert detail.startswith("answer 1: streamed ")


def test_ids_that_differ_are_seen(monkeypatch):
    right = chat.events

    def events(reply):
        for name, data in right(reply):
            for choice in data["choices"]:
                if "token_ids" in choice:
                    choice["token_ids"] = choice["token_ids"][:-1]
            yield name, data

    monkeypatch.setattr(chat, "events", events)
    assert not ask("chat")[0]


def test_a_record_that_differs_is_seen():
    path, body = BODIES["chat"]
    asked = [Asked(path, json.dumps(body).encode())]
    assert compare(asked, lambda: ScriptedPolicy([TURN]), ChatML(ByteTokenizer()), []) == (
        False, "the token streams differ"
    )  # fmt: skip
    assert not compare([], lambda: ScriptedPolicy([TURN]), ChatML(ByteTokenizer()))[0]
