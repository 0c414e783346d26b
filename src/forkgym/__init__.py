"""ForkGym: Gymnasium environments for coding agents, in sandboxes that fork.

Importing this package registers the environment ids with Gymnasium, as strings, and does nothing else.
"""

import gymnasium.envs.registration as _registration

__version__ = "0.1.0"

ENV_IDS = {
    "forkgym/SWE-v0": {"tasks": "swe/*"},
    "forkgym/Kernel-v0": {"tasks": "kernel/*", "reward": "kernel"},
}

for _id, _options in ENV_IDS.items():
    if _id not in _registration.registry:
        _registration.register(
            _id,
            entry_point="forkgym.envs.core:CodingEnv",
            vector_entry_point="forkgym.envs.vector:make_thread_vector",
            kwargs=dict(_options),
        )

__all__ = ["ENV_IDS", "__version__"]
