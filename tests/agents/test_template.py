"""A model's own chat template as a chat format: exact, extended only at the end, refused where that can't be shown."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forkgym.agents.base import Call
from forkgym.agents.formats.calls import typed_calls
from forkgym.agents.formats.chatml import ChatML
from forkgym.agents.formats.template import TemplateFormat
from forkgym.agents.registry import make_format
from forkgym.agents.tokenizers import ByteTokenizer, HFTokenizer
from forkgym.errors import ConfigError

Make = Callable[..., HFTokenizer]
IM = ("<|im_start|>", "<|im_end|>")
TAGS = ("<think>", "</think>")
# Drops the reasoning of all turns before the last user message, as Qwen 3 does (E05).
DROPPING = (
    "{% set ns = namespace(last=0) %}{% for m in messages %}{% if m.role == 'user' %}{% set ns.last = loop.index0 %}"
    "{% endif %}{% endfor %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}{{ '\n' }}"
    "{% if m.role == 'assistant' and m.reasoning_content and loop.index0 > ns.last %}<think>{{ m.reasoning_content }}"
    "</think>{% endif %}{{ m.content }}"
    "{% for c in m.tool_calls or [] %}<tool_call>{{ c.function | tojson }}</tool_call>{% endfor %}"
    "<|im_end|>{{ '\n' }}{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant{{ '\n' }}{% endif %}"
)
SIMPLE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}{{ '\n' }}{{ m.content | trim }}CALLS<|im_end|>{{ '\n' }}"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant{{ '\n' }}{% endif %}"
)
USER = {"role": "user", "content": "Fix the bug."}


def own(tokenizer: HFTokenizer, messages: list[Any], ask: bool = True) -> list[int]:
    hf: Any = tokenizer.hf
    return hf.apply_chat_template(messages, add_generation_prompt=ask, return_dict=False)


def simple(calls: str = "") -> str:
    return SIMPLE.replace("CALLS", calls)


def test_start_and_steps_are_the_templates_render(smollm2: HFTokenizer) -> None:
    chat = make_format("template", smollm2)
    messages = [{"role": "system", "content": "s"}, USER, {"role": "assistant", "content": "Yes."}, USER]
    opening = chat.start(messages[:2])
    assert opening == own(smollm2, messages[:2])
    sampled = [*smollm2.encode("Yes."), *chat.stop_ids[:1]]
    whole = chat.extend([*opening, *sampled], messages[3:])
    assert whole == own(smollm2, messages)
    assert chat.extend([*opening, *sampled[:-1]], messages[3:]) == whole
    assert ChatML(smollm2).extend([*opening, *sampled], messages[3:]) == whole


@pytest.mark.parametrize("follow", ["tool", "user"])
def test_sampled_reasoning_stays_where_the_template_would_drop_it_E05(make_tokenizer: Make, follow: str) -> None:
    tokenizer = make_tokenizer(IM, TAGS, DROPPING)
    chat = TemplateFormat(tokenizer)
    opening = chat.start([USER])
    thought = [tokenizer.special("<think>"), *tokenizer.encode("look at f first"), tokenizer.special("</think>")]
    sampled = [*thought, *tokenizer.encode("ls"), chat.stop_ids[0]]
    ids = chat.extend([*opening, *sampled], [{"role": follow, "content": "f.py"}])
    assert ids[: len(opening) + len(sampled)] == [*opening, *sampled]
    assert (
        tokenizer.decode(ids[len(opening) + len(sampled) :])
        == f"\n<|im_start|>{follow}\nf.py<|im_end|>\n<|im_start|>assistant\n"
    )
    # The template itself, asked for the whole, keeps the thought before a tool's answer and drops it before a user's.
    said = {"role": "assistant", "reasoning_content": "look at f first", "content": "ls"}
    kept = own(tokenizer, [USER, said, {"role": follow, "content": "f.py"}]) == ids
    assert kept == (follow == "tool")
    turn = chat.parse(sampled)
    assert (turn.reasoning, turn.text) == ("look at f first", "ls")


@pytest.mark.parametrize(
    ("calls", "written"),
    [
        ("{% for k, v in a.items() %}{{ k }}={{ v }};{% endfor %}", "path=a;content=x;"),
        ("{{ a | tojson }}", '{"path": "a", "content": "x"}'),
        ("{{ 'raw ' + a }}", 'raw {"path": "a", "content": "x"}'),
        ("{{ a }}", '{"path": "a", "content": "x"}'),
    ],
)
@pytest.mark.parametrize("wire", [json.dumps, dict])
def test_arguments_are_what_the_template_takes_E03(make_tokenizer: Make, calls: str, written: str, wire: Any) -> None:
    """Text on the wire or an object, a template that wants an object or a text: written once, and never quoted."""
    each = "{% for c in m.tool_calls or [] %}{% set a = c.function.arguments %}" + calls + "{% endfor %}"
    tokenizer = make_tokenizer(IM, (), simple(each))
    function = {"name": "f", "arguments": wire({"path": "a", "content": "x"})}
    said = {"role": "assistant", "content": "", "tool_calls": [{"id": "1", "type": "function", "function": function}]}
    text = tokenizer.decode(TemplateFormat(tokenizer).start([USER, said]))
    assert f"<|im_start|>assistant\n{written}<|im_end|>" in text


CALLED = "{% for c in m.tool_calls or [] %}<tool_call>{{ c.function | tojson }}</tool_call>{% endfor %}"
TOOLED = "{% for t in tools or [] %}{{ t | tojson }}{% endfor %}"
TOOL = {"type": "function", "function": {"name": "bash", "description": "d", "parameters": {"type": "object"}}}


def test_calls_are_read_by_the_parser_that_reads_the_templates_own(make_tokenizer: Make) -> None:
    tokenizer = make_tokenizer(IM, (), TOOLED + simple(CALLED))
    chat = TemplateFormat(tokenizer)
    assert tokenizer.decode(chat.start([USER], [TOOL])).startswith(json.dumps(TOOL))
    turn = chat.parse(tokenizer.encode('<tool_call>{"name": "bash", "arguments": {}}</tool_call>'))
    assert turn.calls == (Call("bash", "{}"),)


FUNCTIONS = (
    "{% for c in m.tool_calls or [] %}<tool_call>{{ '\n' }}<function={{ c.function.name }}>{{ '\n' }}"
    "{% for k, v in c.function.arguments.items() %}<parameter={{ k }}>{{ '\n' }}{{ v }}{{ '\n' }}</parameter>{{ '\n' }}"
    "{% endfor %}</function>{{ '\n' }}</tool_call>{% endfor %}"
)


def test_arguments_without_types_are_read_as_the_tools_schema_says(make_tokenizer: Make) -> None:
    """As Qwen 3.5 writes calls: a number for a number, and for a text whatever it looks like."""
    tokenizer = make_tokenizer(IM, (), TOOLED + simple(FUNCTIONS))
    chat = make_format("auto", tokenizer)
    assert chat.name == "template"
    written = "<tool_call>\n<function=put>\n" + "".join(
        f"<parameter={name}>\n{value}\n</parameter>\n"
        for name, value in [("line", "3"), ("text", "42"), ("all", "true"), ("new", "7"), ("bad", "x"), ("nan", "NaN")]
    ) + "</function>\n</tool_call>"  # fmt: skip
    kinds = {"line": "integer", "text": "string", "all": "boolean", "bad": "integer"}
    parameters = {"type": "object", "properties": {name: {"type": kind} for name, kind in kinds.items()}}
    tools = [{"type": "function", "function": {"name": "put", "description": "", "parameters": parameters}}]
    chat.start([USER], tools)
    turn = chat.parse(tokenizer.encode(written))
    assert (turn.text, turn.malformed, [call.untyped for call in turn.calls]) == ("", "", [True])
    (call,) = typed_calls(turn, tools).calls
    assert json.loads(call.arguments) == {
        "line": 3, "text": "42", "all": True, "new": "7", "bad": "x", "nan": "NaN",
    }  # fmt: skip
    assert not call.untyped
    (unknown,) = typed_calls(turn, []).calls
    assert json.loads(unknown.arguments)["line"] == "3"


@pytest.mark.parametrize(
    ("template", "message"),
    [
        (simple(CALLED), "leaves tools out"),
        (
            TOOLED + simple("{% for c in m.tool_calls or [] %}run {{ c.function.name }}{% endfor %}"),
            "no parser here reads",
        ),
    ],
)
def test_tools_are_never_left_out_in_silence(make_tokenizer: Make, template: str, message: str) -> None:
    chat = TemplateFormat(make_tokenizer(IM, (), template))
    with pytest.raises(ConfigError, match=message):
        chat.start([USER], [TOOL])


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}", "does not close an assistant turn"),
        (simple().replace("{{ m.content | trim }}", "hello"), "does not close an assistant turn"),
        ("{{ raise_exception('no') }}", "refuses these messages: no"),
    ],
)
def test_templates_that_cannot_be_extended_are_refused(make_tokenizer: Make, template: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        TemplateFormat(make_tokenizer(IM, (), template))


def test_a_template_that_looks_back_is_refused_when_it_matters(make_tokenizer: Make) -> None:
    """It numbers its messages: what a new one says depends on how many came before."""
    chat = TemplateFormat(make_tokenizer(IM, (), simple().replace("{{ m.role }}", "{{ m.role }} {{ loop.index }}")))
    ids = chat.start([USER])
    with pytest.raises(ConfigError, match="by what came before"):
        chat.extend(ids, [USER])


def test_roles_that_the_template_refuses_are_refused(make_tokenizer: Make) -> None:
    strict = (
        "{% for m in messages %}{% if m.role == 'tool' %}{{ raise_exception('no tools here') }}{% endif %}{% endfor %}"
    )
    chat = TemplateFormat(make_tokenizer(IM, (), strict + simple()))
    with pytest.raises(ConfigError, match="no tools here"):
        chat.extend(chat.start([USER]), [{"role": "tool", "content": "x"}])


@pytest.mark.parametrize("role", ["tool", "system"])
def test_messages_are_never_left_out_in_silence(make_tokenizer: Make, role: str) -> None:
    """As templates do that write only the roles they know (Phi 3), or that put all system messages first."""
    known = simple().replace("{% for m in messages %}", "{% for m in messages if m.role != '" + role + "' %}")
    chat = TemplateFormat(make_tokenizer(IM, (), known))
    said = {"role": role, "content": "x"}
    with pytest.raises(ConfigError, match=f"leaves out what the role '{role}' says"):
        chat.extend(chat.start([USER]), [said])
    with pytest.raises(ConfigError, match=f"leaves out what the role '{role}' says"):
        chat.start([said, USER] if role == "system" else [USER, said])


def test_a_tokenizer_without_a_template_is_refused(make_tokenizer: Make) -> None:
    for tokenizer in (ByteTokenizer(), make_tokenizer(IM)):
        with pytest.raises(ConfigError, match="no chat template"):
            make_format("template", tokenizer)


def test_tokens_that_swallow_white_space_do_so(make_tokenizer: Make) -> None:
    """As Phi 3 has them; the ids are those of transformers."""
    tokenizer = make_tokenizer(IM, (), simple())
    spec = json.loads(tokenizer.hf.backend_tokenizer.to_str())  # pyright: ignore
    for token in spec["added_tokens"]:
        token["rstrip"] = True
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast

    hf = PreTrainedTokenizerFast(tokenizer_object=Tokenizer.from_str(json.dumps(spec)), chat_template=simple())
    swallowing = HFTokenizer(hf)
    messages = [USER, {"role": "assistant", "content": "x"}, USER]
    assert TemplateFormat(swallowing).start(messages) == own(swallowing, messages)


SPELLED = st.lists(st.sampled_from([*IM, *TAGS, "\U000f0000"]) | st.text(max_size=4), max_size=6).map("".join)


@settings(max_examples=40, deadline=None)
@given(SPELLED, SPELLED, SPELLED)
def test_no_text_becomes_a_control_token(make_tokenizer: Make, asked: str, told: str, argument: str) -> None:
    tokenizer = make_tokenizer(IM, TAGS, TOOLED + simple(CALLED))
    chat = TemplateFormat(tokenizer)

    def controls(asked: str, told: str, argument: str) -> list[int]:
        function = {"name": "f", "arguments": json.dumps({argument: argument})}
        said = {"role": "assistant", "content": f"x{told}", "tool_calls": [{"id": "1", "function": function}]}
        tool = {"type": "function", "function": {"name": "f", "description": told, "parameters": {argument: asked}}}
        opening = chat.start([{"role": "user", "content": asked}, said], [tool])
        more = chat.extend(opening, [{"role": "tool", "content": told}, {"role": "user", "content": asked}])
        assert more[: len(opening)] == opening
        assert told.strip() in tokenizer.decode(more)
        return [id for id in more if id in tokenizer.controls.values()]

    assert controls(asked, told, argument) == controls("a", "b", "c")
