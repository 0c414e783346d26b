"""``forkgym``: the command line. Each command's work stands in a module of its own, imported when it is called.

Exit codes: 0 done, 1 failed (a task or a run did not hold, or the machine could not), 2 wrong input, 130 interrupted.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from forkgym import __version__

app = typer.Typer(
    name="forkgym",
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
tasks_app = typer.Typer(help="List, show, verify and build tasks.", rich_markup_mode="rich")
app.add_typer(tasks_app, name="tasks")
import_app = typer.Typer(help="Make task folders of tasks in other formats.", rich_markup_mode="rich")
tasks_app.add_typer(import_app, name="import")
export_app = typer.Typer(help="Write a task in another format.", rich_markup_mode="rich")
tasks_app.add_typer(export_app, name="export")
images_app = typer.Typer(help="List, build and prune images of sandboxes.", rich_markup_mode="rich")
app.add_typer(images_app, name="images")
harness_app = typer.Typer(help="List, install and check agent programs that can play.", rich_markup_mode="rich")
app.add_typer(harness_app, name="harness")
snapshots_app = typer.Typer(help="List and delete snapshots of sandboxes.", rich_markup_mode="rich")
app.add_typer(snapshots_app, name="snapshots")
bench_app = typer.Typer(help="Measure speed on this machine.", rich_markup_mode="rich")
app.add_typer(bench_app, name="bench")

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document for machines.")]
Pattern = Annotated[str, typer.Argument(help="A task id, a pattern such as 'swe/tiny/*', or a folder of tasks.")]
Split = Annotated[str | None, typer.Option(help="Only this split, such as train or test.")]
Sandbox = Annotated[str, typer.Option(help="The sandbox backend.")]
AgentName = Annotated[
    str,
    typer.Option(
        help="Who acts: oracle (knows the answer), nop (does nothing), random (any call), bash or tools (a model)."
    ),
]
Model = Annotated[
    str | None,
    typer.Option(
        "--policy",
        "--model",
        help="Who samples: smollm2-135m, a model's or a run's folder, or an engine (docs/policies.md).",
    ),
]
AgentOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--agent-option", help="KEY=VALUE for the agent, such as compact_at=2000 (docs/agents.md); repeatable."
    ),
]
HarnessName = Annotated[
    str | None,
    typer.Option(help="An unmodified agent program plays, such as mini-swe-agent; `forkgym harness list` shows all."),
]
Turns = Annotated[int | None, typer.Option(min=1, help="Turns per episode instead of the task's own budget.")]
Tokens = Annotated[int, typer.Option(min=1, help="Most tokens the model may write in one turn.")]
Temperature = Annotated[float, typer.Option(min=0.0, help="Sampling temperature; 0 always takes the likeliest token.")]
Seed = Annotated[int, typer.Option(help="Makes tasks and sampling repeatable.")]


def _call(module: str, function: str, *args: Any, **options: Any) -> None:
    """Run a command's function; its return value, if any, is the exit code."""
    code = getattr(importlib.import_module(f"forkgym.cli.{module}"), function)(*args, **options)
    raise typer.Exit(code or 0)


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error. Works anywhere.")] = False,
) -> None:
    """A Gymnasium of agentic coding environments whose sandboxes fork."""
    if version:
        typer.echo(f"forkgym {__version__}")
    elif context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command()
def doctor(json: Json = False) -> None:
    """Show what works on this machine, what is missing, and the command that mends it."""
    _call("doctor", "doctor", as_json=json)


@tasks_app.command("list")
def tasks_list(pattern: Pattern = "*", split: Split = None, json: Json = False) -> None:
    """List tasks."""
    _call("tasks", "list_tasks", pattern, split=split, as_json=json)


@tasks_app.command("show")
def tasks_show(
    task: Annotated[str, typer.Argument(help="A task id.")],
    solution: Annotated[bool, typer.Option("--solution", help="Also show the reference solution.")] = False,
    json: Json = False,
) -> None:
    """Show one task: what is asked, the files, how it is judged, and its proof."""
    _call("tasks", "show_task", task, solution=solution, as_json=json)


