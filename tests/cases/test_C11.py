"""C11: a shell that prints before every command hides no submission."""

from forkgym.envs.core import CodingEnv
from forkgym.envs.formats import TextActions


def test_noise_neither_hides_a_submission_nor_gets_into_it():
    with CodingEnv("swe/tiny/*") as env:
        texts = TextActions(env)
        texts.reset(seed=1)
        texts.step("```bash\necho 'echo noise' > /tmp/noise; export BASH_ENV=/tmp/noise; trap 'echo noise' DEBUG\n```")
        observation, *_ = texts.step("```bash\nbash -c true\n```")
        assert "noise" in observation["text"]
        _, _, terminated, _, info = texts.step("```bash\nsubmit\n```")
        assert terminated is True
        assert (
            info["verdict"]["stage"] == "empty"
        )  # nothing in the working directory was changed, by noise or otherwise
