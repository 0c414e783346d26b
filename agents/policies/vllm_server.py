"""A vLLM server that is given new weights: an ``Endpoint`` with versions.

Start it where ForkGym can be imported, with the two switches that let it take weights::

    VLLM_SERVER_DEV_MODE=1 python -m vllm.entrypoints.openai.api_server --model FOLDER
        --logprobs-mode processed_logprobs --worker-extension-cls forkgym.agents.policies.vllm_worker.TakesWeights

Its developers' routes change the model for whoever can reach them: keep it on loopback or a private network.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, cast

import safetensors.torch as safetensors
from torch import Tensor

from forkgym.agents.base import Completion, SamplingParams
from forkgym.agents.errors import PolicyError
from forkgym.agents.policies.endpoint import Endpoint
from forkgym.agents.policies.http import StatusError
from forkgym.agents.policies.weights import FolderWeights
from forkgym.errors import ConfigError


class VLLMServer(Endpoint):
    """As ``Endpoint``, with ``update``. New weights go through ``exchange``, a folder that the server sees too.

    ``folder`` is the model's own, by default where the server says that it lies. More options as of ``Endpoint``. Only
    this object may sample from the server: what another one has under way when weights come would mix two versions.
    """

    def __init__(
        self,
        url: str,
        model: str | None = None,
        *,
        exchange: str | PathLike[str],
        folder: str | PathLike[str] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(url, model, **options)
        self._exchange, self._folder = Path(exchange), folder
        self._weights: FolderWeights | None = None
        self._changed: dict[str, Tensor] = {}
        self._turn = threading.Condition()
        self._under_way = 0
        self._updating = False
        self._unknown = ""

    def generate(self, prompts: Sequence[Sequence[int]], params: SamplingParams) -> list[Completion]:
        """As ``Endpoint.generate``; waits while new weights are loaded."""
        with self._turn:
            self._turn.wait_for(lambda: not self._updating)
            if self._unknown:
                raise PolicyError(f"it is not known which weights {self.http.url} has: {self._unknown}")
            self._under_way += 1
        try:
            return super().generate(prompts, params)
        finally:
            with self._turn:
                self._under_way -= 1
                self._turn.notify_all()

    def update(self, weights: Mapping[str, Tensor]) -> int:
        """Sample with new weights (a ``state_dict``, or part of one), once what is under way has ended.

        Returns the new version. Raises ``PolicyError`` if a name or shape is wrong or the server fails: then it is not
        sampled from until an update succeeds. Raises ``ConfigError`` for a server that takes no weights.
        """
        if self._weights is None:
            self._weights = FolderWeights(Path(self._folder or self.served().folder))
        self._changed |= {n: w.detach().to("cpu", copy=True) for n, w in self._weights.check(weights).items()}
        with self._turn:
            if self._updating:
                raise PolicyError("an update is under way already")
            self._updating = True
            self._turn.wait_for(lambda: not self._under_way)
        try:
            self._unknown = "an update failed"
            self._load(self._weights)
            self.version += 1
            self._unknown = ""
        except Exception as error:
            self._unknown = str(error)
            raise
        finally:
            with self._turn:
                self._updating = False
                self._turn.notify_all()
        return self.version

    def _load(self, weights: FolderWeights) -> None:
        """Write all weights where the server reads them, have it load them, and empty its prefix cache."""
        place = self._exchange / f"weights-{self.version + 1}"
        place.mkdir(parents=True, exist_ok=True)
        try:
            whole = {name: value.contiguous() for name, value in weights.whole(self._changed)}
            safetensors.save_file(whole, place / "model.safetensors")
            self._post("/collective_rpc", {"method": "take_weights", "kwargs": {"folder": str(place.absolute())}})
            answer = self._post("/reset_prefix_cache", {})
        finally:
            shutil.rmtree(place, ignore_errors=True)
        if not (isinstance(answer, dict) and cast("dict[str, Any]", answer).get("success") is True):
            raise PolicyError(f"{self.http.url} keeps its prefix cache: does somebody else sample from it?")

    def _post(self, path: str, body: Mapping[str, Any]) -> Any:
        try:
            return self.http.call("POST", path, body, root=True)
        except StatusError as error:
            if error.status in (404, 405):
                raise ConfigError(f"{self.http.url} takes no weights: start it with VLLM_SERVER_DEV_MODE=1") from error
            if "take_weights" in error.text:
                raise ConfigError(f"{self.http.url} takes no weights: give it --worker-extension-cls") from error
            raise
