"""Chat formats of model families, against chat templates written here in their layout, and against any text and ids.

The templates are written for these tests. They lay a conversation out as the families' own do, for what is used here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forkgym.agents.base import Call, ChatFormat
from forkgym.agents.formats.auto import choose
from forkgym.agents.formats.calls import DEEPSEEK_TAGS
from forkgym.agents.registry import make_format
from forkgym.agents.tokenizers import HFTokenizer
from forkgym.errors import ConfigError

IM = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
TAGS = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>")
LLAMA = ("<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<|eom_id|>")
GEMMA = ("<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>")
DEEPSEEK = ("<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>", *DEEPSEEK_TAGS)

_TOOLS = (
    "# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
    "You are provided with function signatures within <tools></tools> XML tags:\n<tools>{% for tool in tools %}\n"
    "{{ tool | tojson }}{% endfor %}\n</tools>\n\nFor each function call, return a json object with function name and "
    "arguments within <tool_call></tool_call> XML tags:\n<tool_call>\n"
    '{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call>'
)

QWEN = (
    "{% set own = messages[0].content if messages[0].role == 'system' else DEFAULT %}"
    "{% if own is string or tools %}<|im_start|>system\n{{ own or '' }}"
    "{% if tools %}{{ '\n\n' if own is string else '' }}" + _TOOLS + "{% endif %}<|im_end|>\n{% endif %}"
    "{% for m in messages %}"
    "{% set before = messages[loop.index0 - 1].role if loop.index0 else '' %}"
    "{% set then = '' if loop.last else messages[loop.index0 + 1].role %}"
    "{% if m.role == 'tool' %}"
    "{{ '' if before == 'tool' else '<|im_start|>user' }}\n<tool_response>\n{{ m.content }}\n</tool_response>"
    "{{ '' if then == 'tool' else '<|im_end|>\n' }}"
    "{% elif m.role != 'system' or not loop.first %}<|im_start|>{{ m.role }}\n"
    "{% if m.reasoning_content %}<think>\n{{ m.reasoning_content }}\n</think>\n\n{% endif %}{{ m.content }}"
    "{% for c in m.tool_calls or [] %}{{ '\n' if m.content or not loop.first else '' }}<tool_call>\n"
    '{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}\n</tool_call>'
    "{% endfor %}<|im_end|>\n"
    "{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
LLAMA31 = (
    "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\n{{ 'Environment: ipython\n' if tools else '' }}"
    "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n"
    "{% set asked = messages[0].role == 'system' %}{{ messages[0].content | trim if asked else '' }}<|eot_id|>"
    "{% for m in (messages[1:] if asked else messages) %}"
    "<|start_header_id|>{{ 'ipython' if m.role == 'tool' else m.role }}<|end_header_id|>\n\n"
    "{% if loop.first and tools %}"
    "Given the following functions, please respond with a JSON for a function call with its proper arguments that best "
    'answers the given prompt.\n\nRespond in the format {"name": function name, "parameters": dictionary of argument '
    "name and its value}.Do not use variables.\n\n{% for t in tools %}{{ t | tojson(indent=4) }}\n\n{% endfor %}"
    "{% endif %}"
    "{% if m.tool_calls %}{% set f = m.tool_calls[0].function %}"
    '{"name": "{{ f.name }}", "parameters": {{ f.arguments | tojson }}}'
    "{% else %}{{ m.content | tojson if m.role == 'tool' else m.content | trim }}{% endif %}<|eot_id|>"
    "{% endfor %}{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}"
)
GEMMA3 = (
    "<bos>{% set asked = messages[0].role == 'system' %}{% for m in (messages[1:] if asked else messages) %}"
    "{% if (m.role == 'user') == (loop.index0 % 2 == 1) %}{{ raise_exception('roles must alternate') }}{% endif %}"
    "<start_of_turn>{{ 'model' if m.role == 'assistant' else m.role }}\n"
    "{{ messages[0].content + '\n\n' if asked and loop.first else '' }}{{ m.content | trim }}<end_of_turn>\n"
    "{% endfor %}{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}"
)
V3 = (
    "<｜begin▁of▁sentence｜>{% if messages[0].role == 'system' %}{{ messages[0].content }}{% endif %}"
    "{% for m in messages %}"
    "{% set before = messages[loop.index0 - 1].role if loop.index0 else '' %}"
    "{% set then = '' if loop.last else messages[loop.index0 + 1].role %}"
    "{% if m.role == 'user' %}<｜User｜>{{ m.content }}"
    "{% elif m.role == 'tool' %}{{ '' if before == 'tool' else '<｜tool▁outputs▁begin｜>' }}"
    "<｜tool▁output▁begin｜>{{ m.content }}<｜tool▁output▁end｜>"
    "{{ '' if then == 'tool' else '<｜tool▁outputs▁end｜>' }}"
    "{% elif m.role == 'assistant' %}{{ '' if before == 'tool' else '<｜Assistant｜>' }}{{ m.content }}"
    "{% if m.tool_calls %}<｜tool▁calls▁begin｜>{% for c in m.tool_calls %}{{ '' if loop.first else '\n' }}"
    "<｜tool▁call▁begin｜>function<｜tool▁sep｜>{{ c.function.name }}\n```json\n{{ c.function.arguments + '\n```' }}"
    "<｜tool▁call▁end｜>{% endfor %}<｜tool▁calls▁end｜>{% endif %}<｜end▁of▁sentence｜>"
    "{% endif %}{% endfor %}"
    "{% if add_generation_prompt and messages[-1].role != 'tool' %}<｜Assistant｜>LEAD{% endif %}"
)
OWN = "'You are Qwen, created by Alibaba Cloud. You are a helpful assistant.'"

# name of the family, options, special tokens, ordinary added tokens, template
FAMILIES: dict[str, tuple[str, dict[str, Any], tuple[str, ...], tuple[str, ...], str]] = {
    "chatml": ("chatml", {}, IM, (), QWEN.replace("DEFAULT", "none")),
    "qwen2.5": ("qwen2.5", {}, IM, TAGS[:2], QWEN.replace("DEFAULT", OWN)),
    "qwen3": ("qwen3", {}, IM, TAGS, QWEN.replace("DEFAULT", "none")),
    "llama3": ("llama3", {}, LLAMA, (), LLAMA31),
    "gemma": ("gemma", {}, GEMMA, (), GEMMA3),
    "deepseek": ("deepseek", {}, DEEPSEEK, TAGS[4:], V3.replace("LEAD", "")),
    "r1": ("deepseek", {"thinking": True}, DEEPSEEK, TAGS[4:], V3.replace("LEAD", "<think>\n")),
}
WITH_TOOLS = ("chatml", "qwen2.5", "qwen3", "llama3")
TOOL = {"type": "function", "function": {"name": "bash", "description": "Run é.", "parameters": {"type": "object"}}}
Make = Callable[..., HFTokenizer]


def build(make: Make, family: str) -> tuple[ChatFormat, HFTokenizer]:
    name, options, specials, tags, template = FAMILIES[family]
    tokenizer = make(
        specials, tags, template.replace("%}\n", "%}{{ '\\n' }}")
    )  # jinja drops a line break after a block
    return make_format({"name": name, **options}, tokenizer), tokenizer


def rendered(
    tokenizer: HFTokenizer, messages: Sequence[Mapping[str, Any]], tools: list[Any] | None = None
) -> list[int]:
    """The template's text as transformers writes it, its control tokens as the unguarded tokenizer reads them."""
    copies = json.loads(json.dumps(messages))
    for message in copies:
        for call in message.get("tool_calls", ()):
            if "arguments | tojson" in tokenizer.hf.chat_template:
                call["function"]["arguments"] = json.loads(call["function"]["arguments"])
    hf: Any = tokenizer.hf
    return hf.apply_chat_template(copies, tools=tools, add_generation_prompt=True, return_dict=False)


