"""Opening an endpoint from one line of text, and the tokenizer of the model that it serves."""

from __future__ import annotations

import os
from pathlib import Path

from forkgym.agents.policies.endpoint import Endpoint
from forkgym.agents.policies.http import StatusError
from forkgym.agents.policies.opening import Opened
from forkgym.agents.tokenizers import Tokenizer, load_tokenizer
from forkgym.errors import ConfigError
from forkgym.registry import resolve

_SAMPLE = "def f(x):\n\treturn  x + 1  # naïve 文字 🙂\n\n```bash\nls -la\n```"


def open_endpoint(
    where: str,
    *,
    tokenizer: str | None = None,
    key: str = "OPENAI_API_KEY",
    concurrency: int = 64,
    timeout: float = 600.0,
    retries: int = 5,
    context: int | None = None,
    version: int = 0,
) -> Opened:
    """``URL#MODEL`` as a policy, for ``open_policy``; see ``Endpoint``.

    ``key`` names the environment variable that holds the key; if it is not set, none is sent. ``tokenizer`` is a
    model's name or folder, needed by agents that write token ids if the server names no folder on this machine.
    """
    url, _, model = where.partition("#")
    endpoint = Endpoint(
        url,
        model or None,
        key=os.environ.get(key),
        concurrency=concurrency,
        timeout=timeout,
        retries=retries,
        context=context,
        version=version,
    )
    return Opened(endpoint, lambda: tokenizer_of(endpoint, tokenizer))


def tokenizer_of(endpoint: Endpoint, name: str | None) -> Tokenizer:
    """The tokenizer of what is served: ``name``, or the folder that the server names, if it is on this machine.

    Raises ``ConfigError`` if there is none, if the server gives no exact tokens, or if it splits a text otherwise.
    """
    if refusal := endpoint.refusal():
        raise ConfigError(f"{endpoint.http.url} cannot be given token ids: {refusal}. Choose --agent chat")
    folder = endpoint.served().folder
    if name is None and not (folder and Path(folder, "config.json").is_file()):
        raise ConfigError(f"{endpoint.http.url} does not tell its tokenizer; add ,tokenizer=FOLDER to the policy")
    place = Path(name or folder)
    if not place.is_dir():
        place = resolve("function", "forkgym.agents.models:model_folder", {})(str(place))
    found = load_tokenizer(place)
    ask = {"model": endpoint.served().model, "prompt": _SAMPLE, "add_special_tokens": False}
    try:
        answer = endpoint.http.call("POST", "/tokenize", ask, root=True)
    except StatusError:
        return found  # only some servers can say how they split
    if not isinstance(answer, dict) or answer.get("tokens") != found.encode(_SAMPLE):  # pyright: ignore
        raise ConfigError(f"the tokenizer {name or folder} is not that of the model at {endpoint.http.url}")
    return found