@tasks_app.command("verify")
def tasks_verify(
    pattern: Pattern = "*",
    split: Split = None,
    repeats: Annotated[int, typer.Option(min=1, help="How often each grade is repeated to find flaky tests.")] = 3,
    write: Annotated[bool, typer.Option("--write", help="Store the proof in the task's folder.")] = False,
    sandbox: Sandbox = "local",
    json: Json = False,
) -> None:
    """Prove tasks: the reference solution scores 1, doing nothing scores 0, and repeats agree."""
    _call("tasks", "verify_tasks", pattern, split=split, repeats=repeats, write=write, sandbox=sandbox, as_json=json)


Out = Annotated[Path, typer.Option(help="Folder of the tasks. The same folder again goes on where it was.")]
OneSplit = Annotated[str, typer.Option(help="The split that the tasks belong to.")]
Ground = Annotated[str, typer.Option(help="What environments are built over: host (this machine), or an image.")]
Repeats = Annotated[int, typer.Option(min=2, help="How often each grade is repeated to find flaky tests.")]


Imported = Annotated[Path, typer.Option(help="Folder that gets a task folder for each task.")]
StandIn = Annotated[str | None, typer.Option(help="An image of ours to work in, instead of the task's Docker image.")]


@import_app.command("harbor")
def import_harbor(
    directory: Annotated[Path, typer.Argument(help="A Harbor task directory, or a folder of some.")],
    out: Imported,
    image: StandIn = None,
    offline: Annotated[bool, typer.Option("--offline", help="Also take tasks that ask for a network.")] = False,
    build: Annotated[bool, typer.Option("--build", help="Build each task's Dockerfile; nothing is pulled.")] = False,
    build_network: Annotated[str, typer.Option(help="The Docker network of the steps of a build.")] = "none",
    split: OneSplit = "test",
    json: Json = False,
) -> None:
    """Import Harbor task directories; nothing of them is lost, and what cannot be honoured is refused."""
    if build and image is not None:
        raise typer.BadParameter("--build makes the task's own image, and --image names another; give one of them")
    if build_network != "none" and not build:
        raise typer.BadParameter("--build-network does not fit: only --build takes it")
    _call("importing", "import_tasks", "harbor", directory, target=out, network=build_network if build else None,
          as_json=json, options={"image": image, "offline": offline, "split": split})  # fmt: skip


@import_app.command("swebench")
def import_swebench(
    rows: Annotated[Path, typer.Argument(help="SWE-bench rows: .json, .jsonl or .parquet.")],
    out: Imported,
    image: StandIn = None,
    repos: Annotated[Path | None, typer.Option(help="Folder of clones, as owner/name, for --image.")] = None,
    assets: Annotated[Path | None, typer.Option(help="Binary files of rows: INSTANCE/test_assets/PATH.")] = None,
    split: OneSplit = "test",
    json: Json = False,
) -> None:
    """Import rows of a SWE-bench data set."""
    _call("importing", "import_tasks", "swebench", rows, target=out, as_json=json,
          options={"image": image, "repositories": repos, "assets": assets, "split": split})  # fmt: skip


@export_app.command("harbor")
def export_harbor(
    task: Annotated[str, typer.Argument(help="A task id, or the path of a task folder.")],
    directory: Annotated[Path, typer.Argument(help="The directory to make.")],
    base: Annotated[str | None, typer.Option(help="The Docker image to build on (default: python:3.11-slim).")] = None,
    json: Json = False,
) -> None:
    """Write a task as a Harbor task directory."""
    _call("importing", "export_task", "harbor", task, directory, options={"base": base}, as_json=json)


@tasks_app.command("build")
def tasks_build(
    repository: Annotated[str, typer.Argument(help="Path or URL of a git repository.")],
    out: Out,
    limit: Annotated[int, typer.Option("--max", min=1, help="Most tasks.")] = 20,
    commits: Annotated[int, typer.Option(min=1, help="Most commits looked at, newest first.")] = 1000,
    repeats: Repeats = 3,
    split: OneSplit = "train",
    image: Ground = "host",
    rewriter: Annotated[
        str | None, typer.Option(help="package.module:function that rewrites an instruction, such as a model's.")
    ] = None,
    sandbox: Sandbox = "local",
    json: Json = False,
) -> None:
    """Build proven tasks from the history of a repository: commits that fix something, with their tests."""
    _call("building", "build_tasks", repository, target=out, limit=limit, commits=commits, repeats=repeats, split=split,
          image=image, rewriter=rewriter, sandbox=sandbox, as_json=json)  # fmt: skip