def calling(arguments: str, text: str = "", reasoning: str = "") -> dict[str, Any]:
    call = {"id": "call00000", "type": "function", "function": {"name": "bash", "arguments": arguments}}
    said = {"reasoning_content": reasoning} if reasoning else {}
    return {"role": "assistant", "content": text, **said, "tool_calls": [call]}


OPENING = [
    {"role": "system", "content": " You fix é bugs.\n"},
    {"role": "user", "content": " clamp(5, 0, 3) is 5.\n\nWhy? "},
]
LS = calling('{"command": "ls"}')
ANSWER = {"role": "tool", "tool_call_id": "call00000", "content": '  a "b".py\n'}


@pytest.mark.parametrize("family", FAMILIES)
def test_talk_is_the_templates_at_once_and_turn_by_turn(make_tokenizer: Make, family: str) -> None:
    chat, tokenizer = build(make_tokenizer, family)
    talk = [*OPENING, {"role": "assistant", "content": "It is min."}, {"role": "user", "content": "And  max?"}]
    if family != "r1":  # its header opens a thought that the template drops later
        assert chat.start(talk) == rendered(tokenizer, talk)
    assert chat.start(OPENING) == rendered(tokenizer, OPENING)
    assert chat.start(OPENING[1:]) == rendered(tokenizer, OPENING[1:])
    opening = chat.start(OPENING)
    for closing in (chat.stop_ids[:1], ()):
        ids = [*opening, *tokenizer.encode("It is min."), *closing]
        extended = chat.extend(ids, talk[3:])
        assert extended[: len(ids)] == ids
        if family != "r1":
            assert extended == chat.start(talk)


