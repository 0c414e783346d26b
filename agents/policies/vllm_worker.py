"""What a worker of vLLM needs to take new weights whole; named by ``worker_extension_cls``. Imports nothing of vLLM."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

EXTENSION = "forkgym.agents.policies.vllm_worker.TakesWeights"


class TakesWeights:
    """Mixed into vLLM's worker class."""

    model_runner: Any
    reload_weights: Any

    def take_weights(self, folder: str | None = None, weights: Iterable[tuple[str, Any]] | None = None) -> None:
        """Load every weight of the model, from ``weights`` or from the files in ``folder``.

        vLLM's own reload leaves out an output head that is tied to the embedding: it is not in the files. Where a
        kernel keeps a packed copy of the head (on CPUs), the old one would be used on, so it is packed anew.
        """
        self.reload_weights(weights_iterator=weights, weights_path=folder)
        for module in self.model_runner.get_model().modules():
            if type(module).__name__ == "ParallelLMHead":
                module.quant_method.process_weights_after_loading(module)