@tasks_app.command("synth")
def tasks_synth(
    repository: Annotated[str, typer.Argument(help="Path or URL of a git repository of Python code with tests.")],
    out: Out,
    kind: Annotated[str, typer.Option(help="The kind of synthetic task: mutation.")] = "mutation",
    limit: Annotated[int, typer.Option("--max", min=1, help="Most tasks.")] = 20,
    combine: Annotated[int, typer.Option(min=1, max=5, help="Mistakes in each task.")] = 1,
    seed: Seed = 0,
    repeats: Repeats = 3,
    split: OneSplit = "train",
    image: Ground = "host",
    sandbox: Sandbox = "local",
    json: Json = False,
) -> None:
    """Build proven tasks by putting mistakes into working code that its tests notice."""
    _call("building", "synthesize_tasks", repository, target=out, kind=kind, limit=limit, combine=combine, seed=seed,
          repeats=repeats, split=split, image=image, sandbox=sandbox, as_json=json)  # fmt: skip


@snapshots_app.command("list")
def snapshots_list(
    sandbox: Annotated[str | None, typer.Option(help="Only of this backend.")] = None, json: Json = False
) -> None:
    """List snapshots: their id, backend and label."""
    _call("snapshots", "list_snapshots", sandbox=sandbox, as_json=json)


@snapshots_app.command("delete")
def snapshots_delete(
    ids: Annotated[list[str], typer.Argument(help="Ids, as `forkgym snapshots list` shows them.")],
    sandbox: Sandbox = "local",
    json: Json = False,
) -> None:
    """Delete snapshots; sandboxes that were made of them go on."""
    _call("snapshots", "delete_snapshots", ids, sandbox=sandbox, as_json=json)


@images_app.command("list")
def images_list(json: Json = False) -> None:
    """List images: their size, layers, who uses them, and when they were last used."""
    _call("images", "list_images", as_json=json)


@images_app.command("build")
def images_build(
    recipe: Annotated[str, typer.Argument(help="A recipe file, or the name of a bundled one such as base.")],
    docker: Annotated[bool, typer.Option("--docker", help="Also import the image into the Docker daemon.")] = False,
    json: Json = False,
) -> None:
    """Build an image from a recipe. What is built already is not built again."""
    _call("images", "build_image", recipe, docker=docker, as_json=json)


@images_app.command("prune")
def images_prune(
    everything: Annotated[
        bool, typer.Option("--all", help="Also remove images that no sandbox or snapshot uses.")
    ] = False,
    json: Json = False,
) -> None:
    """Remove layers that no image, sandbox or snapshot needs, and what broken builds left."""
    _call("images", "prune_images", everything=everything, as_json=json)


@app.command()
def run(
    context: typer.Context,
    task: Annotated[str, typer.Argument(help="A task id, or a pattern of which the seed picks one.")] = "swe/tiny/*",
    agent: AgentName = "oracle",
    harness: HarnessName = None,
    agent_option: AgentOptions = None,
    model: Model = None,
    sandbox: Sandbox = "local",
    seed: Seed = 0,
    turns: Turns = None,
    max_tokens: Tokens = 256,
    temperature: Temperature = 0.0,
    json: Json = False,
) -> None:
    """Play one episode and watch it, turn by turn."""
    if harness is not None:
        _refuse(context, ["agent"], "--harness says who plays")
    _call("run", "run", task, agent=harness or agent, agent_options=agent_option or [], model=model, sandbox=sandbox,
          seed=seed, turns=turns, max_tokens=max_tokens, temperature=temperature, as_json=json)  # fmt: skip


@app.command("serve-mcp")
def serve_mcp(
    task: Annotated[str, typer.Argument(help="A task id, or a pattern of which the seed picks one.")],
    sandbox: Sandbox = "local",
    seed: Seed = 0,
    turns: Turns = None,
    out: Annotated[Path | None, typer.Option(help="Also write how the episode ended to this file, as JSON.")] = None,
) -> None:
    """Offer the tools of one episode to an MCP client on standard input and output."""
    _call("serve_mcp", "serve_mcp", task, sandbox=sandbox, seed=seed, turns=turns, out=out)


