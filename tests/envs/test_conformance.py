"""Every registered id keeps the contract, and the suite catches environments that do not."""

import pytest
from gymnasium.envs.registration import registry

from forkgym.envs.conformance import RULES, ConformanceError, check, registered_ids, run


@pytest.mark.parametrize("env_id", registered_ids())
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_registered(env_id, rule):
    run(rule, env_id, max_turns=6)


def test_every_id_of_ours_in_gymnasiums_registry_is_checked():
    assert registered_ids() == sorted(name for name in registry if name.startswith("forkgym/"))


def test_options_reach_the_environment_and_a_wrong_one_is_reported():
    with pytest.raises(ConformanceError, match="did you mean 'max_turns'"):
        check("forkgym/SWE-v0", max_turn=1)
