"""Hold the size and shape of the source: file and function length, cycles, local imports, root API, dependencies.

The numbers stand in ``[tool.forkgym.budget]`` of pyproject.toml. Exit code 1 with one line per broken limit.
"""

from __future__ import annotations

import ast
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "forkgym"
ROOMS = ("sandboxes", "tasks", "envs", "agents", "trainers")
ALLOWED_ON_IMPORT = (ast.Import, ast.ImportFrom, ast.Assign, ast.AnnAssign, ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass
class Source:
    """One parsed module and what the budget counts in it."""

    path: Path
    module: str
    lines: int
    tree: ast.Module
    imports: set[str] = field(default_factory=set[str])
    local_imports: int = 0


def sources() -> list[Source]:
    """Every module of the package, under the name it is imported by; the task library is data, not source."""
    found: list[Source] = []
    folders = [(PACKAGE, "forkgym"), *((ROOT / room, f"forkgym.{room}") for room in ROOMS)]
    for folder, name in folders:
        for path in sorted(folder.rglob("*.py")):
            parts = path.relative_to(folder).with_suffix("").parts
            # rglob of Python 3.13 and later follows links: the rooms are read from their real folders only.
            if "library" in parts or (folder == PACKAGE and parts[0] in ROOMS):
                continue
            text = path.read_text()
            module = ".".join((name, *parts)).removesuffix(".__init__")
            found.append(Source(path, module, text.count("\n"), ast.parse(text)))
    return found


def read_imports(source: Source, known: set[str]) -> None:
    """Fill in which of our modules this one imports when it runs (not for type checking alone)."""
    for node, local in walk_imports(source.tree):
        source.local_imports += local
        names = [alias.name for alias in node.names]
        if isinstance(node, ast.ImportFrom):
            names = [
                f"{node.module}.{name}" if f"{node.module}.{name}" in known else str(node.module) for name in names
            ]
        source.imports.update(name for name in names if name in known and name != source.module)


def walk_imports(node: ast.AST, local: bool = False) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool]]:
    """Each import below ``node`` and whether it stands inside a function; ``if TYPE_CHECKING`` is left out."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child, local
        elif isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        else:
            yield from walk_imports(child, local or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef))


def cycles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Import cycles: the strongly connected components of more than one module (Tarjan's algorithm)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for target in graph[name]:
            if target not in index:
                visit(target)
                low[name] = min(low[name], low[target])
            elif target in stack:
                low[name] = min(low[name], index[target])
        if low[name] == index[name]:
            component = stack[stack.index(name) :]
            del stack[stack.index(name) :]
            if len(component) > 1:
                found.append(sorted(component))

    for name in graph:
        if name not in index:
            visit(name)
    return found


def broken(budget: dict[str, int], project: dict[str, list[str]], modules: list[Source]) -> Iterator[str]:
    """One sentence for each limit that does not hold."""
    lengths = sorted(module.lines for module in modules)
    p95 = lengths[int(0.95 * (len(lengths) - 1))]
    if p95 > budget["file_p95"]:
        yield f"95 % of files must have at most {budget['file_p95']} lines; the 95th percentile is {p95}"
    for module in modules:
        where = module.path.relative_to(ROOT)
        if module.lines > budget["file_max"]:
            yield f"{where}: {module.lines} lines, at most {budget['file_max']}"
        for node in ast.walk(module.tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or node.lineno) - node.lineno + 1
                if length > budget["function_max"]:
                    yield f"{where}:{node.lineno}: {node.name} has {length} lines, at most {budget['function_max']}"
    for cycle in cycles({module.module: module.imports for module in modules}):
        yield f"import cycle, function-local imports counted: {' <-> '.join(cycle)}"
    local = sum(module.local_imports for module in modules)
    if local > budget["local_imports_max"]:
        yield f"{local} imports inside functions, at most {budget['local_imports_max']}"
    if len(project["dependencies"]) > budget["dependencies_max"]:
        yield f"{len(project['dependencies'])} mandatory dependencies, at most {budget['dependencies_max']}"
    yield from broken_root(budget, modules[0])


def broken_root(budget: dict[str, int], root: Source) -> Iterator[str]:
    """The root module names few things and does nothing on import but register ids."""
    for node in root.tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            names = ast.literal_eval(node.value)
            if len(names) > budget["root_api_max"]:
                yield f"forkgym names {len(names)} things, at most {budget['root_api_max']}"
        is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        is_register = isinstance(node, ast.Expr | ast.For) and "register(" in ast.unparse(node)
        if not (is_text or is_register or isinstance(node, (*ALLOWED_ON_IMPORT, ast.If))):
            yield f"src/forkgym/__init__.py:{node.lineno}: work on import"


def main() -> int:
    """Print what is broken, or one line of totals."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    modules = sources()
    known = {module.module for module in modules}
    for module in modules:
        read_imports(module, known)
    complaints = list(broken(settings["tool"]["forkgym"]["budget"], settings["project"], modules))
    for complaint in complaints:
        print(f"budget: {complaint}")
    if not complaints:
        lines = sum(module.lines for module in modules)
        local = sum(module.local_imports for module in modules)
        print(f"budget: {len(modules)} files, {lines} lines, {local} imports inside functions; within limits")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