@app.command()
def gateway(
    policy: Annotated[
        str, typer.Option("--policy", "--model", help="Who samples: a model, a run, or an engine (docs/policies.md).")
    ],
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="TCP port; 0 takes any (default: 8800).")] = None,
    host: Annotated[
        str, typer.Option(help="Address to listen on. Whoever reaches it may use the model.")
    ] = "127.0.0.1",
    socket: Annotated[Path | None, typer.Option(help="Listen on this unix socket instead.")] = None,
    format: Annotated[
        str, typer.Option(help="The model's chat format; auto finds it, text hands messages to an endpoint.")
    ] = "auto",
    model_name: Annotated[str, typer.Option(help="The name that clients are shown.")] = "forkgym",
    concurrency: Annotated[int, typer.Option(min=1, help="Calls at once.")] = 16,
    seed: Seed = 0,
    out: Annotated[
        Path | None, typer.Option(help="Write each episode, with its exact tokens, to this file as JSON lines.")
    ] = None,
) -> None:
    """Serve a model to any program: chat completions, responses, messages and generateContent.

    Each address /e/NAME is an episode of its own; it ends with DELETE /e/NAME, or with the gateway.
    """
    if socket is not None and port is not None:
        raise typer.BadParameter("--socket and --port are two places to listen on; give one of them")
    _call("gateway", "serve_gateway", policy, host=host, port=port, socket=socket, format=format,
          model_name=model_name, concurrency=concurrency, seed=seed, out_file=out)  # fmt: skip


EPISODES = ("tasks", "split", "agent", "harness", "agent_option", "model", "n", "seed", "turns", "max_tokens",
            "temperature", "report", "max_seconds", "max_sampled_tokens", "tree_digests")  # fmt: skip
GRADING = ("image", "repos", "assets", "run_id", "timeout")


def _refuse(context: typer.Context, names: Sequence[str], why: str) -> None:
    """No option that was given is ignored."""
    for name in names:
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            raise typer.BadParameter(f"{'-' if name == 'n' else '--'}{name.replace('_', '-')} does not fit: {why}")


