"""Counts names and sentences that do not explain themselves, for the ceilings in tests/names.toml.

python tests/names.py                                 the counts beside their ceilings
python tests/names.py participles shared/boyd/store   every offender of a kind below a path
python tests/names.py --lower                         write lower counts into the table
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
TABLE = ROOT / "tests" / "names.toml"
#: The folders that a ceiling is for.
PLACES = {"sources": ("shared", "worker", "api"), "tests": ("tests",)}
EVERYWHERE = [ROOT / folder for folders in PLACES.values() for folder in folders]
#: A count this far below its ceiling has to become the ceiling.
SLACK = 0.05
#: So many offenders are listed when there are too many.
EXAMPLES = 40
MOST_PARAMETERS = 6
MOST_FIELDS = 15
MOST_COMPLEXITY = 12

#: What `now` may be annotated with, or be assigned from.
_TIMES = frozenset({"Any", "Callable", "Moment", "date", "datetime", "float", "int", "time"})
_TIME_WORDS = re.compile(r"now|time|clock|stamp|second|_ms\b|moment", re.IGNORECASE)
_RIDDLES = re.compile(
    r"\A(?:What|Who|Whom|Whose|How|Whether|Where|Why)\b|\bTell (?:whether|if)\b|\bThe reason why\b"
    r"|; None:|\bor not any more\b|\b[Ww]hoever\b|\b[Ww]hat\b[^.]*\bis for whom\b"
)
_TEST_RIDDLES = re.compile(
    r"test_(?:what|who|whom|whose|how|why|however|whether|whatever|whoever|whichever)_"
    r"|test_\w*_(?:told|said|anew|any_more|whoever)(?:_|\Z)"
)
_LUA_RIDDLES = re.compile(r"\b(?:whoever|anew|any more|taken for)\b", re.IGNORECASE)
_LUA_COMMENT = re.compile(r"""(?:[^"'-]|"[^"]*"|'[^']*'|-(?!-))*--(?P<text>.*)""")

_WORDS = {
    name: frozenset(words.split())
    for name, words in tomllib.loads(TABLE.read_text("utf-8"))["words"].items()
}
_PREFIXES = ("un", "re", "over", "mis")

_Function = ast.FunctionDef | ast.AsyncFunctionDef
_Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_SCOPES = (*_FUNCTIONS, ast.ClassDef)
_BLOCKS = (ast.stmt, ast.ExceptHandler, ast.match_case)
_COLLECTIONS = (ast.Dict, ast.DictComp, ast.JoinedStr, ast.List, ast.ListComp, ast.Set, ast.SetComp)


class Offender(NamedTuple):
    """A line that does not explain itself."""

    path: Path
    line: int
    text: str

    def __str__(self) -> str:
        path = self.path.relative_to(ROOT) if self.path.is_relative_to(ROOT) else self.path
        return f"{path}:{self.line}: {self.text}"


def is_participle(function: str) -> bool:
    """Judge a function by the first word of its name."""
    if function.endswith("__"):
        return False
    word = function.strip("_").lower().partition("_")[0]
    if word in _WORDS["no-participles"]:
        return False
    stems = [word, *(word.removeprefix(prefix) for prefix in _PREFIXES if word != prefix)]
    return word.endswith(("ed", "en")) or not _WORDS["participles"].isdisjoint(stems)


@dataclass(frozen=True)
class Module:
    """A parsed file."""

    functions: list[_Function]
    classes: list[ast.ClassDef]
    #: With the module itself.
    documented: list[_Documented]


def parse(text: str) -> Module:
    """Parse the text of a module."""
    tree = ast.parse(text)
    nodes = list(_below([tree]))
    functions = [node for node in nodes if isinstance(node, _FUNCTIONS)]
    classes = [node for node in nodes if isinstance(node, ast.ClassDef)]
    return Module(functions, classes, [tree, *functions, *classes])


def _below(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """The statements below some nodes: only they contain functions and classes."""
    for node in nodes:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, _BLOCKS):
                yield child
                yield from _below([child])


def participles(module: Module) -> Iterator[tuple[int, str]]:
    """Functions, methods and properties that are named by a participle."""
    for node in module.functions:
        if is_participle(node.name):
            yield node.lineno, f"def {node.name}"


def vague_locals(module: Module) -> Iterator[tuple[int, str]]:
    """Locals and parameters that do not say what they hold, each once for a function."""
    for function in module.functions:
        names: dict[str, int] = {}
        for node in _own_nodes(function):
            for name, line in _vague_names(node):
                names[name] = min(line, names.get(name, line))
        for name, line in names.items():
            yield line, f"{name} in {function.name}"


def _own_nodes(function: _Function) -> Iterator[ast.AST]:
    """The nodes of a function without those of the functions and classes in it."""
    waiting: list[ast.AST] = [function.args, *function.body]
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, _SCOPES):
            waiting += ast.iter_child_nodes(node)


def _vague_names(node: ast.AST) -> Iterator[tuple[str, int]]:
    """The vague names that a node binds itself."""
    if isinstance(node, ast.Name):
        if node.id in _WORDS["vague"] and isinstance(node.ctx, ast.Store):
            yield node.id, node.lineno
    elif isinstance(node, ast.arg):
        if node.arg in _WORDS["vague"] or _is_misnamed_parameter(node):
            yield node.arg, node.lineno
    else:
        for target, value in _bindings(node):
            if isinstance(target, ast.Name) and target.id == "now" and not _may_be_time(value):
                yield target.id, target.lineno


def _is_misnamed_parameter(node: ast.arg) -> bool:
    return node.arg == "now" and node.annotation is not None and not _is_time(node.annotation)


def _bindings(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Pairs of target and value, as far as one can see."""
    if isinstance(node, ast.Assign):
        for target in node.targets:
            yield from _pairs(target, node.value)
    elif isinstance(node, ast.AnnAssign):
        if node.value and not _is_time(node.annotation):
            yield node.target, node.value
    elif isinstance(node, ast.NamedExpr):
        yield node.target, node.value


def _pairs(target: ast.expr, value: ast.expr) -> Iterator[tuple[ast.expr, ast.expr]]:
    if not isinstance(target, ast.Tuple):
        yield target, value
    elif isinstance(value, ast.Tuple) and len(value.elts) == len(target.elts):
        yield from zip(target.elts, value.elts, strict=True)


def _is_time(annotation: ast.expr) -> bool:
    """Match an annotation if one of its alternatives is a time or may be one."""
    if isinstance(annotation, ast.BinOp):
        return _is_time(annotation.left) or _is_time(annotation.right)
    outermost = ast.unparse(annotation).strip("\"'").partition("[")[0]
    return outermost.rpartition(".")[2] in _TIMES


def _may_be_time(value: ast.expr) -> bool:
    return not isinstance(value, _COLLECTIONS) and bool(_TIME_WORDS.search(ast.unparse(value)))


def docstrings(module: Module) -> Iterator[tuple[int, str]]:
    """Docstrings that pose riddles instead of saying what something does."""
    for node in module.documented:
        text = ast.get_docstring(node) or ""
        if riddle := _RIDDLES.search(text):
            number = text.count("\n", 0, riddle.start())
            yield node.body[0].lineno + number, text.splitlines()[number].strip()


def test_names(module: Module) -> Iterator[tuple[int, str]]:
    """Tests whose name is no statement."""
    for node in module.functions:
        if _TEST_RIDDLES.match(node.name):
            yield node.lineno, node.name


def parameters(module: Module) -> Iterator[tuple[int, str]]:
    """Functions with too many parameters."""
    for node in module.functions:
        names = [
            arg.arg for arg in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
        ]
        count = len([name for name in names if name not in {"self", "cls"}])
        if count > MOST_PARAMETERS:
            yield node.lineno, f"def {node.name}: {count} parameters"


def fields(module: Module) -> Iterator[tuple[int, str]]:
    """Classes that declare too many fields."""
    for node in module.classes:
        count = len([part for part in node.body if _is_field(part)])
        if count > MOST_FIELDS:
            yield node.lineno, f"class {node.name}: {count} fields"


def _is_field(node: ast.stmt) -> bool:
    return isinstance(node, ast.AnnAssign) and "ClassVar" not in ast.unparse(node.annotation)


def lua_headers(text: str) -> Iterator[tuple[int, str]]:
    """The header of a script or a library, unless it begins with a verb."""
    for number, line in enumerate(text.splitlines(), 1):
        header = line.removeprefix("--").strip()
        if line.startswith("--") and not re.match(r"@include|Uses ", header):
            sentence = re.sub(r"\A\w+\([^)]*\): ", "", header)
            word = re.match(r"[A-Za-z]*", sentence)
            if not word or word[0].lower() not in _WORDS["lua-verbs"]:
                yield number, line
            return


def lua_comments(text: str) -> Iterator[tuple[int, str]]:
    """Comments of Lua with a word of the old dialect."""
    for number, line in enumerate(text.splitlines(), 1):
        comment = _LUA_COMMENT.match(line)
        if comment and _LUA_RIDDLES.search(comment["text"]):
            yield number, line.strip()


def complexity(paths: Sequence[Path]) -> list[Offender]:
    """Functions that ruff finds too complex, also those with a noqa comment."""
    command = [sys.executable, "-m", "ruff", "check", "--isolated", "--no-cache", "--exit-zero"]
    command += ["--select", "C901", "--ignore-noqa", "--output-format", "json"]
    command += ["--config", f"lint.mccabe.max-complexity={MOST_COMPLEXITY}", *map(str, paths)]
    report = subprocess.run(command, capture_output=True, text=True, check=True)
    return [
        Offender(Path(row["filename"]), row["location"]["row"], row["message"])
        for row in json.loads(report.stdout)
    ]


_Lines = list[tuple[int, str]]
_PYTHON: dict[str, Callable[[Module], Iterator[tuple[int, str]]]] = {
    "participles": participles,
    "locals": vague_locals,
    "docstrings": docstrings,
    "tests": test_names,
    "parameters": parameters,
    "fields": fields,
}
_LUA: dict[str, Callable[[str], Iterator[tuple[int, str]]]] = {
    "lua-headers": lua_headers,
    "lua-comments": lua_comments,
}
KINDS = (*_PYTHON, *_LUA, "complexity")


def offenders(kind: str, paths: Iterable[Path]) -> list[Offender]:
    """Offenders of a kind below some paths, those in the latest changed files first."""
    paths = list(paths)
    if kind == "complexity":
        return complexity(paths)
    suffix = ".py" if kind in _PYTHON else ".lua"
    files = [file for path in paths for file in _files(path, suffix)]
    files.sort(key=lambda file: file.stat().st_mtime, reverse=True)
    return [Offender(file, *line) for file in files for line in _lines(file)[kind]]


def _files(path: Path, suffix: str) -> list[Path]:
    return [path] if path.suffix == suffix else sorted(path.rglob(f"*{suffix}"))


@cache
def _lines(file: Path) -> dict[str, _Lines]:
    """The offenders of every kind in a file, which is parsed once."""
    text = file.read_text("utf-8")
    if file.suffix == ".lua":
        return {kind: list(find(text)) for kind, find in _LUA.items()}
    module = parse(text)
    return {kind: sorted(find(module)) for kind, find in _PYTHON.items()}


@dataclass(frozen=True)
class Ceiling:
    """The number of offenders of a kind that are allowed in the sources or in the tests."""

    kind: str
    place: str
    most: int
    target: int

    @property
    def offenders(self) -> list[Offender]:
        """The present offenders."""
        return offenders(self.kind, (ROOT / folder for folder in PLACES[self.place]))

    def problem(self, lines: Sequence[Offender]) -> str:
        """Compare the offenders with the ceiling; return a message, empty if all is well."""
        count = len(lines)
        if count > self.most:
            examples = "\n".join(map(str, lines[:EXAMPLES]))
            return (
                f"{count} {self.kind} in the {self.place}, {self.most} are allowed (in the end "
                f"{self.target}); all: python tests/names.py {self.kind} "
                f"{' '.join(PLACES[self.place])}\nThe files that changed last:\n{examples}"
            )
        if count < self.most * (1 - SLACK):
            return (
                f"lower the ceiling to {count}: {self.kind}.{self.place} in tests/names.toml is "
                f"{self.most}; `python tests/names.py --lower` does it"
            )
        return ""


def ceilings() -> list[Ceiling]:
    """The ceilings of the table."""
    table = tomllib.loads(TABLE.read_text("utf-8"))["ceilings"]
    return [
        Ceiling(kind, place, row[place], row["target"])
        for kind, row in table.items()
        for place in PLACES
        if place in row
    ]


def with_ceiling(table: str, ceiling: Ceiling, count: int) -> str:
    """The text of the table with that ceiling at *count*."""
    row = re.compile(rf"^({ceiling.kind} = .*\b{ceiling.place} = )\d+", re.MULTILINE)
    return row.sub(rf"\g<1>{count}", table)


def lower() -> None:
    """Lower every ceiling to the present count; none is raised."""
    text = TABLE.read_text("utf-8")
    for ceiling in ceilings():
        text = with_ceiling(text, ceiling, min(ceiling.most, len(ceiling.offenders)))
    TABLE.write_text(text, "utf-8")


def main() -> None:
    """Print offenders, or the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("kind", nargs="?", choices=KINDS)
    parser.add_argument("path", nargs="*", type=Path)
    parser.add_argument("--lower", action="store_true", help="lower the ceilings to the counts")
    arguments = parser.parse_args()
    if absent := [path for path in arguments.path if not path.exists()]:
        parser.error(f"there is no {absent[0]}")
    if arguments.kind:
        for offender in offenders(arguments.kind, map(Path.resolve, arguments.path or EVERYWHERE)):
            print(offender)
        return
    if arguments.lower:
        lower()
    for ceiling in ceilings():
        count, most, target = len(ceiling.offenders), ceiling.most, ceiling.target
        print(f"{ceiling.kind:13}{ceiling.place:8}{count:5} of {most}, in the end {target}")


if __name__ == "__main__":
    main()
