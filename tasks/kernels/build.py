"""From sources to what the runner needs: compiled kernels, facts about the submitted one, and the job as text."""

from __future__ import annotations

import functools
import re
import secrets
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files

from forkgym.sandboxes.base import Sandbox
from forkgym.tasks.base import Task
from forkgym.tasks.errors import GradingError
from forkgym.tasks.kernels.spec import KernelModel, Parameter

WORKERS = ("candidate", "baseline", "control", "expert", "reference")
BUILD_TIMEOUT = 60.0
_GUEST = "forkgym.tasks.kernels.guest"
_COMPILERS = {"c": "gcc", "cpp": "g++"}
_DTYPES = ("f32", "f64", "i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64")
_KINDS = ("values", "sorted", "index", "offsets", "text")
_ROLES = ("scalar", "in", "out", "inout")
_PAGE = 4096
_KEEP = 64
_MISSING = 127
# No start files: a kernel has no business to run anything when it is loaded, and its sections then show if it does.
_SHARED = "-shared -fPIC -nostartfiles -w"
_FACTS = """
cd "$1" && echo '== symbols' && nm -P candidate.so && echo '== imports' && nm -D -P --undefined-only candidate.so \
&& echo '== dynamic' && readelf -dW candidate.so && echo '== relocations' && readelf -rW candidate.so \
&& echo '== segments' && readelf -lW candidate.so && echo '== instructions' \
&& objdump -d --no-show-raw-insn candidate.so | awk -F'\\t' 'NF > 1 {split($2, word, " "); print word[1]}' \
| sort | uniq -c
"""


@dataclass(frozen=True)
class Facts:
    """What the compiled kernel shows: sections of text by name, as the tools print them; instructions counted."""

    sections: Mapping[str, str] = field(default_factory=dict[str, str])

    @functools.cached_property
    def instructions(self) -> dict[str, int]:
        """Mnemonic to how often it stands in the code."""
        lines = (line.split() for line in self.sections.get("instructions", "").splitlines())
        return {words[1]: int(words[0]) for words in lines if len(words) == 2}

    @functools.cached_property
    def imports(self) -> list[str]:
        """Symbols that others must provide."""
        return sorted({line.split()[0].split("@")[0] for line in self.sections.get("imports", "").splitlines() if line})

    @functools.cached_property
    def defined(self) -> list[str]:
        """Functions and data that the kernel defines, local ones included."""
        lines = (line.split() for line in self.sections.get("symbols", "").splitlines())
        return sorted({words[0] for words in lines if len(words) >= 2 and words[1] not in "Uw"})


def compile_candidate(box: Sandbox, spec: KernelModel, place: str, source: str) -> tuple[str, Facts]:
    """Compile the file at ``source`` into ``place``. Returns the compiler's complaint (or nothing), and facts.

    Raises ``GradingError`` if there is no compiler.
    """
    if problem := _compile(box, spec, source, f"{place}/candidate.so"):
        return problem, Facts()
    result = box.exec(("/bin/bash", "-c", _FACTS, "facts", place), timeout=BUILD_TIMEOUT, cwd="/", max_output=4 << 20)
    if not result.ok or result.truncated:
        return f"what was compiled cannot be examined: {result.stderr.decode(errors='replace')[-500:]}", Facts()
    parts = re.split(r"^== (\w+)\n", result.stdout.decode(errors="replace"), flags=re.MULTILINE)
    return "", Facts(dict(zip(parts[1::2], parts[2::2], strict=True)))


def _compile(box: Sandbox, spec: KernelModel, source: str, target: str) -> str:
    compiler = _COMPILERS[spec.backend]
    command = f"exec {compiler} {spec.measure.flags} {_SHARED} -o {target} {source} -lm"
    result = box.exec(("/bin/sh", "-c", command), timeout=BUILD_TIMEOUT, cwd="/", max_output=1 << 16)
    if result.exit_code == _MISSING:
        raise GradingError(f"no {compiler} in the image {box.spec.image!r}: install a C compiler on the machine")
    if result.timed_out:
        return f"the compiler took longer than {BUILD_TIMEOUT:g} s"
    return "" if result.ok else (result.stderr or result.stdout).decode(errors="replace")[:4000] or "it failed"


# ---- what is trusted: compiled once, kept in this process

_kept: OrderedDict[tuple[str, str], dict[str, bytes]] = OrderedDict()
_lock = threading.Lock()


def place_trusted(box: Sandbox, task: Task, spec: KernelModel, place: str, grading: bool) -> dict[str, str]:
    """Put the runner and the trusted kernels below ``place``; worker name to path. Raises ``GradingError``.

    Only when ``grading`` (in a clean sandbox) does the expert go along.
    """
    key = (task.digest, box.spec.image)
    with _lock:
        built = _kept.get(key)
    if built is None:
        built = _build_trusted(box, task, spec, f"{place}/trusted")
        with _lock:
            if grading or task.user != "root":  # a root may have changed the compiler of its own sandbox
                _kept[key] = built
            while len(_kept) > _KEEP:
                _kept.popitem(last=False)
    for name, data in built.items():
        if name != "expert" or grading:
            box.write_file(f"{place}/{name}", data, 0o755)
    reference = "reference" if "reference" in built else "baseline"
    paths = {"baseline": "baseline", "control": "baseline", "reference": reference, "candidate": "candidate.so"}
    paths |= {"expert": "expert"} if grading else {}
    return {name: f"{place}/{path}" for name, path in paths.items()}