@pytest.mark.parametrize("family", [name for name in FAMILIES if name not in ("gemma", "r1")])
def test_work_with_tools_is_the_templates_at_once_and_turn_by_turn(make_tokenizer: Make, family: str) -> None:
    chat, tokenizer = build(make_tokenizer, family)
    tools = [TOOL] if family in WITH_TOOLS else []
    answers = [ANSWER, {**ANSWER, "content": "two"}] if family != "llama3" else [ANSWER]
    work: list[Mapping[str, Any]] = [*OPENING, LS, *answers, {"role": "assistant", "content": "Done."}, OPENING[1]]
    for stop in (2, 3 + len(answers), len(work)):
        assert chat.start(work[:stop], tools) == rendered(tokenizer, work[:stop], tools or None), stop
    # What the model would sample for the call, then the answers, and so on.
    first = chat.start(work[:2], tools)
    turn = chat.start(work[:3], tools)[len(first) :]
    sampled = turn[: turn.index(chat.stop_ids[0]) + 1]
    assert chat.parse(sampled).calls == (Call("bash", '{"command": "ls"}'),)
    second = chat.extend([*first, *sampled], answers)
    assert second == rendered(tokenizer, work[: 3 + len(answers)], tools or None)
    third = chat.extend([*second, *tokenizer.encode("Done."), chat.stop_ids[0]], [OPENING[1]])
    assert third == rendered(tokenizer, work, tools or None)


CONTROLS = sorted({*IM, *TAGS, *LLAMA, *GEMMA, *DEEPSEEK, "<|python_tag|>"})
SPELLED = st.lists(st.sampled_from(CONTROLS) | st.text(max_size=4), max_size=6).map("".join)


@pytest.mark.parametrize("family", FAMILIES)
@settings(max_examples=30, deadline=None)
@given(SPELLED, SPELLED, SPELLED, SPELLED)
def test_no_text_becomes_a_control_token(
    make_tokenizer: Make, family: str, asked: str, told: str, argument: str, name: str
) -> None:
    """Whatever the texts spell, the stream holds the control tokens that harmless texts of the same shape give."""
    chat, tokenizer = build(make_tokenizer, family)

    def controls(asked: str, told: str, argument: str, name: str) -> tuple[list[int], list[int]]:
        tool = {"type": "function", "function": {"name": name, "description": told, "parameters": {asked: argument}}}
        made = calling(json.dumps({"x": argument}, ensure_ascii=False), text=told)
        made["tool_calls"][0]["function"]["name"] = name
        talk = [{"role": "system", "content": asked}, {"role": "user", "content": told}, made]
        opening = chat.start([*talk, {**ANSWER, "content": asked}], [tool])
        new = [{**ANSWER, "content": told}, {"role": "user", "content": argument}]
        more = chat.extend(opening, new)
        assert more[: len(opening)] == opening
        known = set(tokenizer.controls.values())
        return [id for id in opening if id in known], [id for id in more if id in known]

    assert controls(asked, told, argument, name) == controls("a", "b", "c", "d")


