"""``forkgym demo``: a language model learns in forking sandboxes, from zero to a report, in a few minutes.

Held-out evaluation, SFT on the oracle's demonstrations, multi-turn GRPO with an evaluation before and after. After an
interruption the same command goes on from the last checkpoint; after a finished demo it begins anew.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.table import Table

from forkgym import __version__
from forkgym.agents.base import Episode
from forkgym.agents.records import EpisodeWriter, read_episodes
from forkgym.cli.demo_report import COLUMNS, DemoResult, Stage, report_data, table_rows
from forkgym.cli.evaluate import last_attempts
from forkgym.cli.live import LiveView
from forkgym.cli.output import err, out
from forkgym.cli.players import engine
from forkgym.cli.training import TrainingView, sentence
from forkgym.errors import ConfigError
from forkgym.trainers.errors import InterruptedTraining
from forkgym.trainers.recipe import GrpoRecipe, SftRecipe
from forkgym.trainers.recipe_file import load_grpo, load_sft
from forkgym.viewer.report import render

RUNS = (("sft", load_sft, "sft-tiny"), ("grpo", load_grpo, "grpo-tiny"))
NAMES = {"smollm2-135m": "SmolLM2-135M-Instruct"}
STATE, BASELINE, GRPO_SECONDS, REPORT = "demo.json", "before.jsonl", "grpo-seconds", "report.html"
BUDGET_S, LEAST_S = 540.0, 60.0
"""What the whole demo may take, in seconds, and what GRPO gets on a machine too slow for that."""
EVALUATIONS = 1.2
"""What the two evaluations of GRPO take, as a multiple of the first one, whose untrained model talks at length."""
PHASES = (("before", "Before training"), ("sft", "SFT on demonstrations"), ("grpo", "Multi-turn GRPO"))


@dataclass(frozen=True)
class _Plan:
    """The two runs of the demo and where it keeps things."""

    folder: Path
    sft: SftRecipe
    grpo: GrpoRecipe
    seed: int
    overrides: list[str]


def demo(overrides: Sequence[str], *, out: Path, seed: int) -> None:
    """Run or resume the demo in ``out``, print a table, and write the report.

    ``overrides`` are ``sft.key=value`` and ``grpo.key=value``, over the recipes of the demo.
    """
    own = {"sft": [f"out={out}/sft"], "grpo": [f"out={out}/grpo", f"model.start_from={out}/sft"]}
    for override in overrides:
        run, _, rest = override.partition(".")
        if run not in own:
            raise ConfigError(f"override {override!r}: write sft.key=value or grpo.key=value")
        own[run].append(rest)
    sft, grpo = (load(name, [f"seed={seed}", *own[run]]) for run, load, name in RUNS)
    assert isinstance(sft, SftRecipe)
    assert isinstance(grpo, GrpoRecipe)
    plan = _Plan(out, sft, grpo, seed, list(overrides))
    elapsed = _open(plan)
    with LiveView("ForkGym demo", PHASES, err) as view:
        try:
            result = _run(plan, view, lambda: elapsed + view.seconds)
        finally:
            _remember(plan, finished=False, elapsed=elapsed + view.seconds)
    page = out / REPORT
    page.write_text(render(report_data(result)), encoding="utf-8")
    _remember(plan, finished=True, elapsed=result.stages[-1].elapsed)
    _print(result, page)


def _run(plan: _Plan, view: LiveView, elapsed: Callable[[], float]) -> DemoResult:
    before = _before(plan, view)
    stages = [Stage("before training", before, elapsed())]
    engine("sft").run(plan.sft, resume=True, on_event=TrainingView(view, "sft"))
    trained = elapsed()
    grpo_recipe = plan.grpo.model_copy(update={"time_budget_s": _grpo_seconds(plan, stages[0].elapsed, trained)})
    engine("grpo").run(grpo_recipe, resume=True, on_event=TrainingView(view, "grpo"))
    evaluations = sorted((plan.folder / "grpo" / "episodes").glob("eval-*.jsonl"))
    after_sft, after_grpo = (last_attempts(read_episodes(path).episodes) for path in (evaluations[0], evaluations[-1]))
    stages.append(Stage("after SFT", list(after_sft.values()), trained))
    stages.append(Stage("after GRPO", list(after_grpo.values()), elapsed()))
    metrics = engine("metrics")
    sft, grpo = (metrics.read_metrics(plan.folder / run) for run in ("sft", "grpo"))
    return DemoResult(NAMES.get(plan.grpo.model.name, plan.grpo.model.name), stages, sft, grpo, _facts(plan, grpo))


def _grpo_seconds(plan: _Plan, before: float, trained: float) -> float:
    """What GRPO may take, decided once: a resumed demo keeps what it was given. The recipe's own budget comes first."""
    if plan.grpo.time_budget_s is not None:
        return plan.grpo.time_budget_s
    path = plan.folder / GRPO_SECONDS
    if not path.is_file():
        path.write_text(str(max(LEAST_S, BUDGET_S - trained - EVALUATIONS * before)))
    return float(path.read_text())


