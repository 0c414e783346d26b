"""Every dialect over the same scripted turns: through the makers' own clients, and as it goes over the wire."""

from __future__ import annotations

import json
from typing import Any

import pytest

STOP = 257
TURN = '<think>look</think>I will look.\n<tool_call>\n{"name": "sh", "arguments": {"cmd": "ls -l"}}\n</tool_call>' + (
    '\n<tool_call>\n{"name": "sh", "arguments": {"cmd": "pwd"}}\n</tool_call>'
)
SCRIPT = [TURN, "done"]
SCHEMA = {"type": "object", "properties": {"cmd": {"type": "string"}}, "required": ["cmd"]}
CALLS = [("sh", {"cmd": "ls -l"}), ("sh", {"cmd": "pwd"})]


@pytest.fixture
def openai():
    return pytest.importorskip("openai", reason="the client of OpenAI is not installed")


@pytest.fixture
def anthropic():
    return pytest.importorskip("anthropic", reason="the client of Anthropic is not installed")


def check(one, *, kept=()):
    """One stream of two turns, ids as scripted, whatever the client made of them."""
    encode = one.format.tokenizer.encode
    assert [id for id, *_ in one.sampled()] == [*encode(TURN), STOP, *encode("done"), STOP]
    assert len(one.session.segments()) == 1
    assert dict(one.session.counts) == {f"kept:{what}": 1 for what in kept}
    prompt = one.policy.calls[1].text
    assert "a.py" in prompt
    assert "/work" in prompt
    assert prompt.index("a.py") < prompt.index("/work") < prompt.index("and now?")


@pytest.mark.parametrize("stream", [False, True])
def test_chat_through_openai(rig, openai, stream):
    one = rig(SCRIPT)
    with openai.OpenAI(base_url=f"{one.session.base_url}/v1", api_key=one.session.key, max_retries=0) as client:

        def ask(messages):
            tools = [{"type": "function", "function": {"name": "sh", "parameters": SCHEMA}}]
            if not stream:
                return client.chat.completions.create(model="m", messages=messages, tools=tools)
            with client.chat.completions.stream(model="m", messages=messages, tools=tools) as events:
                return events.get_final_completion()

        messages: list[Any] = [{"role": "developer", "content": "Work."}, {"role": "user", "content": "list"}]
        first = ask(messages).choices[0]
        assert first.finish_reason == "tool_calls"
        assert first.message.content.strip() == "I will look."
        assert first.message.reasoning_content == "look"
        calls = first.message.tool_calls
        assert [(c.function.name, json.loads(c.function.arguments)) for c in calls] == CALLS
        assert len({call.id for call in calls}) == 2
        messages.append(
            {"role": "assistant", "content": first.message.content, "tool_calls": [c.model_dump() for c in calls]}
        )
        messages.append({"role": "tool", "tool_call_id": calls[0].id, "content": "a.py"})
        messages.append({"role": "tool", "tool_call_id": calls[1].id, "content": [{"type": "text", "text": "/work"}]})
        messages.append({"role": "user", "content": "and now?"})
        assert ask(messages).choices[0].message.content == "done"
    check(one, kept=["reasoning"])


@pytest.mark.parametrize("stream", [False, True])
def test_messages_through_anthropic(rig, anthropic, stream):
    one = rig(SCRIPT)
    with anthropic.Anthropic(base_url=one.session.base_url, api_key=one.session.key, max_retries=0) as client:
        options = {
            "model": "m",
            "max_tokens": 400,
            "tools": [{"name": "sh", "input_schema": SCHEMA}],
            "thinking": {"type": "enabled", "budget_tokens": 1024},
        }

        def ask(messages, nonce):
            system = [{"type": "text", "text": f"x-anthropic-billing-header: cch={nonce};"},
                      {"type": "text", "text": "Work.", "cache_control": {"type": "ephemeral"}}]  # fmt: skip
            if not stream:
                return client.messages.create(messages=messages, system=system, **options)
            with client.messages.stream(messages=messages, system=system, **options) as events:
                return events.get_final_message()

        messages: list[Any] = [{"role": "user", "content": "list"}]
        first = ask(messages, "71fea")
        assert [block.type for block in first.content] == ["thinking", "text", "tool_use", "tool_use"]
        assert first.content[0].thinking == "look"
        assert (first.content[1].text.strip(), first.stop_reason) == ("I will look.", "tool_use")
        assert [(block.name, block.input) for block in first.content[2:]] == CALLS
        assert first.usage.output_tokens == len(TURN) + 1
        ids = [block.id for block in first.content[2:]]
        messages.append({"role": "assistant", "content": [block.model_dump(mode="json") for block in first.content]})
        answers = [{"type": "tool_result", "tool_use_id": ids[0], "content": "a.py"},
                   {"type": "tool_result", "tool_use_id": ids[1], "content": [{"type": "text", "text": "/work"}]},
                   {"type": "text", "text": "and now?"}]  # fmt: skip
        messages.append({"role": "user", "content": answers})
        counted = client.messages.count_tokens(
            model="m", messages=messages, system="Work.", tools=options["tools"]
        ).input_tokens
        second = ask(messages, "00aa1")
        assert (second.content[0].text, second.stop_reason) == ("done", "end_turn")
        assert counted == second.usage.input_tokens == len(one.policy.calls[1].ids)
    check(one)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("chained", [False, True])