@app.command("eval")
def evaluate(
    context: typer.Context,
    tasks: Annotated[str, typer.Option(help="A pattern of task ids, or a folder of tasks.")] = "swe/tiny/*",
    split: Split = None,
    agent: AgentName = "oracle",
    harness: Annotated[
        str | None, typer.Option(help="Agent programs that play, such as mini-swe-agent,pi,tools: a table of them.")
    ] = None,
    agent_option: AgentOptions = None,
    model: Model = None,
    n: Annotated[int, typer.Option("-n", min=1, help="Episodes per task.")] = 1,
    sandbox: Sandbox = "local",
    seed: Seed = 0,
    turns: Turns = None,
    max_tokens: Tokens = 256,
    temperature: Temperature = 0.0,
    concurrency: Annotated[int, typer.Option(min=1, help="Episodes at once.")] = 8,
    max_seconds: Annotated[
        float | None, typer.Option(min=0.001, help="Begin no episode after so many seconds.")
    ] = None,
    max_sampled_tokens: Annotated[int | None, typer.Option(min=1, help="Nor after so many sampled tokens.")] = None,
    tree_digests: Annotated[
        bool, typer.Option("--tree-digests", help="Record what files are after each turn.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the records; the same folder resumes (default: one per command).")
    ] = None,
    report: Annotated[Path | None, typer.Option(help="Also write an HTML report here.")] = None,
    dataset: Annotated[Path | None, typer.Option(help="SWE-bench rows: .json, .jsonl or .parquet.")] = None,
    predictions: Annotated[
        str | None, typer.Option(help="Predictions for the rows, .json or .jsonl; gold takes the rows' own patches.")
    ] = None,
    image: Annotated[str | None, typer.Option(help="Grade in this image of ours, with --repos.")] = None,
    repos: Annotated[Path | None, typer.Option(help="Folder of clones, as owner/name, for --image.")] = None,
    assets: Annotated[Path | None, typer.Option(help="Binary files of rows: INSTANCE/test_assets/PATH.")] = None,
    run_id: Annotated[str, typer.Option(help="Names the logs and the report of graded predictions.")] = "forkgym",
    timeout: Annotated[float, typer.Option(min=1, help="Seconds for the tests of one prediction.")] = 1800.0,
    json: Json = False,
) -> None:
    """Measure an agent on a set of tasks, or grade a file of SWE-bench predictions (--dataset, --predictions).

    Stopped at any point, the same command goes on where it was. Other settings play into another folder.
    """
    if dataset is not None or predictions is not None:
        _refuse(context, EPISODES, "--dataset and --predictions grade patches; nobody plays")
        if dataset is None or predictions is None:
            raise typer.BadParameter("give --dataset and --predictions together")
        _call("predictions", "grade_predictions", dataset, predictions, image=image, repositories=repos, assets=assets,
              run_id=run_id, timeout=timeout, sandbox=sandbox, concurrency=concurrency,
              folder=out or Path("runs/eval"), as_json=json)  # fmt: skip
    _refuse(context, GRADING, "only --dataset and --predictions take it")
    options = {
        "split": split, "model": model, "n": n, "sandbox": sandbox, "seed": seed, "turns": turns,
        "max_tokens": max_tokens, "temperature": temperature, "concurrency": concurrency, "out": out,
        "max_seconds": max_seconds, "max_sampled_tokens": max_sampled_tokens, "tree_digests": tree_digests,
        "as_json": json,
    }  # fmt: skip
    if harness is not None:
        _refuse(context, ["agent"], "--harness says who plays")
    names = harness.split(",") if harness else [agent]
    if len(names) > 1:
        _refuse(context, ["report"], "it shows one player; name one")
        _refuse(context, ["agent_option"], "it is for one player; name one")
        _call("matrix", "evaluate_matrix", tasks, names, **options)
    _call("evaluate", "evaluate", tasks, agent=names[0], agent_options=agent_option or [], report=report,
          **options)  # fmt: skip


Elsewhere = Annotated[str | None, typer.Option("--tasks", help="Where the tasks are, if the run does not say.")]
SameSandbox = Annotated[str | None, typer.Option("--sandbox", help="A backend other than the run's own.")]


@app.command()
def replay(
    record: Annotated[str, typer.Argument(help="A run's folder, a file of records, or FILE#ID.")],
    id: Annotated[str | None, typer.Argument(help="The id of one episode (default: all of them).")] = None,
    ignore: Annotated[
        list[str] | None, typer.Option(help="A regular expression: what it matches may differ; repeatable.")
    ] = None,
    tasks: Elsewhere = None,
    sandbox: SameSandbox = None,
    json: Json = False,
) -> None:
    """Act recorded episodes again in fresh sandboxes, and show the first difference. Exit code 1 if there is one."""
    _call("recorded", "replay_command", record, id, tasks=tasks, sandbox=sandbox, ignore=ignore or [], as_json=json)


@app.command()
def rescore(
    run: Annotated[Path, typer.Argument(help="A run's folder, or a file of records.")],
    reward: Annotated[str | None, typer.Option(help="A reward other than the run's own.")] = None,
    write: Annotated[
        bool, typer.Option("--write", help="Write the new records beside the old: *.rescored.jsonl.")
    ] = False,
    concurrency: Annotated[int, typer.Option(min=1, help="Gradings at once.")] = 4,
    tasks: Elsewhere = None,
    sandbox: SameSandbox = None,
    json: Json = False,
) -> None:
    """Grade saved episodes again, and show which rewards changed. Exit code 1 if some did or could not be graded."""
    _call("recorded", "rescore_command", run, tasks=tasks, sandbox=sandbox, reward=reward, concurrency=concurrency,
          write=write, as_json=json)  # fmt: skip


@app.command()
def train(
    recipe: Annotated[str, typer.Argument(help="A recipe file, or the name of a bundled one.")],
    overrides: Annotated[list[str] | None, typer.Argument(help="key=value pairs that replace recipe entries.")] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on from the newest checkpoint in the run's folder.")
    ] = False,
    json: Json = False,
) -> None:
    """Train by a recipe, after printing what exactly will be computed."""
    _call("train", "train", recipe, overrides or [], resume=resume, as_json=json)