def _before(plan: _Plan, view: LiveView) -> list[Episode]:
    """Held-out episodes of the untrained model, kept on disk for a resumed demo."""
    path = plan.folder / BASELINE
    if path.is_file():
        view.start("before")
        view.finish("before", "kept from before the interruption")
        return read_episodes(path).episodes
    view.start("before", note="loading the model")
    recipe, solved = plan.grpo, 0
    language = engine("models").load_model(recipe.model, recipe.seed)
    player = engine("loop").make_player(recipe, language)
    done: list[Episode] = []
    total = len(list(player.tasks("eval"))[: recipe.eval.max_tasks])

    def keep(episode: Episode) -> None:
        nonlocal solved
        done.append(episode)
        solved += bool((episode.verdict or {}).get("resolved"))
        view.tell(sentence(episode))
        view.phases["before"].total = total
        view.update("before", len(done), f"{solved} of {len(done)} held-out tasks solved")

    try:
        with engine("interrupt").stop_on_signal() as stop:
            played = _evaluate(plan, player, keep, stop)
    finally:
        player.close()
    scratch = path.with_suffix(".writing")
    scratch.unlink(missing_ok=True)
    with EpisodeWriter(scratch) as writer:
        for episode in played:
            writer.write(episode)
    scratch.rename(path)
    view.finish("before", f"{solved} of {len(played)} held-out tasks solved")
    return played


def _evaluate(plan: _Plan, player: Any, keep: Callable[[Episode], None], stop: threading.Event) -> list[Episode]:
    recipe = plan.grpo
    # Once per task is enough: the untrained model solves next to nothing, and its rambling takes long.
    once = recipe.eval.model_copy(update={"episodes_per_task": 1})
    done = engine("evaluate").evaluate(
        player, once, recipe.sampling, seed=recipe.seed, step=0, on_episode=keep, cancel=stop
    )
    if stop.is_set():
        raise InterruptedTraining("the demo was stopped before training began")
    return done.episodes


def _open(plan: _Plan) -> float:
    """Make the folder ready; returns the seconds that an interrupted demo has already used."""
    folder, state = plan.folder, plan.folder / STATE
    if folder.exists() and any(folder.iterdir()) and not state.is_file():
        raise ConfigError(f"{folder} holds something that is not a demo; choose another --out")
    before: Mapping[str, Any] = json.loads(state.read_text()) if state.is_file() else {}
    same = all(before.get(key) == value for key, value in _identity(plan).items())
    if before and (before["finished"] or not same):
        for path in (folder / "sft", folder / "grpo"):
            shutil.rmtree(path, ignore_errors=True)
        for path in (folder / BASELINE, folder / GRPO_SECONDS, folder / REPORT):
            path.unlink(missing_ok=True)
        before = {}
    folder.mkdir(parents=True, exist_ok=True)
    elapsed = float(before.get("elapsed", 0.0))
    _remember(plan, finished=False, elapsed=elapsed)
    return elapsed


def _remember(plan: _Plan, *, finished: bool, elapsed: float) -> None:
    (plan.folder / STATE).write_text(json.dumps({**_identity(plan), "finished": finished, "elapsed": elapsed}))


def _identity(plan: _Plan) -> dict[str, Any]:
    """What must be the same for an interrupted demo to go on."""
    return {"seed": plan.seed, "overrides": plan.overrides, "version": __version__}


def _facts(plan: _Plan, rows: list[Mapping[str, Any]]) -> dict[str, str]:
    trained = [row for row in rows if row["kind"] == "train"]
    shares = [row["model_share"] for row in trained if "model_share" in row]
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "command": "forkgym demo",
        "forkgym": __version__,
        "machine": f"{os.cpu_count()} cores, {platform.platform()}",
        "model": plan.grpo.model.name,
        "tasks": f"{plan.grpo.env.tasks}: {plan.grpo.env.split} to train, {plan.grpo.env.eval_split} held out",
        "seed": str(plan.seed),
        "episodes trained on": str(round(sum(row.get("trained_episodes", 0) for row in trained))),
        "share of time in the model": f"{sum(shares) / len(shares):.0%}" if shares else "not measured",
    }


def _print(result: DemoResult, page: Path) -> None:
    table = Table(box=None, header_style="dim", pad_edge=False)
    for name in COLUMNS:
        table.add_column(name, justify="left" if name == COLUMNS[0] else "right", no_wrap=True)
    for row in table_rows(result.stages):
        table.add_row(*row)
    out.print()
    out.print(table)
    out.print(f"\nreport: {page}", soft_wrap=True, markup=False)