def test_responses_through_openai(rig, openai, stream, chained):
    one = rig(SCRIPT)
    with openai.OpenAI(base_url=f"{one.session.base_url}/v1", api_key=one.session.key, max_retries=0) as client:

        def ask(**options):
            tools = [{"type": "function", "name": "sh", "parameters": SCHEMA, "strict": False}]
            options |= {"model": "m", "instructions": "Work.", "tools": tools}
            if not stream:
                return client.responses.create(**options)
            with client.responses.stream(**options) as events:
                return events.get_final_response()

        first = ask(input="list")
        assert first.status == "completed"
        assert [item.type for item in first.output] == ["reasoning", "message", "function_call", "function_call"]
        assert first.output_text.strip() == "I will look."
        calls = first.output[2:]
        assert [(call.name, json.loads(call.arguments)) for call in calls] == CALLS
        more = [
            {"type": "function_call_output", "call_id": calls[0].call_id, "output": "a.py"},
            {"type": "function_call_output", "call_id": calls[1].call_id, "output": "/work"},
            {"role": "user", "content": [{"type": "input_text", "text": "and now?"}]},
        ]
        if chained:
            second = ask(input=more, previous_response_id=first.id)
        else:
            sent = [item.model_dump(exclude_none=True, include=_sent(item)) for item in first.output]
            second = ask(input=[{"role": "user", "content": "list"}, *sent, *more])
        assert second.output_text == "done"
        assert second.usage.input_tokens == len(one.policy.calls[1].ids)
    check(one)


def _sent(item):
    """What a client sends back of an item."""
    return set(type(item).model_fields) - {"parsed_arguments", "status"}


def test_free_text_tools_of_responses(rig):
    call = '<tool_call>\n{"name": "patch", "arguments": {"input": "*** Begin\\n+x"}}\n</tool_call>'
    one = rig([call, "ok"])
    tools = [{"type": "custom", "name": "patch", "format": {"type": "grammar"}}, {"type": "web_search"}]
    body = {"input": "go", "tools": tools}
    (item,) = one.send("/v1/responses", body).json["output"]
    assert (item["type"], item["name"], item["input"]) == ("custom_tool_call", "patch", "*** Begin\n+x")
    answer = {"type": "custom_tool_call_output", "call_id": item["call_id"], "output": "patched"}
    body["input"] = [{"role": "user", "content": "go"}, item, answer]
    events = one.send("/v1/responses", {**body, "stream": True}).events
    assert [e["sequence_number"] for e in events] == list(range(len(events)))
    assert events[-1]["response"]["output"][0]["content"][0]["text"] == "ok"
    assert len(one.session.segments()) == 1
    assert one.session.counts == {"ignored:tool web_search": 2}


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages", "/v1/responses"])
def test_E07_all_ids_and_logprobs_whatever_the_parser_swallows(rig, path):
    """Case E07: six tokens, some of which bring no text of their own; stored alike with and without a stream."""
    pieces = ["<tool_call>", '{"name": "sh", "arguments": {"a"', ": 1", "}}", "</tool_call>"]
    stored = []
    for stream in (False, True):
        one = rig(["".join(pieces)])
        asked = [{"role": "user", "content": "go"}]
        body = {"messages": asked, "input": asked, "stream": stream, "max_tokens": 500, "tools": _tool(path)}
        answer = one.send(path, body)
        assert answer.status == 200
        assert ("text/event-stream" in answer.headers["content-type"]) == stream
        stored.append(one.sampled())
        assert one.session.calls[0].turn.calls[0].name == "sh"
    assert stored[0] == stored[1]
    text = "".join(pieces).encode()
    assert stored[0] == [(id, -(i + 1) / 128, 0) for i, id in enumerate([*text, STOP])]


def _tool(path):
    if "chat" in path:
        return [{"type": "function", "function": {"name": "sh", "parameters": SCHEMA}}]
    if "responses" in path:
        return [{"type": "function", "name": "sh", "parameters": SCHEMA}]
    return [{"name": "sh", "input_schema": SCHEMA}]