@app.command()
def recipes(
    reference: Annotated[
        bool, typer.Option("--reference", help="Instead show every option of a recipe, as Markdown.")
    ] = False,
    json: Json = False,
) -> None:
    """List the recipes that come with ForkGym."""
    _call("recipes", "recipes_command", reference=reference, as_json=json)


HarnessNames = Annotated[list[str], typer.Argument(help="Names of harnesses, as `forkgym harness list` shows them.")]


@harness_app.command("list")
def harness_list(json: Json = False) -> None:
    """List agent programs: version, what they speak, how long their own prompt is, whether they are installed."""
    _call("harness", "list_harnesses", as_json=json)


@harness_app.command("install")
def harness_install(names: HarnessNames) -> None:
    """Install agent programs, of their pinned versions, where sandboxes can show them."""
    _call("harness", "install_harnesses", names)


@harness_app.command("check")
def harness_check(names: HarnessNames, sandbox: Sandbox = "local", json: Json = False) -> None:
    """Check with a scripted model that every token is kept exactly once, and that every end is seen."""
    _call("harness", "check_harnesses", names, sandbox=sandbox, as_json=json)


@bench_app.command("sandbox")
def bench_sandbox(
    backend: Annotated[
        list[str] | None, typer.Option(help="A backend to measure; repeatable (default: local).")
    ] = None,
    image: Annotated[str, typer.Option(help="The image that the sandboxes start from.")] = "host",
    quick: Annotated[bool, typer.Option("--quick", help="Few repetitions: seconds instead of minutes.")] = False,
    alive: Annotated[int | None, typer.Option(min=1, help="Sandboxes alive at once (default: 100).")] = None,
    cycles: Annotated[int | None, typer.Option(min=1, help="Cycles of the leak test (default: 1000).")] = None,
    baseline: Annotated[
        bool, typer.Option(help="Also measure the docker SDK alone, where a daemon answers, and give ratios.")
    ] = True,
    json: Annotated[Path | None, typer.Option(help="Write all numbers to this file; - prints them instead.")] = None,
) -> None:
    """Measure create, commands, files, snapshots, forks, load, memory and leaks of sandboxes."""
    _call("bench", "bench_sandbox", backend or ["local"], image=image, quick=quick, alive=alive, cycles=cycles,
          baseline=baseline, json_path=json)  # fmt: skip


@app.command()
def gc(json: Json = False) -> None:
    """Remove what dead runs left behind: sandboxes, layers, control groups."""
    _call("gc", "collect_garbage", as_json=json)


@app.command()
def demo(
    overrides: Annotated[list[str] | None, typer.Argument(help="sft.key=value and grpo.key=value pairs.")] = None,
    out: Annotated[Path, typer.Option(help="Folder of the demo's records and its report.")] = Path("runs/demo"),
    seed: Seed = 0,
) -> None:
    """Train a small language model in forking sandboxes, live, and write an HTML report."""
    _call("demo", "demo", overrides or [], out=out, seed=seed)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; errors become two lines and an exit code, never a traceback (but with --debug)."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in given
    words = [word for word in given if word != "--debug"]
    before = signal.signal(signal.SIGTERM, _interrupt)  # a polite kill cleans up as Ctrl-C does
    try:
        code = app(words, prog_name="forkgym", standalone_mode=False)
    except typer.TyperException as error:
        typer.echo(f"error: {error.format_message()}", err=True)
        typer.echo("       `forkgym --help` lists the commands, `forkgym COMMAND --help` their options.", err=True)
        return 2
    except (KeyboardInterrupt, typer.Abort):
        code = 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # the reader is gone: let the last flush go nowhere
        return 1
    except Exception as error:
        from forkgym.cli.output import report_error

        return report_error(error, debug=debug, as_json="--json" in words)
    finally:
        signal.signal(signal.SIGTERM, before)
    if code == 130:
        typer.echo("Interrupted. What was finished is kept.", err=True)
    return code if isinstance(code, int) else 0


def _interrupt(signum: int, frame: object) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
