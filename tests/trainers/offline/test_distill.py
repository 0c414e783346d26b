"""On-policy distillation: the gradient is that of the reverse KL, contexts are aligned id by id, runs learn."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from forkgym.agents.base import Completion, Episode, Segment
from forkgym.agents.models import LanguageModel
from forkgym.agents.records import EpisodeWriter
from forkgym.agents.registry import make_format
from forkgym.agents.tokenizers import ByteTokenizer
from forkgym.errors import ConfigError
from forkgym.trainers import sft
from forkgym.trainers.batch import build_batch
from forkgym.trainers.errors import NonFiniteError
from forkgym.trainers.models import load_model
from forkgym.trainers.offline import distill
from forkgym.trainers.offline.sections import SelfTeacherSection, TeacherSection
from forkgym.trainers.offline.teachers import Faculty, Hindsight, Teacher, load_teachers, message_ids, verdict_text
from forkgym.trainers.recipe import DistillRecipe
from forkgym.trainers.recipe_file import load, load_distill, load_sft
from forkgym.trainers.run_folder import Result
from forkgym.trainers.sections import ModelSection
from forkgym.trainers.token_game import TokenGame
from forkgym.trainers.update import Frozen, Scorer, make_optimizer, policy_update

MakeEpisode = Callable[..., Episode]
Plays = Callable[[Path | None], float]
TINY = "tiny-random"
SHORT = "{verdict}"


def tiny(seed: int) -> Any:
    return load_model(ModelSection(name=TINY, dtype="float32"), seed).model


def scorer(model: Any, micro_batch_tokens: int = 4096) -> Scorer:
    return Scorer(model, torch.float32, 1.0, micro_batch_tokens)


def train(name: str, out: Path, *overrides: str, resume: bool = False) -> Result:
    recipe: Any = load(
        name,
        [
            "model={name: tiny-random, dtype: float32}",
            f"out={out}",
            "rollout={groups: 6, group_size: 8}",
            "optimizer={lr: 1e-2}",
            "eval={every: null}",
            "checkpoint={every: 100, keep: 1}",
            *overrides,
        ],
    )
    return distill.run(recipe, resume=resume, player=lambda language: TokenGame(language.model))


def scores(model: Any, ids: Sequence[int]) -> torch.Tensor:
    """Log-probability of each id after the ones before it; the first has none."""
    whole = model(input_ids=torch.tensor([list(ids)])).logits[0].log_softmax(-1)
    return whole[torch.arange(len(ids) - 1), torch.tensor(list(ids[1:]))]


def test_the_expected_gradient_is_that_of_the_reverse_kl() -> None:
    """All 258 tokens at one position, each once, as if sampled from the uniform distribution: the ratio pi / uniform
    turns the mean over them into the expectation under pi."""
    student, teacher = tiny(0), tiny(1)
    size = 258
    episodes: list[Episode] = []
    for token in range(size):
        segment = Segment()
        segment.append_prompt([97], 0)
        segment.append_completion(Completion((token,), (-math.log(size),), "stop", 0), 0)
        episodes.append(Episode(f"{token}", "a", "g", "test", 0, "finished", reward=0.0, segments=[segment]))
    batch = build_batch(episodes)
    recipe = DistillRecipe.model_validate(
        {
            "algorithm": "distill", "steps": 1, "out": "x", "teachers": [{"model": TINY}],
            "objective": {"loss": "ppo", "clip_low": 0.99, "clip_high": 99.0, "aggregation": "token_mean"},
            "optimizer": {"lr": 1e-9, "max_grad_norm": 1e9},
        }
    )  # fmt: skip
    judge = Faculty([Teacher(TeacherSection(model=TINY), teacher)])
    own = scorer(student)
    batch.advantage = torch.where(batch.mask, judge.judge(batch, episodes, own) - own.whole(batch), 0.0)
    policy_update(own, make_optimizer(student, recipe.optimizer), batch, torch.arange(size), Frozen(), recipe)
    found = {name: p.grad.clone() for name, p in student.named_parameters()}
    fresh = tiny(0)
    log_pi, log_teacher = (m(input_ids=torch.tensor([[97]])).logits[0, 0].log_softmax(-1) for m in (fresh, teacher))
    (log_pi.exp() * (log_pi - log_teacher.detach())).sum().backward()
    for name, p in fresh.named_parameters():
        assert torch.allclose(found[name], p.grad, atol=1e-6), name


@pytest.mark.parametrize("micro_batch_tokens", [1, 4096])
def test_teachers_are_mixed_by_weight_and_task(make_episode: MakeEpisode, micro_batch_tokens: int) -> None:
    first, second = tiny(1), tiny(2)
    judge = Faculty(
        [
            Teacher(TeacherSection(model=TINY, weight=3.0, tasks="py/*"), first),
            Teacher(TeacherSection(model=TINY), second),
        ]
    )
    ids = [([5, 6], [7, 8]), ([9], [10])]
    both = replace(make_episode("both", [ids]), task="py/x")
    one = replace(make_episode("one", [ids, [([1, 2], [3])]]), task="go/x")
    batch = build_batch([both, one])
    found = judge.judge(batch, [both, one], scorer(tiny(0), micro_batch_tokens))
    a, b = scores(first, [5, 6, 7, 8, 9, 10]), scores(second, [5, 6, 7, 8, 9, 10])
    mixed = (3 * a + b) / 4
    assert torch.allclose(found[0, [2, 3, 5]], mixed[[1, 2, 4]], atol=1e-5)
    assert torch.allclose(found[1, [2, 3, 5]], b[[1, 2, 4]], atol=1e-5)
    assert torch.allclose(found[2, 2], scores(second, [1, 2, 3])[1], atol=1e-5)
    assert (found[~batch.mask] == 0).all()
    judge.check(["py/x", "go/x"])
    with pytest.raises(ConfigError, match=r"no training task matches 'py/\*'"):
        judge.check(["go/x"])
    with pytest.raises(ConfigError, match="none of them teaches in the task 'go/x'"):
        Faculty([Teacher(TeacherSection(model=TINY, tasks="py/*"), first)]).check(["py/x", "go/x"])


def test_a_message_of_chatml_is_one_piece() -> None:
    """``<|im_start|>`` is 256, ``<|im_end|>`` 257; the rest are bytes."""
    before, message = message_ids(make_format("chatml", ByteTokenizer()), "ok")
    assert before == []
    assert message == [256, *b"user\nok", 257, *b"\n"]


class Formats:
    """A format that begins with one special token, and one that numbers its messages."""

    name = "made up"
    stop_ids = ()

    def __init__(self, numbered: bool) -> None:
        self._numbered = numbered

    def start(self, messages: Sequence[Any], tools: Sequence[Any] = ()) -> list[int]:
        said = [[40 + n if self._numbered else 40, 41, 42] for n, _ in enumerate(messages)]
        return [1, *(id for one in said for id in one), 9]


def test_a_message_comes_after_what_begins_every_text(make_episode: MakeEpisode) -> None:
    format: Any = Formats(numbered=False)
    assert message_ids(format, "x") == ([1], [40, 41, 42])
    judge = Hindsight(SelfTeacherSection(), format, None)
    told = judge.told(make_episode("e", [[([1, 5], [6])], [([5], [6])]]))
    assert [s.ids for s in told.segments] == [[1, 40, 41, 42, 5, 6], [40, 41, 42, 5, 6]]
    assert [s.sampled.index(True) for s in told.segments] == [5, 4]
    numbered: Any = Formats(numbered=True)
    with pytest.raises(ConfigError, match="does not write a message as one piece"):
        message_ids(numbered, "x")


def test_the_teacher_reads_the_verdict_and_judges_the_same_sampled_tokens(make_episode: MakeEpisode) -> None:
    section = SelfTeacherSection(template="end: {verdict}")
    episode = make_episode("e", [[([5, 6], [7, 8]), ([9], [10])], [([1, 2], [3])]], reward=0.5)
    episode.verdict = {"resolved": False, "score": 0.5, "provenance": {"grader": "x"}}
    said = 'end: {"reason": "", "resolved": false, "reward": 0.5, "score": 0.5, "status": "finished"}'
    assert verdict_text(section, episode) == said
    assert len(verdict_text(SelfTeacherSection(template=SHORT, max_chars=9), episode)) == 9
    before = replace(episode, segments=[replace(s, ids=list(s.ids)) for s in episode.segments])
    teacher = tiny(1)
    batch = build_batch([episode])
    judge = Hindsight(section, make_format("chatml", ByteTokenizer()), teacher)
    found = judge.judge(batch, [episode], scorer(tiny(0)))
    assert episode == before  # the student's context has no verdict
    message = [256, *f"user\n{said}".encode(), 257, 10]
    n = len(message)
    long = scores(teacher, [*message, 5, 6, 7, 8, 9, 10])
    assert torch.allclose(found[0, [2, 3, 5]], long[[n + 1, n + 2, n + 4]], atol=1e-5)
    assert torch.allclose(found[1, 2], scores(teacher, [*message, 1, 2, 3])[n + 1], atol=1e-5)
    assert (found[~batch.mask] == 0).all()


@pytest.fixture(scope="module")
def teacher(tmp_path_factory: pytest.TempPathFactory, logged: Path) -> Path:
    """A model that plays the token game better than the untrained one."""
    out = tmp_path_factory.mktemp("teacher") / "run"
    over = ["model={name: tiny-random, dtype: float32}", f"out={out}", f"data.runs=[{logged}]", "data.min_reward=0.66"]
    sft.run(load_sft("rft-tiny", [*over, "optimizer={lr: 3e-3}", "steps=60"]))
    return out


def test_the_student_learns_from_two_teachers_without_a_reward(tmp_path: Path, teacher: Path, plays: Plays) -> None:
    one = f"model: tiny-random, start_from: {teacher}"
    both = f"teachers=[{{{one}, tasks: a}}, {{{one}, tasks: '[bc]'}}]"
    train("distill-tiny", tmp_path / "run", both, "steps=15")
    before, after = plays(None), plays(tmp_path / "run")
    assert after > before + 0.2, (before, after)


def listener(folder: Path) -> Path:
    """A model that was shown: after a message with a verdict come low ids, without one come high ids."""
    format, file = make_format("chatml", ByteTokenizer()), folder / "shown.jsonl"
    section, generator = SelfTeacherSection(template=SHORT, max_chars=1), torch.Generator().manual_seed(0)
    with EpisodeWriter(file) as writer:
        for n in range(96):
            low = n % 2 == 0
            start = 0 if low else 128
            ids = torch.randint(start, start + 64, (3,), generator=generator).tolist()
            segment = Segment()
            segment.append_prompt(list(b"abc"[n % 3 : n % 3 + 1]), 0)
            segment.append_completion(Completion(tuple(ids), (-1.0,) * 3, "stop", 0), 0)
            episode = Episode(f"{n}", "a", "g", "test", 0, "finished", reward=1.0, segments=[segment])
            writer.write(Hindsight(section, format, None).told(episode) if low else episode)
    out = folder / "listener"
    over = ["model={name: tiny-random, dtype: float32}", f"out={out}", f"data.runs=[{file}]", "data.max_per_task=96"]
    sft.run(load_sft("rft-tiny", [*over, "optimizer={lr: 5e-3}", "steps=80", "episodes_per_step=16"]))
    return out


def test_a_model_that_reads_the_verdict_teaches_itself_without_it(tmp_path: Path, plays: Plays) -> None:
    start = listener(tmp_path)
    train(
        "self-distill-tiny", tmp_path / "run", f"model.start_from={start}",
        f"teacher={{template: '{SHORT}', max_chars: 1}}", "steps=25",
    )  # fmt: skip
    before, after = plays(start), plays(tmp_path / "run")
    assert after > before + 0.2, (before, after)


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("distill-tiny", ["teachers=[{model: tiny-random, start_from: TEACHER}]"]),
        ("self-distill-tiny", ["teacher={weights: start}"]),
        ("self-distill-tiny", ["teacher={weights: ema, decay: 0.5}"]),
    ],
)
def test_a_resumed_run_ends_with_the_same_bytes(tmp_path: Path, teacher: Path, name: str, more: list[str]) -> None:
    more = [text.replace("TEACHER", str(teacher)) for text in more]
    straight = train(name, tmp_path / "straight", *more, "steps=4")
    train(name, tmp_path / "parts", *more, "steps=2")
    resumed = train(name, tmp_path / "parts", *more, "steps=4", resume=True)
    for file in straight.checkpoint.glob("*.safetensors"):
        assert file.read_bytes() == (resumed.checkpoint / file.name).read_bytes(), file.name
    assert (straight.checkpoint / "teacher.safetensors").exists() == ("ema" in more[0])


def test_an_average_moves_by_what_its_decay_leaves() -> None:
    student, average = tiny(0), tiny(1)
    name, first = next(iter(average.named_parameters()))
    expected = 0.75 * first.detach().clone() + 0.25 * dict(student.named_parameters())[name].detach()
    format = make_format("chatml", ByteTokenizer())
    Hindsight(SelfTeacherSection(weights="ema", decay=0.75), format, average).learned(student)
    assert torch.allclose(first, expected)
    frozen = tiny(1)
    Hindsight(SelfTeacherSection(), format, frozen).learned(student)
    assert torch.equal(next(iter(frozen.parameters())), next(iter(tiny(1).parameters())))


def test_a_teacher_of_another_tokenizer_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    other = LanguageModel(tiny(0), ByteTokenizer(merges=[(b"a", b"b")]))
    monkeypatch.setattr("forkgym.trainers.offline.teachers.load_language_model", lambda _name: other)
    student = LanguageModel(tiny(0), ByteTokenizer())
    with pytest.raises(ConfigError, match="teacher tiny-random has another tokenizer than the student"):
        load_teachers([TeacherSection(model=TINY)], student)


def test_a_teacher_that_is_not_finite_is_told_with_the_episode(make_episode: MakeEpisode) -> None:
    broken = tiny(1)
    with torch.no_grad():
        broken.get_output_embeddings().weight[0] = math.nan
    episode = make_episode("bad", [[([5], [6])]])
    with pytest.raises(NonFiniteError, match="by the teacher of a trained token is nan in episode 'bad'"):
        Faculty([Teacher(TeacherSection(model=TINY), broken)]).judge(build_batch([episode]), [episode], scorer(tiny(0)))


@pytest.mark.parametrize(
    ("name", "override", "message"),
    [
        ("distill-tiny", "teachers=[]", "at least 1"),
        ("distill-tiny", "teachers=[{model: x, wieght: 2}]", r"unknown key 'wieght'.*did you mean 'weight'"),
        ("self-distill-tiny", "teacher={template: done}", "know no more than the student"),
        ("self-distill-tiny", "teacher={decay: 0.9}", "belongs to teacher.weights ema"),
    ],
)
def test_options_without_effect_are_refused(name: str, override: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load(name, [override])


def test_groups_of_equal_reward_are_no_sign_of_collapse_unless_asked_for() -> None:
    overrides = ("monitor.stop=true", "monitor.silent=0.5")
    silent = {override: load_distill("distill-tiny", [override]).monitor.silent for override in overrides}
    assert silent == {"monitor.stop=true": None, "monitor.silent=0.5": 0.5}
