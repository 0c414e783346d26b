"""A server behind the gateway that gives text and no ids: every dialect works, nothing can be trained on."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from forkgym.agents.base import Call, ChatReply, SamplingParams, Turn
from forkgym.agents.errors import ContextLengthError
from forkgym.agents.formats.chatml import ChatML
from forkgym.agents.gateway.record import episode
from forkgym.agents.gateway.server import Gateway
from forkgym.agents.policies.scripted import ScriptedPolicy
from forkgym.agents.records import decode_episode, encode_episode
from forkgym.agents.tokenizers import ByteTokenizer
from forkgym.errors import ConfigError

USER = {"role": "user", "content": "go"}
FUNCTION = {"name": "sh", "parameters": {"type": "object", "properties": {}}}


class Server:
    """A ``ChatEndpoint`` that says what it is told."""

    def __init__(self, *lines) -> None:
        self.lines = list(lines)
        self.asked = []

    def reply(self, messages, tools, params):
        self.asked.append((list(messages), list(tools), params))
        line = self.lines.pop(0)
        if isinstance(line, Exception):
            raise line
        return ChatReply(line, {"role": "assistant", "content": line.text}, "stop", 7)


def test_a_conversation(rig):
    server = Server(Turn("", "hm", (Call("sh", '{"a": 1}'),)), Turn("done"))
    one = rig(None, policy=server, text=True, sampling=SamplingParams(temperature=0.3))
    body: dict[str, Any] = {
        "messages": [USER],
        "max_tokens": 50,
        "tools": [{"name": "sh", "input_schema": FUNCTION["parameters"]}],
    }
    content = one.send("/v1/messages", body).json["content"]
    assert (content[-1]["name"], content[-1]["input"]) == ("sh", {"a": 1})
    answer = {"type": "tool_result", "tool_use_id": content[-1]["id"], "content": "a.py"}
    body["messages"] = [USER, {"role": "assistant", "content": content}, {"role": "user", "content": [answer]}]
    second = one.send("/v1/messages", body).json
    assert (second["content"][0]["text"], second["usage"]["output_tokens"]) == ("done", 7)
    messages, tools, params = server.asked[1]
    assert [message["role"] for message in messages] == ["user", "assistant", "tool"]
    assert messages[1]["tool_calls"][0]["id"] == messages[2]["tool_call_id"]
    assert tools == [{"type": "function", "function": FUNCTION}]
    assert (params.temperature, params.max_tokens, params.stop_ids) == (0.3, 50, ())
    assert params.seed not in (None, server.asked[0][2].seed)
    assert (one.session.trainable, one.session.segments()) == (False, [])
    assert "no token ids" in one.session.untrainable
    assert one.session.sampled_tokens == 14
    assert [call.cause for call in one.session.calls] == ["start", ""]
    record = decode_episode(encode_episode(episode(one.session)))
    assert [step.observation for step in record.steps] == ["a.py", ""]
    assert record.segments == []


def test_failures(rig):
    server = Server(ContextLengthError("full"), ConfigError("no top_k here"), OSError("gone"))
    one = rig(None, policy=server, text=True)
    assert [one.chat([USER], user=str(i)).status for i in range(3)] == [400, 400, 500]
    assert one.session.ended == "engine: the server's client raised OSError: gone"
    assert one.send("/v1/messages/count_tokens", {"messages": [USER]}).status == 404


def test_logprobs_cannot_be_had(rig):
    one = rig(None, policy=Server(Turn("x")), text=True)
    assert one.chat([USER], logprobs=True).status == 400


def test_what_fits_together():
    with pytest.raises(ConfigError, match="give the gateway a chat format"):
        Gateway(ScriptedPolicy([]), None, port=0)
    with pytest.raises(ConfigError, match="needs no chat format"):
        Gateway(Server(), ChatML(ByteTokenizer()), port=0)


def test_a_format_that_breaks_is_an_engine_failure(rig):
    class Broken(ChatML):
        def parse(self, ids):
            raise KeyError("oops")

    one = rig(["x", "y"], format=Broken(ByteTokenizer()))
    assert one.chat([USER]).status == 500
    assert one.session.ended == "engine: KeyError: 'oops'"
    assert one.session.segments() == []


PIXEL = "data:image/png;base64,AA=="
PARTS = [
    {"type": "text", "text": "what is"},
    {"type": "image_url", "image_url": {"url": PIXEL}},
    {"type": "text", "text": "this"},
]
LOOK = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": PARTS}]},
    "/v1/messages": {
        "max_tokens": 9,
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "what is"},
                    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}},
                    {"type": "text", "text": "this"},
                ],
            }
        ],
    },
    "/v1/responses": {
        "input": [
            {
                "role": "user",
                "content": [
                    {"type": "input_text", "text": "what is"},
                    {"type": "input_image", "image_url": PIXEL},
                    {"type": "input_text", "text": "this"},
                ],
            }
        ]
    },
    "/v1beta/models/any:generateContent": {
        "contents": [
            {
                "role": "user",
                "parts": [
                    {"text": "what is"}, {"inlineData": {"mimeType": "image/png", "data": "AA=="}}, {"text": "this"},
                ],
            }
        ]
    },
}  # fmt: skip


@pytest.mark.parametrize("path", LOOK)
def test_an_image_reaches_the_server_from_every_dialect(rig, path):
    server = Server(Turn("a dot"))
    one = rig(None, policy=server, text=True)
    assert one.send(path, LOOK[path]).status == 200
    assert server.asked[0][0] == [{"role": "user", "content": PARTS}]
    digest = hashlib.sha256(PIXEL.encode()).hexdigest()
    assert episode(one.session).prompt == [{"role": "user", "content": "what is\nthis", "images": [f"sha256:{digest}"]}]


def test_a_conversation_about_an_image_goes_on_and_another_image_is_another_one(rig):
    server = Server(Turn("a dot"), Turn("red"), Turn("a line"))
    one = rig(None, policy=server, text=True)
    first = {"role": "user", "content": PARTS}
    one.chat([first])
    later = [{"role": "assistant", "content": "a dot"}, {"role": "user", "content": "which colour?"}]
    one.chat([first, *later])
    other = [{"type": "image_url", "image_url": {"url": "https://example.org/line.png", "detail": "low"}}]
    one.chat([{"role": "user", "content": other}, *later])
    assert [call.cause for call in one.session.calls] == ["start", "", "history_edited"]
    assert server.asked[1][0][0] == first
    assert server.asked[2][0][0] == {"role": "user", "content": other}


def test_an_address_that_is_no_image_is_refused(rig):
    one = rig(None, policy=Server(Turn("x")), text=True)
    wrong = [{"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}]
    answer = one.chat([{"role": "user", "content": wrong}])
    assert answer.status == 400
    assert "data:image/" in answer.json["error"]["message"]