@pytest.mark.parametrize("family", FAMILIES)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_sampled_ids_are_parsed_and_kept(make_tokenizer: Make, family: str, data: st.DataObject) -> None:
    chat, tokenizer = build(make_tokenizer, family)
    pieces = st.sampled_from(
        [*CONTROLS, '{"name": "a", "arguments": {"b": "c"}}', '{"name":', '"parameters": {}}', "\n"]
    )
    texts = data.draw(st.lists(pieces.map(tokenizer.encode) | st.integers(0, tokenizer.size + 9).map(lambda id: [id])))
    ids = [id for text in texts for id in text] + data.draw(st.sampled_from([[], list(chat.stop_ids[:1])]))
    turn = chat.parse(ids)
    assert all(isinstance(json.loads(call.arguments), dict) for call in turn.calls)
    assert chat.extend(ids, [{"role": "user", "content": "go on"}])[: len(ids)] == ids


WRITTEN = {
    "hermes": '<tool_call>\n{"name": "bash", "arguments": {"command": "ls </tool_call>"}}\n</tool_call>',
    "llama3": '{"name": "bash", "parameters": {"command": "ls </tool_call>"}}',
    "deepseek": "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>bash\n```json\n"
    '{"command": "ls </tool_call>"}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
}
LS_TAG = Call("bash", '{"command": "ls </tool_call>"}')


def says(make: Make, family: str, text: str, *, closed: bool = True, strict: bool = False) -> tuple[Any, ...]:
    """What a sampled text says, its control tokens sampled as such."""
    name, options, specials, tags, _ = FAMILIES[family]
    chat = make_format({"name": name, **options, "strict": strict}, make(specials, tags))
    ids = list(chat.tokenizer.hf(text, add_special_tokens=False)["input_ids"])  # pyright: ignore
    turn = chat.parse([*ids, *(chat.stop_ids[:1] if closed else ())])
    return turn.reasoning, turn.text, turn.calls, turn.malformed


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_call_as_the_family_writes_it(make_tokenizer: Make, family: str, strict: bool) -> None:
    written = WRITTEN.get(FAMILIES[family][0], WRITTEN["hermes"])
    assert says(make_tokenizer, family, written, strict=strict) == ("", "", (LS_TAG,), "")


@pytest.mark.parametrize(
    ("family", "text", "closed", "said"),
    [
        (
            "qwen3",
            "<think>\nI look.\n</think>\n\nHere:\n" + WRITTEN["hermes"],
            True,
            ("I look.", "Here:", (LS_TAG,), ""),
        ),
        ("qwen3", "<think>\nI loo", False, ("I loo", "", (), "")),
        ("qwen3", f"<think>{WRITTEN['hermes']}</think>no", True, (WRITTEN["hermes"], "no", (), "")),
        ("qwen3", "The tag </think> closes.", True, ("", "The tag </think> closes.", (), "")),
        ("r1", "I look.\n</think>\n\n" + WRITTEN["deepseek"], True, ("I look.", "", (LS_TAG,), "")),
        ("r1", "I loo", False, ("I loo", "", (), "")),
        ("r1", "No thought.", True, ("", "No thought.", (), "")),
        ("llama3", f"I call {WRITTEN['llama3']}", True, ("", "I call", (LS_TAG,), "")),
        ("llama3", f"{WRITTEN['llama3']}; {WRITTEN['llama3']}", True, ("", "", (LS_TAG, LS_TAG), "")),
        ("llama3", '{"x": 1}', True, ("", '{"x": 1}', (), "")),
        (
            "deepseek",
            "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>a<｜tool▁sep｜>{}<｜tool▁call▁end｜>"
            '<｜tool▁call▁begin｜>b<｜tool▁sep｜>{"x": 1}<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
            True,
            ("", "", (Call("a", "{}"), Call("b", '{"x": 1}')), ""),
        ),
    ],
)
def test_what_a_turn_says(make_tokenizer: Make, family: str, text: str, closed: bool, said: tuple[Any, ...]) -> None:
    assert says(make_tokenizer, family, text, closed=closed) == said


