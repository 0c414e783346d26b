"""What stands under ``kernel`` in a ``task.yaml``: signature, arguments, shapes, how it is checked and timed."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from forkgym.tasks.base import Task
from forkgym.tasks.errors import TaskFormatError

NATIVE = ("c", "cpp")
TESTS = ("builds", "runs", "correct", "honest", "faster", "expert")
"""The graded items of every kernel task, in the order in which a kernel gets there."""
Distribution = Literal["uniform", "zeros_ones", "cancel", "wide_range", "constant", "special"]
Dtype = Literal["f32", "f64", "i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64"]

# name in C -> (dtype, bytes)
TYPES: Mapping[str, tuple[Dtype, int]] = {
    "float": ("f32", 4), "double": ("f64", 8), "int": ("i32", 4), "unsigned": ("u32", 4), "unsigned int": ("u32", 4),
    "char": ("i8", 1), "signed char": ("i8", 1), "unsigned char": ("u8", 1), "size_t": ("u64", 8),
    "int8_t": ("i8", 1), "uint8_t": ("u8", 1), "int16_t": ("i16", 2), "uint16_t": ("u16", 2),
    "int32_t": ("i32", 4), "uint32_t": ("u32", 4), "int64_t": ("i64", 8), "uint64_t": ("u64", 8),
}  # fmt: skip
# Relative error allowed by default: reordered sums pass, the next lower precision does not.
_RTOL: Mapping[Dtype, float] = {"f32": 1e-4, "f64": 1e-10}
_OPERATORS: Mapping[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: int.__add__, ast.Sub: int.__sub__, ast.Mult: int.__mul__, ast.FloorDiv: int.__floordiv__,
    ast.Div: int.__floordiv__,
}  # fmt: skip
_MAX_BYTES = 64 << 20

Number = Annotated[float, Field(allow_inf_nan=False)]
Shape = Annotated[dict[str, int], Field(min_length=1)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class ArgModel(_Strict):
    """One pointer of the signature: how many elements, and what an input holds.

    ``values`` are drawn from [``low``, ``high``] by the distribution of the trial; ``sorted`` the same, ascending;
    ``index``: whole numbers in [0, ``below``); ``offsets``: non-decreasing from 0 to ``below``;
    ``text``: characters of ``alphabet``.
    """

    size: str | int
    role: Literal["inout"] | None = None
    kind: Literal["values", "sorted", "index", "offsets", "text"] = "values"
    low: Number | None = None
    high: Number | None = None
    below: str | int | None = None
    alphabet: Annotated[str, Field(pattern=r"^[!-~]+$", max_length=64)] | None = None

    @model_validator(mode="after")
    def _fits(self) -> ArgModel:
        if (self.below is not None) != (self.kind in ("index", "offsets")):
            raise ValueError("'below' belongs to the kinds index and offsets, and they need it")
        if (self.alphabet is not None) != (self.kind == "text"):
            raise ValueError("'alphabet' belongs to the kind text, which needs it")
        if self.low is not None and self.high is not None and not self.low < self.high:
            raise ValueError("'low' must be below 'high'")
        return self


class ShapesModel(_Strict):
    """The agent may try ``public`` ones, ``hidden`` ones must be right, ``timed`` ones (or the last hidden) count."""

    public: Annotated[list[Shape], Field(min_length=1)]
    hidden: Annotated[list[Shape], Field(min_length=1)]
    timed: Annotated[list[Shape], Field(min_length=1, max_length=4)] | None = None

    @property
    def to_time(self) -> list[dict[str, int]]:
        return self.timed or self.hidden[-1:]


class CheckModel(_Strict):
    """Each output element may differ by ``rtol`` of itself plus ``atol`` of the output's root mean square."""

    rtol: Annotated[float, Field(ge=0, le=0.1, allow_inf_nan=False)] | None = None
    atol: Annotated[float, Field(ge=0, le=0.1, allow_inf_nan=False)] | None = None
    inputs: Annotated[list[Distribution], Field(min_length=1)] = ["uniform", "zeros_ones", "wide_range"]
    trials: Annotated[int, Field(ge=1, le=50)] = 2


class MeasureModel(_Strict):
    """``pairs`` are timed at first, up to 61 if they do not decide. ``call_timeout`` in seconds."""

    flags: str = "-O3 -march=native"
    pairs: Annotated[int, Field(ge=5, le=31)] = 11
    call_timeout: Annotated[float, Field(gt=0, le=60)] = 5.0


class AllowModel(_Strict):
    """Functions that a kernel may call beyond libm and the ``mem*`` family."""

    imports: list[str] = []


@dataclass(frozen=True)
class Parameter:
    """One parameter of the signature. ``pointer`` ones have a role: in, out or inout."""

    name: str
    ctype: str
    dtype: Dtype
    itemsize: int
    role: Literal["scalar", "in", "out", "inout"]


