"""Endpoints, against a real HTTP server on loopback that is good, old, odd, slow or hostile."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from forkgym.agents.base import Completion, Episode, SamplingParams
from forkgym.agents.collect import Job, collect
from forkgym.agents.errors import ContextLengthError, PolicyError
from forkgym.agents.formats.chatml import ChatML
from forkgym.agents.loops.bash import BashAgent
from forkgym.agents.loops.chat import ChatAgent
from forkgym.agents.policies.endpoint import Endpoint
from forkgym.agents.policies.http import JsonClient
from forkgym.agents.policies.opening import open_policy
from forkgym.agents.policies.vllm_server import VLLMServer
from forkgym.agents.records import decode_episode, encode_episode
from forkgym.agents.tokenizers import ByteTokenizer, HFTokenizer
from forkgym.cli.main import main
from forkgym.errors import ConfigError
from forkgym.trainers.batch import keep_trainable
from forkgym.trainers.errors import TrainerError

END = 257
MODELS = {"data": [{"id": "m", "object": "model", "root": "/nowhere", "max_model_len": 64}]}
Answer = tuple[int, Any] | tuple[int, Any, Mapping[str, str]] | None


@dataclass
class Server:
    """Answers by ``routes``: path -> function of the body; ``None`` breaks the connection off. Keeps what it gets."""

    routes: dict[str, Callable[[Any], Answer]]
    seen: list[tuple[str, Any, Mapping[str, str]]] = field(default_factory=list)
    connections: int = 0
    url: str = ""
    endpoints: list[Endpoint] = field(default_factory=list)

    def connect(self, model: str | None = "m", **options: Any) -> Endpoint:
        """An endpoint over this server that hardly waits between tries; closed with it."""
        self.endpoints.append(Endpoint(self.url, model, **options))
        self.endpoints[-1].http._pause = 0.001
        return self.endpoints[-1]

    def bodies(self, path: str) -> list[Any]:
        return [body for where, body, _ in self.seen if where == path]


@pytest.fixture
def serve() -> Iterator[Callable[..., Server]]:
    running: list[tuple[ThreadingHTTPServer, Server]] = []

    def start(**routes: Callable[[Any], Answer]) -> Server:
        named = {"/v1/" + path.replace("__", "/"): answer for path, answer in routes.items()}
        state = Server({"/v1/models": lambda body: (200, MODELS), **named})

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self) -> None:
                state.connections += 1
                super().setup()

            def do_GET(self) -> None:
                self.do_POST()

            def do_POST(self) -> None:
                data = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                body = json.loads(data) if data else None
                state.seen.append((self.path, body, dict(self.headers)))
                answer = state.routes.get(self.path, lambda body: (404, {"error": "no such path"}))(body)
                if answer is None:
                    self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{")
                    self.close_connection = True
                    return
                status, content, *headers = answer
                payload = content if isinstance(content, bytes) else json.dumps(content).encode()
                self.send_response(status)
                for name, value in (headers[0] if headers else {}).items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(payload)))
                self.end_headers()
                self.wfile.write(payload)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        running.append((server, state))
        state.url = f"http://127.0.0.1:{server.server_port}/v1"
        return state

    yield start
    for server, state in running:
        for endpoint in state.endpoints:
            endpoint.close()
        server.shutdown()
        server.server_close()


def answer(body: Any, **changes: Any) -> Any:
    """What vLLM answers: four tokens in the probe, else ``ab`` and the first stop id. Log-probabilities are exact."""
    probe = body["top_k"] == 1
    ids = [1] * 4 if probe else [97, 98, *body["stop_token_ids"][:1]][: body["max_tokens"]]
    scores = [0.0] * 4 if probe else [-0.25, -1.5, -0.125][: len(ids)]
    done = bool(body["stop_token_ids"]) and len(ids) == 3
    choice = {
        "index": 0,
        "text": "ab",
        "finish_reason": "stop" if done else "length",
        "token_ids": ids,
        "prompt_token_ids": body["prompt"],
        "logprobs": {"token_logprobs": scores, "tokens": ["x"] * len(ids)},
    }
    return {"id": "c", "choices": [choice | changes]}


def exact(body: Any) -> Answer:
    return 200, answer(body)


PARAMS = SamplingParams(max_tokens=8, stop_ids=(END, 9), seed=5)


def test_what_the_server_sampled_comes_back_exactly(serve: Any) -> None:
    server = serve(completions=exact)
    endpoint = server.connect(version=3)
    assert server.seen == []  # nothing is sent before it is used
    assert endpoint.generate([[10, 11]], PARAMS) == [Completion((97, 98, END), (-0.25, -1.5, -0.125), "stop", 3)]
    assert endpoint.generate([[10]], SamplingParams(max_tokens=2))[0].finish_reason == "length"
    assert len(server.bodies("/v1/models")) == 1
    probe, body, _ = server.bodies("/v1/completions")
    assert probe["max_tokens"] == 4
    assert body["prompt"] == [10, 11]
    # Defaults of a server, such as those of a model's generation_config.json, may not shape the distribution.
    neutral = {"top_p": 1.0, "top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0, "temperature": 1.0}
    assert {name: body[name] for name in neutral} == neutral
    assert (body["ignore_eos"], body["stop_token_ids"], body["return_token_ids"]) == (True, [END, 9], True)


def test_prompts_of_one_call_have_seeds_of_their_own(serve: Any) -> None:
    server = serve(completions=exact)
    assert len(server.connect().generate([[7], [7], [8]], PARAMS)) == 3
    seeds = {body["seed"] for body in server.bodies("/v1/completions")[1:]}
    assert len(seeds) == 3
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_the_window_of_the_server_bounds_a_completion(serve: Any) -> None:
    server = serve(completions=exact)
    endpoint = server.connect()
    assert len(endpoint.generate([[5] * 62], PARAMS)[0].ids) == 2
    with pytest.raises(ContextLengthError, match="window is 64"):
        endpoint.generate([[5] * 64], PARAMS)
    server.routes["/v1/completions"] = lambda body: (400, {"error": {"message": "maximum context length is 8 tokens"}})
    with pytest.raises(ContextLengthError, match="maximum context length"):
        endpoint.generate([[5]], PARAMS)
    server.routes["/v1/completions"] = lambda body: (400, {"error": {"message": "Token id 9 is out of vocabulary"}})
    with pytest.raises(PolicyError, match="out of vocabulary") as caught:
        endpoint.generate([[5]], PARAMS)
    assert not isinstance(caught.value, ContextLengthError)


def test_raw_logprobs_are_found_out_and_refused_where_they_are_wrong(serve: Any) -> None:
    """A server that scores before temperature and cuts gives away its habit: one candidate, yet not probability 1."""

    def raw(body: Any) -> Answer:
        return 200, answer(body, **({"logprobs": {"token_logprobs": [-1.0] * 4}} if body["top_k"] == 1 else {}))

    endpoint = serve(completions=raw).connect()
    assert endpoint.generate([[1]], PARAMS)[0].logprobs == (-0.25, -1.5, -0.125)
    for other in ({"temperature": 0.7}, {"top_p": 0.9}, {"top_k": 5}):
        with pytest.raises(ConfigError, match="--logprobs-mode processed_logprobs"):
            endpoint.generate([[1]], SamplingParams(**other))  # type: ignore[arg-type]


WRONG: dict[str, dict[str, Any]] = {
    "E09 no ids": {"token_ids": None},
    "E09 empty ids": {"token_ids": [], "logprobs": {"token_logprobs": []}},
    "ids that are texts": {"token_ids": ["97", "98", "257"]},
    "negative ids": {"token_ids": [97, -1, END]},
    "no logprobs": {"logprobs": None},
    "fewer logprobs": {"logprobs": {"token_logprobs": [-1.0, -1.0]}},
    "null logprob": {"logprobs": {"token_logprobs": [-1.0, None, -1.0]}},
    "NaN logprob": {"logprobs": {"token_logprobs": [-1.0, float("nan"), -1.0]}},
    "infinite logprob": {"logprobs": {"token_logprobs": [-1.0, float("-inf"), -1.0]}},
    "clamped logprob": {"logprobs": {"token_logprobs": [-1.0, -9999.0, -1.0]}},
    "positive logprob": {"logprobs": {"token_logprobs": [-1.0, 0.5, -1.0]}},
    "another prompt": {"prompt_token_ids": [1, 5]},
    "no prompt": {"prompt_token_ids": None},
    "aborted": {"finish_reason": "abort"},
    "unfinished": {"finish_reason": None},
    "cut short": {"finish_reason": "length"},
    "too many": {"token_ids": [97] * 9, "logprobs": {"token_logprobs": [-1.0] * 9}},
    "stop token left out": {"token_ids": [97, 98], "logprobs": {"token_logprobs": [-1.0, -1.0]}},
    "on after a stop": {"token_ids": [97, 9, END]},
}


@pytest.mark.parametrize("changes", WRONG.values(), ids=WRONG.keys())
def test_answers_that_cannot_be_trained_on_are_engine_failures(serve: Any, changes: dict[str, Any]) -> None:
    endpoint = serve(completions=lambda body: (200, answer(body, **({} if body["top_k"] == 1 else changes)))).connect()
    with pytest.raises(PolicyError):
        endpoint.generate([[5]], PARAMS)


@pytest.mark.parametrize(
    "text", [b"", b"{", b"null", b"[]", b'{"choices": []}', b'{"choices": 3}', b"<html>hello</html>"]
)
def test_answers_that_are_none_are_engine_failures(serve: Any, text: bytes) -> None:
    endpoint = serve(completions=lambda body: exact(body) if body["top_k"] == 1 else (200, text)).connect()
    with pytest.raises(PolicyError):
        endpoint.generate([[5]], PARAMS)


def test_two_choices_are_an_engine_failure(serve: Any) -> None:
    def two(body: Any) -> Answer:
        given = answer(body)
        return 200, given if body["top_k"] == 1 else {"choices": given["choices"] * 2}

    with pytest.raises(PolicyError, match="choices"):
        serve(completions=two).connect().generate([[5]], PARAMS)


@pytest.mark.parametrize(
    ("completions", "why"),
    [
        (lambda body: (404, {"error": "not here"}), "refuses token ids"),
        (lambda body: (400, {"error": "unrecognized argument: return_token_ids"}), "unrecognized argument"),
        (lambda body: (200, answer(body, token_ids=None)), "token_ids"),
        (lambda body: (200, answer(body, logprobs=None)), "logprobs"),
        (lambda body: (200, answer(body, prompt_token_ids=[0, 1, 2])), "other ids"),
    ],
)
def test_E09_a_server_of_texts_is_refused_before_an_episode(
    serve: Any, make_env: Any, completions: Callable[[Any], Answer], why: str
) -> None:
    endpoint = serve(completions=completions).connect()
    with pytest.raises(ConfigError, match=f"gives no exact tokens: .*{why}.*Training needs a server"):
        play(make_env(), endpoint)


def play(env: Any, endpoint: Endpoint) -> Episode:
    agent = BashAgent(ChatML(ByteTokenizer()))
    params = SamplingParams(max_tokens=8)
    return agent.run(env, endpoint, task="test/clamp", seed=0, sampling=params, episode="e", group="g")


def test_E09_ids_that_stop_coming_fail_the_episode_and_give_no_reward(serve: Any, make_env: Any) -> None:
    def forgetful(body: Any) -> Answer:
        return exact(body) if body["top_k"] == 1 else (200, answer(body, token_ids=None))

    big = {"data": [{"id": "m", "max_model_len": 100_000}]}
    episode = play(make_env(), serve(completions=forgetful, models=lambda body: (200, big)).connect())
    assert (episode.status, episode.reason, episode.reward) == ("failed", "engine", None)
    assert "token_ids" in episode.detail


def test_busy_and_broken_servers_are_asked_again(serve: Any) -> None:
    faults: list[Answer] = [(429, {"error": "slow down"}, {"Retry-After": "0"}), (503, b""), None, (500, b"oops")]

    def flaky(body: Any) -> Answer:
        return exact(body) if body["top_k"] == 1 or not faults else faults.pop(0)

    server = serve(completions=flaky)
    assert server.connect().generate([[5]], PARAMS)[0].ids == (97, 98, END)
    sent = server.bodies("/v1/completions")[1:]
    assert len(sent) == 5
    assert sent == [sent[0]] * 5  # the same seed: one sample, however often it is asked for


@pytest.mark.parametrize("fault", [(429, {"error": "slow down"}), None, (500, b"oops")])
def test_a_server_that_stays_broken_fails_after_the_retries(serve: Any, fault: Answer) -> None:
    server = serve(completions=lambda body: exact(body) if body["top_k"] == 1 else fault)
    with pytest.raises(PolicyError, match=r"slow down|failed 3 times.*IncompleteRead|500: oops"):
        server.connect(retries=2).generate([[5]], PARAMS)
    assert len(server.bodies("/v1/completions")) == 1 + 3


def test_a_refusal_is_not_asked_again(serve: Any) -> None:
    server = serve(completions=lambda body: (401, {"error": "bad key"}))
    with pytest.raises(PolicyError, match=r"401: .*bad key"):
        server.connect().generate([[5]], PARAMS)
    assert len(server.bodies("/v1/completions")) == 1


def test_no_server_is_an_engine_failure_that_names_it() -> None:
    endpoint = Endpoint("http://127.0.0.1:1/v1", "m", retries=1)  # nothing listens there
    endpoint.http._pause = 0.001
    with pytest.raises(PolicyError, match=r"http://127\.0\.0\.1:1/v1/models failed 2 times.*refused"):
        endpoint.generate([[5]], PARAMS)


def test_the_key_goes_to_its_server_only(serve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    thief = serve()
    server = serve(chat__completions=lambda body: (307, b"", {"Location": thief.url + "/chat/completions"}))
    monkeypatch.setenv("MY_KEY", "secret")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    for spec, header in ((",key=MY_KEY", "Bearer secret"), ("", None)):
        with open_policy(f"endpoint:{server.url}#m{spec}") as opened, pytest.raises(PolicyError, match="redirects"):
            opened.policy.reply([], [], PARAMS.__class__())  # type: ignore[attr-defined]
        assert server.seen[-1][2].get("Authorization") == header
    assert thief.seen == []


def test_connections_are_kept_and_bounded(serve: Any) -> None:
    busy, most, lock = 0, 0, threading.Lock()
    gate = threading.Barrier(2, timeout=30)

    def slow(body: Any) -> Answer:
        nonlocal busy, most
        if body["top_k"] == 1:
            return exact(body)
        with lock:
            busy += 1
            most = max(most, busy)
        gate.wait()
        with lock:
            busy -= 1
        return exact(body)

    server = serve(completions=slow)
    endpoint = server.connect(concurrency=2)
    with ThreadPoolExecutor(8) as pool:
        assert len(list(pool.map(lambda n: endpoint.generate([[n]], PARAMS), range(8)))) == 8
    assert most == 2
    assert server.connections <= 2


def test_a_kept_connection_that_the_server_closed_is_replaced(serve: Any) -> None:
    server = serve(completions=lambda body: (*exact(body), {"Connection": "close"}))  # type: ignore[misc]
    server.routes["/v1/echo"] = lambda body: (200, [body])
    client = JsonClient(server.url, None, concurrency=1, timeout=10, retries=0)
    assert client.call("POST", "/echo", {"a": 1}) == [{"a": 1}]
    [kept] = client._idle
    assert kept.sock is not None
    kept.sock.shutdown(2)  # as if the other side had gone
    assert client.call("POST", "/echo", {"a": 2}) == [{"a": 2}]
    client.close()


@pytest.mark.parametrize(
    ("url", "message"),
    [("ftp://x/v1", "must be a URL"), ("127.0.0.1:80", "must be a URL"), ("http://u:p@x/v1", "keys come from"),
     ("http://x:y/v1", "Port"), ("http://x/v1?key=1", "keys come from")],
)  # fmt: skip
def test_urls_that_are_none(url: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Endpoint(url)


def test_the_model_is_named_if_there_are_several(serve: Any) -> None:
    server = serve(models=lambda body: (200, {"data": [{"id": "a"}, {"id": "b"}]}))
    with pytest.raises(ConfigError, match=r"serves a, b; name one: endpoint:.*#MODEL"):
        server.connect(None).served()
    assert server.connect("b").served().model == "b"
    assert server.connect("hidden", context=9).served().context == 9


def test_the_tokenizer_is_that_of_the_served_model(serve: Any, smollm2: HFTokenizer, tmp_path: Path) -> None:
    smollm2.hf.save_pretrained(tmp_path)
    server = serve(completions=exact)
    server.routes["/tokenize"] = lambda body: (200, {"tokens": smollm2.encode(body["prompt"])})
    spec = f"endpoint:{server.url}#m"
    with open_policy(f"{spec},tokenizer={tmp_path}") as opened:
        assert opened.tokenizer.encode("a b") == smollm2.encode("a b")
    with open_policy(spec) as opened, pytest.raises(ConfigError, match="tokenizer=FOLDER"):
        _ = opened.tokenizer
    server.routes["/tokenize"] = lambda body: (200, {"tokens": [1, 2, 3]})
    with open_policy(f"{spec},tokenizer={tmp_path}") as opened, pytest.raises(ConfigError, match="is not that of"):
        _ = opened.tokenizer
    del server.routes["/tokenize"]  # a server that cannot say
    with open_policy(f"{spec},tokenizer={tmp_path}") as opened:
        assert opened.tokenizer.size > 49_000


def said(text: str, *calls: tuple[str, Any], **more: Any) -> Any:
    """A chat completion; arguments that are no text are written as JSON."""
    tools = [
        {"id": f"call-{n}", "type": "function",
         "function": {"name": name, "arguments": a if isinstance(a, str) else json.dumps(a)}}
        for n, (name, a) in enumerate(calls)
    ]  # fmt: skip
    message = {"role": "assistant", "content": text or None, "reasoning_content": "hm", "tool_calls": tools or None}
    finish = "tool_calls" if calls else "stop"
    return {"choices": [{"message": message, "finish_reason": finish} | more], "usage": {"completion_tokens": 7}}


FIX = ("bash", {"command": "sed -i '5s/x/high/' clamp.py"})


def scripted(*turns: Any) -> Callable[[Any], Answer]:
    """One answer after another, by how often the assistant has spoken."""
    return lambda body: (200, turns[sum(m["role"] == "assistant" for m in body["messages"])])


def chat(env: Any, server: Server, **options: Any) -> Episode:
    [episode] = collect(
        [Job("test/clamp", 3, "g", "e")], lambda: env, ChatAgent(**options), server.connect(retries=0),
        sampling=SamplingParams(max_tokens=50, temperature=0.5), retries=0, max_failed_share=1.0,
    ).episodes  # fmt: skip
    return episode


def test_a_server_of_texts_plays_with_tools_and_is_not_trained_on(serve: Any, make_env: Any) -> None:
    turns = [said("Looking.", ("bash", {"command": "cat clamp.py"}), FIX), said("Hm."), said("", ("submit", {}))]
    server = serve(chat__completions=scripted(*turns))
    episode = chat(make_env(), server)
    assert (episode.status, episode.reward, episode.harness) == ("finished", 1.0, "chat")
    assert [(step.turn, step.text) for step in episode.steps] == [(0, "Looking."), (0, ""), (1, "Hm."), (2, "")]
    assert (episode.metrics["server_tokens"], episode.segments) == (21.0, [])
    first, _, last = server.bodies("/v1/chat/completions")
    assert (first["model"], first["max_tokens"], first["temperature"]) == ("m", 50, 0.5)
    assert "top_p" not in first
    assert {tool["function"]["name"] for tool in first["tools"]} >= {"bash", "submit"}
    roles = [(message["role"], message.get("tool_call_id")) for message in last["messages"]]
    assert roles == [("system", None), ("user", None), ("assistant", None), ("tool", "call-0"), ("tool", "call-1"),
                     ("assistant", None), ("user", None)]  # fmt: skip
    assert all("reasoning_content" not in message for message in last["messages"])
    assert decode_episode(encode_episode(episode)).reward == 1.0
    with pytest.raises(TrainerError, match="no sampled token ids"):
        keep_trainable([episode])


def test_arguments_that_are_no_object_are_answered(serve: Any, make_env: Any) -> None:
    server = serve(
        chat__completions=scripted(said("", ("bash", "{oops")), said("", ("nope", {})), said("", ("submit", {})))
    )
    episode = chat(make_env(), server)
    assert (episode.status, episode.reward) == ("finished", 0.0)
    assert "not a JSON object" in episode.steps[0].observation
    assert "nope" in episode.steps[1].observation


@pytest.mark.parametrize(
    "given",
    [
        {"choices": []},
        {"choices": [{"finish_reason": "stop"}]},
        said("x", finish_reason="error"),
        said("", ("bash", {}), message={"tool_calls": [{"id": 1}]}),
        said(
            "",
            ("bash", {}),
            message={"content": "", "tool_calls": said("", FIX)["choices"][0]["message"]["tool_calls"] * 2},
        ),
        b"not json",
    ],
)
def test_chat_answers_that_are_none_are_engine_failures(serve: Any, make_env: Any, given: Any) -> None:
    episode = chat(make_env(), serve(chat__completions=lambda body: (200, given)))
    assert (episode.status, episode.reason, episode.reward) == ("failed", "engine", None)


def test_a_full_window_ends_a_chat_as_truncated(serve: Any, make_env: Any) -> None:
    def full(body: Any) -> Answer:
        if len(body["messages"]) > 2:
            return 400, {"error": {"code": "context_length_exceeded", "message": "too long"}}
        return 200, said("", FIX)

    episode = chat(make_env(), serve(chat__completions=full))
    assert (episode.status, episode.reason, episode.reward) == ("truncated", "context", 1.0)


def test_a_server_that_names_the_limit_otherwise_is_understood(serve: Any) -> None:
    def newer(body: Any) -> Answer:
        if "max_tokens" in body:
            return 400, {"error": {"message": "'max_tokens' is not supported. Use 'max_completion_tokens' instead."}}
        return 200, said("hi")

    server = serve(chat__completions=newer)
    endpoint = server.connect()
    params = SamplingParams(max_tokens=9, top_p=0.5, stop=("x",))
    assert [endpoint.reply([], [], params).turn.text for _ in range(2)] == ["hi", "hi"]
    assert len(server.bodies("/v1/chat/completions")) == 3
    assert server.bodies("/v1/chat/completions")[-1]["max_completion_tokens"] == 9
    with pytest.raises(ConfigError, match="no stop ids"):
        endpoint.reply([], [], PARAMS)


def test_the_chat_agent_needs_a_server(make_env: Any) -> None:
    with pytest.raises(ConfigError, match="--policy endpoint:URL"):
        ChatAgent().run(make_env(), None, task="test/clamp", seed=0, sampling=PARAMS, episode="e", group="g")


def test_eval_measures_any_server(serve: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    command = {"command": "sed -i 's/return x$/return high/' clamp.py; cat clamp.py"}
    server = serve(chat__completions=scripted(said("", ("bash", command)), said("", ("submit", {}))))
    words = ["eval", "--agent", "chat", "--policy", f"endpoint:{server.url}#m", "--tasks", "swe/tiny/clamp/upper-bound"]
    assert main([*words, "--out", str(tmp_path / "run"), "--json"]) == 0
    summary = json.loads(capfd.readouterr().out)["summary"]
    assert (summary["episodes"], summary["scored"]) == (1, 1)
    assert server.bodies("/v1/completions") == []  # no probe: nobody needs ids
    words[2] = "bash"
    assert main([*words, "--out", str(tmp_path / "other")]) == 2
    assert "cannot be given token ids" in capfd.readouterr().err


@dataclass
class Loader:
    """The routes by which vLLM takes weights: what it loaded, and what it says of its prefix cache."""

    loaded: list[dict[str, Any]] = field(default_factory=list)
    emptied: bool = True

    def rpc(self, body: Any) -> Answer:
        assert body["method"] == "take_weights"
        self.loaded.append(load_file(Path(body["kwargs"]["folder"]) / "model.safetensors"))
        return 200, {"results": [None]}

    def reset(self, body: Any) -> Answer:
        return 200, {"success": self.emptied}


@pytest.fixture
def trained(serve: Any, tmp_path: Path) -> tuple[VLLMServer, Server, Loader]:
    """A server of a model of two weights, whose head is tied to its embedding, and what it loads."""
    folder = tmp_path / "model"
    folder.mkdir()
    save_file({"embed": torch.zeros(3, 2), "norm": torch.ones(2)}, folder / "model.safetensors")
    (folder / "config.json").write_text('{"tie_word_embeddings": true}')
    loader = Loader()
    server = serve(completions=exact, models=lambda body: (200, {"data": [{"id": "m", "root": str(folder)}]}))
    server.routes |= {"/collective_rpc": loader.rpc, "/reset_prefix_cache": loader.reset}
    policy = VLLMServer(server.url, exchange=tmp_path / "exchange", retries=0, version=7)
    server.endpoints.append(policy)
    return policy, server, loader


def test_a_server_gets_all_weights_and_a_new_version(trained: Any, tmp_path: Path) -> None:
    policy, server, loader = trained
    assert policy.generate([[5]], PARAMS)[0].version == 7
    assert policy.update({"norm": torch.tensor([2.0, 3.0])}) == 8
    assert policy.update({"embed": torch.ones(3, 2), "lm_head.weight": torch.ones(3, 2)}) == 9
    first, second = ({name: value.tolist() for name, value in weights.items()} for weights in loader.loaded)
    assert first == {"embed": [[0, 0]] * 3, "norm": [2, 3]}
    assert second == {"embed": [[1, 1]] * 3, "norm": [2, 3]}  # what was trained before stays
    assert [path for path, _, _ in server.seen[-2:]] == ["/collective_rpc", "/reset_prefix_cache"]
    assert policy.generate([[5]], PARAMS)[0].version == 9
    assert list((tmp_path / "exchange").iterdir()) == []


def test_wrong_weights_change_nothing(trained: Any) -> None:
    policy, _, loader = trained
    for weights, message in (({"nope": torch.ones(1)}, "no such weights"), ({"norm": torch.ones(3)}, r"shape \(3,\)")):
        with pytest.raises(PolicyError, match=message):
            policy.update(weights)
    assert loader.loaded == []
    assert policy.generate([[5]], PARAMS)[0].version == 7


def test_a_server_of_unknown_weights_is_not_sampled_from(trained: Any) -> None:
    policy, server, loader = trained
    loader.emptied = False
    with pytest.raises(PolicyError, match="keeps its prefix cache"):
        policy.update({})
    with pytest.raises(PolicyError, match="not known which weights"):
        policy.generate([[5]], PARAMS)
    loader.emptied = True
    assert policy.update({}) == 8
    assert policy.generate([[5]], PARAMS)[0].version == 8
    server.routes["/collective_rpc"] = lambda body: (500, {"error": "no attribute 'take_weights'"})
    with pytest.raises(ConfigError, match="--worker-extension-cls"):
        policy.update({})
    del server.routes["/collective_rpc"]
    with pytest.raises(ConfigError, match="VLLM_SERVER_DEV_MODE=1"):
        policy.update({})


def test_an_update_waits_for_what_is_under_way_and_holds_back_the_rest(trained: Any) -> None:
    policy, server, _ = trained
    begun, go = threading.Event(), threading.Event()

    def slow(body: Any) -> Answer:
        begun.set()
        go.wait(30)
        return exact(body)

    policy.generate([[5]], PARAMS)
    server.routes["/v1/completions"] = slow
    with ThreadPoolExecutor(3) as pool:
        first = pool.submit(policy.generate, [[5]], PARAMS)
        begun.wait(30)
        update = pool.submit(policy.update, {})
        while not policy._updating:
            time.sleep(0.001)
        second = pool.submit(policy.generate, [[6]], PARAMS)
        assert "/collective_rpc" not in [path for path, _, _ in server.seen]
        go.set()
        assert [first.result()[0].version, update.result(), second.result()[0].version] == [7, 8, 8]
    paths = [path for path, _, _ in server.seen][-4:]
    assert paths == ["/v1/completions", "/collective_rpc", "/reset_prefix_cache", "/v1/completions"]