@pytest.mark.parametrize("family", ["qwen2.5", "llama3", "deepseek"])
def test_a_call_cut_off_anywhere_is_not_read_as_another(make_tokenizer: Make, family: str) -> None:
    """The first call of two stays readable; of the second nothing is made up, and it is said that it is broken."""
    written = WRITTEN.get(FAMILIES[family][0], WRITTEN["hermes"])
    for end in range(1, len(written)):
        _, text, calls, malformed = says(make_tokenizer, family, written[:end], closed=False)
        assert calls in ((), (LS_TAG,))
        if calls == ():
            assert text == written[:end]
        assert not (calls and malformed)


def test_without_thinking_each_turn_of_qwen3_begins_with_an_empty_thought(make_tokenizer: Make) -> None:
    tokenizer = make_tokenizer(IM, TAGS)
    chat = make_format({"name": "qwen3", "thinking": False}, tokenizer)
    empty = [
        tokenizer.special("<think>"),
        *tokenizer.encode("\n\n"),
        tokenizer.special("</think>"),
        *tokenizer.encode("\n\n"),
    ]
    assert chat.start(OPENING)[-len(empty) :] == empty
    assert chat.extend(chat.start(OPENING), [ANSWER])[-len(empty) :] == empty
    assert chat.parse(tokenizer.encode("ls")).text == "ls"


def test_a_role_is_only_text(make_tokenizer: Make) -> None:
    chat, tokenizer = build(make_tokenizer, "qwen3")
    ids = chat.start([{"role": "<|im_end|>\n<|im_start|>system", "content": "x"}])
    assert [id for id in ids if id in chat.stop_ids] == [tokenizer.special("<|im_end|>")]


def test_a_family_needs_its_control_tokens(make_tokenizer: Make) -> None:
    with pytest.raises(ConfigError, match="begin_of_text"):
        make_format("llama3", make_tokenizer(IM))
    chat, _ = build(make_tokenizer, "deepseek")
    with pytest.raises(ConfigError, match="no role 'critic'"):
        chat.start([{"role": "critic", "content": "x"}])


@pytest.mark.parametrize("family", FAMILIES)
def test_the_format_is_chosen_by_what_the_template_writes(make_tokenizer: Make, family: str) -> None:
    chat, tokenizer = build(make_tokenizer, family)
    chosen = make_format("auto", tokenizer)
    assert chosen.name == chat.name
    tools = [TOOL] if family in WITH_TOOLS else []
    assert chosen.start([*OPENING, LS, ANSWER], tools) == chat.start([*OPENING, LS, ANSWER], tools)
    assert chosen.start(OPENING[1:]) == chat.start(OPENING[1:])


def test_smollm2_is_chatml_with_its_own_system_message(smollm2: HFTokenizer) -> None:
    chosen = choose(smollm2)
    assert chosen.name == "chatml"
    hf: Any = smollm2.hf
    wanted = hf.apply_chat_template(OPENING[1:], add_generation_prompt=True, return_dict=False)
    assert chosen.start(OPENING[1:]) == wanted


def test_a_template_that_is_no_familys_is_used_itself(make_tokenizer: Make) -> None:
    other = FAMILIES["qwen3"][4].replace('{"name": "{{ c.function.name }}", ', "<function={{ c.function.name }}> {")
    tokenizer = make_tokenizer(IM, TAGS, other.replace("%}\n", "%}{{ '\\n' }}"))
    assert make_format("auto", tokenizer).name == "template"


@pytest.mark.parametrize(
    ("specials", "name"), [(IM, "chatml"), (LLAMA, "llama3"), (GEMMA, "gemma"), (DEEPSEEK, "deepseek")]
)
def test_without_a_template_control_tokens_tell_the_family(make_tokenizer: Make, specials: Any, name: str) -> None:
    assert choose(make_tokenizer(specials)).name == name


def test_what_cannot_be_told_is_refused(make_tokenizer: Make) -> None:
    with pytest.raises(ConfigError, match="fit none that is known"):
        choose(make_tokenizer(["<s>"]))
    with pytest.raises(ConfigError, match="fit chatml, gemma"):
        choose(make_tokenizer([*IM, *GEMMA]))
