"""What may stand in a ``task.yaml``. Unknown keys are refused; every error names file, line and key."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from forkgym.errors import ConfigError
from forkgym.sandboxes.base import Limits
from forkgym.sandboxes.limits import parse_limits
from forkgym.sandboxes.yamltext import Document, Location, parse
from forkgym.tasks.base import Budget, Grading
from forkgym.tasks.errors import TaskFormatError
from forkgym.tasks.kernels.spec import TESTS, AllowModel, ArgModel, CheckModel, KernelModel, MeasureModel, ShapesModel

MAX_INSTRUCTION = 32_000
KERNEL_TIMEOUT = 120.0


def _relative(path: str) -> str:
    parts = PurePosixPath(path).parts
    if not path or path.startswith("/") or ".." in parts or str(PurePosixPath(path)) != path or "\0" in path:
        raise ValueError("must be a plain relative path such as pkg/mod.py")
    return path


def _absolute(path: str) -> str:
    if not path.startswith("/") or path == "/" or str(PurePosixPath(path)) != path or ".." in PurePosixPath(path).parts:
        raise ValueError("must be a plain absolute path such as /work")
    return path


RelativePath = Annotated[str, AfterValidator(_relative)]
TaskId = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]*(/[a-z0-9][a-z0-9._-]*)*$", max_length=200)]
VariantId = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]*$", max_length=100)]
Text = Annotated[str, Field(min_length=1, max_length=MAX_INSTRUCTION)]
Split = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]*$")]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class EditModel(_Strict):
    """One replacement in a file of the solution; ``find`` must occur exactly once in it."""

    file: RelativePath
    find: Annotated[str, Field(min_length=1)]
    replace: str


class VariantModel(_Strict):
    """One task of a family: the solution with ``edits`` applied is what the agent finds."""

    id: VariantId
    split: Split
    instruction: Text
    edits: Annotated[list[EditModel], Field(min_length=1)]
    params: dict[str, Any] = {}


class GradingModel(_Strict):
    """How a submission is judged; ``options`` belong to the runner."""

    runner: Annotated[str, Field(min_length=1)]
    tests: Annotated[list[Annotated[str, Field(min_length=1)]], Field(min_length=1)]
    timeout: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 60.0
    options: dict[str, Any] = {}

    @field_validator("tests")
    @classmethod
    def _each_once(cls, tests: list[str]) -> list[str]:
        if twice := sorted({test for test in tests if tests.count(test) > 1}):
            raise ValueError(f"listed twice: {', '.join(twice)}")
        return tests

    def build(self) -> Grading:
        return Grading(self.runner, tuple(self.tests), self.timeout, self.options)


class BudgetModel(_Strict):
    """What one episode may use; ``null`` is no limit."""

    turns: Annotated[int, Field(gt=0)] | None = 30
    seconds: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = 600.0
    tokens: Annotated[int, Field(gt=0)] | None = None

    def build(self) -> Budget:
        return Budget(self.turns, self.seconds, self.tokens)


class TaskModel(_Strict):
    """A ``task.yaml``: one task, or a family of them under ``variants``."""

    schema_: Literal[1] = Field(alias="schema")
    id: TaskId | None = None
    family: VariantId
    instruction: Text | None = None
    split: Split | None = None
    image: Annotated[str, Field(min_length=1)] = "host"
    workdir: Annotated[str, AfterValidator(_absolute)] = "/work"
    setup: list[Annotated[str, Field(min_length=1)]] = []
    solve: str = ""
    user: Literal["agent", "root"] = "agent"
    env: dict[str, str] = {}
    submits: Literal["sources", "everything"] = "sources"
    tools: Annotated[list[str], Field(min_length=1)] | None = None
    limits: dict[str, Any] = {}
    budget: BudgetModel = BudgetModel()
    network: Literal["none"] = "none"
    grading: GradingModel | None = None
    kernel: KernelModel | None = None
    params: dict[str, Any] = {}
    license: Annotated[str, Field(min_length=1)]
    source: Annotated[str, Field(min_length=1)]
    removed: list[RelativePath] = []
    variants: Annotated[list[VariantModel], Field(min_length=1)] | None = None

    @field_validator("limits")
    @classmethod
    def _readable(cls, limits: dict[str, Any]) -> dict[str, Any]:
        try:
            parse_limits(limits)
        except ConfigError as error:
            raise ValueError(str(error)) from error
        return limits

    @model_validator(mode="after")
    def _one_or_many(self) -> TaskModel:
        single = ("instruction", "split")
        if self.variants is None:
            for name in single:
                if getattr(self, name) is None:
                    raise ValueError(f"the key {name!r} is missing (or give 'variants')")
        else:
            for name in single:
                if getattr(self, name) is not None:
                    raise ValueError(f"{name!r} belongs into each variant, not beside 'variants'")
            if self.removed:
                raise ValueError("'removed' and 'variants' exclude each other: edits don't delete files")
            if self.solve:
                raise ValueError("'solve' and 'variants' exclude each other: an edit needs the solution's files")
            ids = [variant.id for variant in self.variants]
            if twice := sorted({name for name in ids if ids.count(name) > 1}):
                raise ValueError(f"variants share an id: {', '.join(twice)}")
        return self

    @model_validator(mode="after")
    def _judged_one_way(self) -> TaskModel:
        if (self.grading is None) == (self.kernel is None):
            raise ValueError("the key 'grading' is missing" if self.grading is None else "'kernel' grades by itself")
        return self

    def build_limits(self) -> Limits:
        return parse_limits(self.limits)

    def build_grading(self) -> Grading:
        if self.kernel is not None:
            options = {"kernel": self.kernel.model_dump(exclude_none=True)}
            return Grading("kernel", TESTS, KERNEL_TIMEOUT, options)
        assert self.grading is not None
        return self.grading.build()

    def build_tools(self) -> tuple[str, ...]:
        if self.tools is not None:
            return tuple(self.tools)
        return ("bash", "view", "edit", *(["measure"] if self.kernel is not None else []), "submit")


def read_model(text: str, name: str) -> tuple[TaskModel, Document]:
    """Parse and check one ``task.yaml``; ``name`` is how errors call the file. Raises ``TaskFormatError``."""
    document = parse(text, name, TaskFormatError)
    if not isinstance(document.data, Mapping):
        raise document.error((), "must hold keys such as 'schema: 1'")
    try:
        return TaskModel.model_validate(document.data), document
    except ValidationError as error:
        # A misspelt key is also a missing one: the spelling is what helps.
        first = min(error.errors(include_url=False), key=lambda item: item["type"] != "extra_forbidden")
        raise document.error(_where(first["loc"], document), _say(first)) from error


def _where(location: Location, document: Document) -> Location:
    # An optional list or model adds steps of pydantic's own to the location; keys of ours exist in the file.
    kept: Location = ()
    for index, part in enumerate(location):
        if (*kept, part) in document.lines or index == len(location) - 1:
            kept = (*kept, part)
    return kept


def _say(error: Any) -> str:
    kind, message, context = error["type"], str(error["msg"]), error.get("ctx", {})
    if kind == "extra_forbidden":
        near = difflib.get_close_matches(str(error["loc"][-1]), _known(error["loc"]), n=1)
        return "unknown key" + (
            f"; did you mean {near[0]!r}?" if near else f"; known: {', '.join(_known(error['loc']))}"
        )
    if kind == "missing":
        return "this key is missing"
    if kind == "greater_than":
        return f"must be > {context['gt']:g}"
    if kind == "value_error":
        return message.removeprefix("Value error, ")
    return message[:1].lower() + message[1:]


def _known(location: Location) -> list[str]:
    models: dict[str, type[BaseModel]] = {
        "grading": GradingModel,
        "budget": BudgetModel,
        "edits": EditModel,
        "variants": VariantModel,
        "kernel": KernelModel,
        "args": ArgModel,
        "shapes": ShapesModel,
        "check": CheckModel,
        "measure": MeasureModel,
        "allow": AllowModel,
    }
    owner = next((models[str(part)] for part in reversed(location[:-1]) if str(part) in models), TaskModel)
    return sorted(info.alias or name for name, info in owner.model_fields.items())