def test_arguments_that_are_no_object(rig):
    """On a wire with room for objects only they stand within one; sent back so, they are still the sampled call."""
    one = rig(['<tool_call>\n{"name": "sh", "arguments": "ls"}\n</tool_call>', "ok"])
    body: dict[str, Any] = {
        "messages": [{"role": "user", "content": "go"}],
        "max_tokens": 99,
        "tools": _tool("messages"),
    }
    content = one.send("/v1/messages", body).json["content"]
    call = content[-1]
    if call["type"] == "tool_use":
        assert isinstance(call["input"], dict)
        answer = {"type": "tool_result", "tool_use_id": call["id"], "content": "bad", "is_error": True}
    else:
        assert "ls" in call["text"]
        answer = {"type": "text", "text": "bad"}
    body["messages"] += [{"role": "assistant", "content": content}, {"role": "user", "content": [answer]}]
    assert one.send("/v1/messages", body).json["content"][0]["text"] == "ok"
    assert len(one.session.segments()) == 1


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("ids", [False, True])
def test_gemini_over_the_wire(rig, stream, ids):
    """Calls and answers find each other with and without ids; types in capitals become those of JSON Schema."""
    one = rig(SCRIPT)
    parameters = {"type": "OBJECT", "properties": {"cmd": {"type": "STRING"}}}
    body: dict[str, Any] = {
        "systemInstruction": {"parts": [{"text": "Work."}]},
        "contents": [{"role": "user", "parts": [{"text": "list"}]}],
        "tools": [{"functionDeclarations": [{"name": "sh", "parameters": parameters}]}],
        "generationConfig": {"maxOutputTokens": 400, "topK": 64, "thinkingConfig": {"includeThoughts": True}},
    }

    def ask():
        if not stream:
            return [one.send("/v1beta/models/gemini-x:generateContent", body).json]
        return one.send("/v1beta/models/gemini-x:streamGenerateContent?alt=sse", body).events

    chunks = ask()
    assert {chunk["modelVersion"] for chunk in chunks} == {"gemini-x"}
    parts = [part for chunk in chunks for part in chunk["candidates"][0]["content"]["parts"]]
    assert "".join(part["text"] for part in parts if part.get("thought")) == "look"
    assert "".join(part.get("text", "") for part in parts if not part.get("thought")).strip() == "I will look."
    called = [part["functionCall"] for part in parts if "functionCall" in part]
    assert [(call["name"], call["args"]) for call in called] == CALLS
    assert [chunk["candidates"][0].get("finishReason") for chunk in chunks][-1] == "STOP"
    assert chunks[-1]["usageMetadata"]["candidatesTokenCount"] == len(TURN) + 1
    if not ids:
        called = [{"name": call["name"], "args": call["args"]} for call in called]
    said = [{"text": "look", "thought": True}, {"text": "I will look."}, *({"functionCall": call} for call in called)]
    answers = [{"functionResponse": {**call, "response": {"output": output}}}
               for call, output in zip(called, ["a.py", "/work"], strict=True)]  # fmt: skip
    body["contents"] += [{"role": "model", "parts": said}, {"role": "user", "parts": [*answers, {"text": "and now?"}]}]
    counted = one.send("/v1beta/models/gemini-x:countTokens", body).json
    assert ask()[0]["candidates"][0]["content"]["parts"][0]["text"] == "done"
    assert counted == {"totalTokens": len(one.policy.calls[1].ids)}
    assert '"type": "string"' in one.policy.calls[0].text
    assert one.session.counts.pop("overridden:top_k") == 2
    one.session.counts.pop("kept:whitespace", None)  # the text between thought and call, if the format keeps it
    check(one)


def test_gemini_errors(rig):
    one = rig(["ok"])
    image = {"inlineData": {"mimeType": "image/png", "data": "AA=="}}
    for body, says in [({}, "expected an array"), ({"contents": [{"role": "king", "parts": []}]}, "king"),
                       ({"contents": [{"parts": [image]}]}, "takes text only")]:  # fmt: skip
        answer = one.send("/v1beta/models/m:generateContent", body)
        assert answer.status == 400
        assert says in answer.json["error"]["message"]
        assert (answer.json["error"]["code"], answer.json["error"]["status"]) == (400, "INVALID_ARGUMENT")
    assert one.send("/v1beta/models/m:paint", {}).status == 404
    key = one.session.key
    one.session.path = ""
    body = {"contents": [{"parts": [{"text": "hi"}]}]}
    assert one.send("/v1beta/models/m:generateContent", body).json["error"]["status"] == "UNAUTHENTICATED"
    assert one.send("/v1beta/models/m:generateContent", body, x_goog_api_key=key).status == 200


def test_responses_count_tokens(rig):
    one = rig(["ok"])
    counted = one.send("/v1/responses/input_tokens", {"input": "hi"}).json
    assert one.send("/v1/responses", {"input": "hi"}).json["usage"]["input_tokens"] == counted["input_tokens"]
    assert len(one.session.calls) == 1