def _build_trusted(box: Sandbox, task: Task, spec: KernelModel, place: str) -> dict[str, bytes]:
    sources = {"baseline": task.files[spec.file], "reference": task.hidden.get(f"reference.{spec.file.split('.')[-1]}")}
    sources["expert"] = task.oracle.get(spec.file)
    built: dict[str, bytes] = {}
    with box.fork(1)[0] as private:  # nothing of it stays where submitted code will run
        for name, text in sources.items():
            if text is not None:
                built[name] = _trusted(private, spec, f"{place}/{name}", spec.file, text)
        for name in ("runner.c", "generate.h", "compare.h", "worker.h"):
            private.write_file(f"{place}/{name}", (files(_GUEST) / name).read_bytes())
        private.write_file(f"{place}/glue.h", glue(spec).encode())
        command = f"exec gcc -O2 -w -o {place}/runner {place}/runner.c -lm -ldl"
        result = private.exec(("/bin/sh", "-c", command), timeout=BUILD_TIMEOUT, cwd="/")
        if not result.ok:
            raise GradingError(
                f"{task.id}: the runner does not compile: {result.stderr.decode(errors='replace')[:2000]}"
            )
        built["runner"] = private.read_file(f"{place}/runner")
    return built


def _trusted(box: Sandbox, spec: KernelModel, place: str, name: str, text: bytes) -> bytes:
    box.write_file(f"{place}/{name}", text)
    if problem := _compile(box, spec, f"{place}/{name}", f"{place}/out.so"):
        raise GradingError(f"{place.rpartition('/')[2]}/{name} of the task does not compile: {problem}")
    return box.read_file(f"{place}/out.so")


def glue(spec: KernelModel) -> str:
    """C text that calls a function of the task's signature through what the runner holds."""
    passed = [
        f"({p.ctype}) scalars[{i}]" if p.role == "scalar" else f"({p.ctype} *) pointers[{i}]"
        for i, p in enumerate(spec.parameters)
    ]
    types = [p.ctype if p.role == "scalar" else f"{p.ctype} *" for p in spec.parameters]
    return (
        "static void call_kernel(void *function, char **pointers, const double *scalars) {\n"
        f"    ((void (*)({', '.join(types)}))function)({', '.join(passed)});\n}}\n"
        "static void call_nothing(void *function, char **pointers, const double *scalars) {\n"
        "    (void)pointers, (void)scalars, ((void (*)(void))function)();\n}\n"
    )


# ---- the job


@dataclass(frozen=True)
class Step:
    """One checked call, or (``rounds`` > 0) that many timed ones. The others are numbers in the runner's lists."""

    shape: int
    dist: int
    placement: int = 0
    rounds: int = 0


def job_text(
    spec: KernelModel,
    shapes: Sequence[Mapping[str, int]],
    steps: Sequence[Step],
    paths: Mapping[str, str],
    core: int,
    seed: int | None = None,
) -> str:
    """What the runner reads on standard input."""
    seed = secrets.randbits(63) if seed is None else seed
    lines = [f"{seed} {core} {int(spec.measure.call_timeout * 1e9)} {spec.function}"]
    lines += [paths.get(name, "-") for name in WORKERS]
    lines.append(str(len(spec.parameters)))
    lines += [_parameter_text(spec, p, shapes) for p in spec.parameters]
    lines.append(str(len(shapes)))
    lines += [_values_text(spec, p, shape) for shape in shapes for p in spec.parameters]
    lines.append(str(len(steps)))
    lines += [f"{step.shape} {step.dist} {step.placement} {step.rounds}" for step in steps]
    return "\n".join(lines) + "\n"


def _parameter_text(spec: KernelModel, p: Parameter, shapes: Sequence[Mapping[str, int]]) -> str:
    if p.role == "scalar":
        return f"0 {_DTYPES.index(p.dtype)} 0 0 0 0 -"
    arg = spec.args[p.name]
    most = max(spec.count(p.name, shape) for shape in shapes) * p.itemsize
    slot = (most + _PAGE - 1) // _PAGE * _PAGE
    rtol, atol = spec.tolerance(p.dtype)
    kind = _KINDS.index(arg.kind)
    return f"{_ROLES.index(p.role)} {_DTYPES.index(p.dtype)} {kind} {rtol} {atol} {slot} {arg.alphabet or '-'}"


def _values_text(spec: KernelModel, p: Parameter, shape: Mapping[str, int]) -> str:
    if p.role == "scalar":
        return f"{shape[p.name]} nan nan 0"
    arg = spec.args[p.name]
    below = 0 if arg.below is None else spec.below(p.name, shape)
    low, high = ("nan" if value is None else value for value in (arg.low, arg.high))
    return f"{spec.count(p.name, shape)} {low} {high} {below}"