class KernelModel(_Strict):
    """All of it. ``options`` belong to the backend."""

    backend: Annotated[str, Field(min_length=1)]
    file: Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]*$")] = "kern.c"
    signature: Annotated[str, Field(min_length=1)]
    args: dict[str, ArgModel]
    shapes: ShapesModel
    check: CheckModel = CheckModel()
    measure: MeasureModel = MeasureModel()
    allow: AllowModel = AllowModel()
    options: dict[str, Any] = {}

    @field_validator("signature")
    @classmethod
    def _readable(cls, text: str) -> str:
        parse_signature(text)
        return text

    @model_validator(mode="after")
    def _consistent(self) -> KernelModel:
        pointers = [p.name for p in self.parameters if p.role != "scalar"]
        if missing := sorted(set(pointers) ^ set(self.args)):
            raise ValueError(f"'args' and the pointers of 'signature' differ: {', '.join(missing)}")
        if not any(p.role in ("out", "inout") for p in self.parameters):
            raise ValueError("'signature' has no output: a pointer without const")
        for shape in [*self.shapes.public, *self.shapes.hidden, *self.shapes.to_time]:
            for p in self.parameters:
                self._check_in_shape(p, shape)
        return self

    def _check_in_shape(self, p: Parameter, shape: Mapping[str, int]) -> None:
        if p.role == "scalar":
            if p.name not in shape:
                raise ValueError(f"the shape {shape} gives no {p.name!r}")
            return
        arg = self.args[p.name]
        if not 0 < self.count(p.name, shape) * p.itemsize <= _MAX_BYTES:
            raise ValueError(f"args.{p.name}.size is {self.count(p.name, shape)} in the shape {shape}: 1 to 64 MiB")
        if arg.kind != "values" and p.role == "out":
            raise ValueError(f"args.{p.name}.kind says what an input holds, and {p.name!r} is an output")
        if arg.kind in ("index", "offsets", "text") and p.dtype in ("f32", "f64"):
            raise ValueError(f"args.{p.name}.kind {arg.kind} needs whole numbers, not {p.ctype}")
        if arg.below is not None and evaluate(arg.below, shape) < 1:
            raise ValueError(f"args.{p.name}.below is less than 1 in the shape {shape}")

    @property
    def function(self) -> str:
        """The name of the function."""
        return self._parsed[0]

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """The parameters in order."""
        inout = {key for key, arg in self.args.items() if arg.role == "inout"}
        return tuple(
            Parameter(p.name, p.ctype, p.dtype, p.itemsize, "inout") if p.role == "out" and p.name in inout else p
            for p in self._parsed[1]
        )

    @cached_property
    def _parsed(self) -> tuple[str, tuple[Parameter, ...]]:
        return parse_signature(self.signature)

    def count(self, name: str, shape: Mapping[str, int]) -> int:
        """Elements of this pointer in this shape."""
        return evaluate(self.args[name].size, shape)

    def elements(self, shape: Mapping[str, int]) -> int:
        """Elements of all pointers together."""
        return sum(self.count(name, shape) for name in self.args)

    def below(self, name: str, shape: Mapping[str, int]) -> int:
        """The bound of an argument of kind index or offsets in this shape."""
        return evaluate(self.args[name].below or 0, shape)

    def tolerance(self, dtype: Dtype) -> tuple[float, float]:
        """(rtol, atol) of outputs of this type; whole numbers must be exact."""
        default = _RTOL.get(dtype)
        if default is None:
            return 0.0, 0.0
        rtol = default if self.check.rtol is None else self.check.rtol
        return rtol, rtol / 10 if self.check.atol is None else self.check.atol


def parse_signature(text: str) -> tuple[str, tuple[Parameter, ...]]:
    """``void kern(const float* a, int n)`` -> its name and parameters. Raises ``ValueError``."""
    found = re.fullmatch(r"\s*void\s+([A-Za-z_]\w*)\s*\(([^()]*)\)\s*;?\s*", text)
    if not found:
        raise ValueError("must read like: void kern(const float* a, float* out, int n)")
    parameters: list[Parameter] = []
    for part in found[2].split(","):
        match = re.fullmatch(r"\s*(const\s+)?([a-z_0-9 ]+?)\s*(\*?)\s*(?:restrict\s+)?([A-Za-z_]\w*)\s*", part)
        if not match or match[2] not in TYPES:
            raise ValueError(f"cannot read the parameter {part.strip()!r}; types: {', '.join(TYPES)}")
        dtype, size = TYPES[match[2]]
        role: Literal["scalar", "in", "out"] = "scalar" if not match[3] else "in" if match[1] else "out"
        parameters.append(Parameter(match[4], match[2], dtype, size, role))
    names = [p.name for p in parameters]
    if len(set(names)) < len(names):
        raise ValueError("two parameters have one name")
    return found[1], tuple(parameters)


def evaluate(expression: str | int, shape: Mapping[str, int]) -> int:
    """A sum, difference, product or floored quotient of whole numbers and names of the shape. Raises ``ValueError``."""
    if isinstance(expression, int):
        return expression
    try:
        return _value(ast.parse(expression, mode="eval").body, shape)
    except (SyntaxError, ZeroDivisionError, RecursionError) as error:
        raise ValueError(f"cannot evaluate {expression!r}: {error}") from error


def _value(node: ast.expr, shape: Mapping[str, int]) -> int:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.Name):
        if node.id not in shape:
            raise ValueError(f"the shape {dict(shape)} gives no {node.id!r}")
        return shape[node.id]
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        return _OPERATORS[type(node.op)](_value(node.left, shape), _value(node.right, shape))
    raise ValueError(f"{ast.unparse(node)!r} is no sum, product or quotient of whole numbers and names of the shape")


def spec_of(task: Task) -> KernelModel:
    """What the task says of its kernel. Raises ``TaskFormatError``."""
    try:
        return KernelModel.model_validate(task.grading.options.get("kernel"))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise TaskFormatError(f"{task.id}: kernel.{where}: {first['msg']}") from error
