"""Limits on the shape of the code, as a ratchet without exemptions.

A limit that hurts is a reason to split the code, or to change the limit here for all code.
Ruff checks lines; what is here needs the whole file or its place in the tree.
"""

import ast
import gc
import io
import re
import tokenize
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.paths import ROOT

FILE_LINES_MAX = 800
FUNCTION_LINES_MAX = 60
PARAMETERS_MAX = 8
POSITIONAL_MAX = 3
SHORTEST_LIMIT_S = 1
CLEANUP_LIMIT_S = 250
SIMULATORS = ("tests.simulation.", "tests.broker.replication.three_brokers")
"""A module that imports one of these runs on its clock."""

ROOMS = frozenset(
    {
        "broker",
        "client",
        "coordinator",
        "gateway",
        "isr",
        "logstore",
        "queue_layer",
        "spark_connector",
        "wire",
    }
)
"""Folders at the top that are imported as parts of `tidelog`."""

PRODUCT = ROOMS | {"tidelog"}
"""Folders with the code that is installed."""

PLACES_THAT_PRINT = ("tidelog/cli/", "bench/", "examples/")
NAMES_THAT_SAY_NOTHING = {"common", "misc", "util", "utils"}

_TODO = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Source:
    """One file of Python, read and parsed."""

    path: str
    """Relative to the root of the repository, with `/` between names."""
    text: str
    nodes: list[ast.AST]
    """Of its syntax tree: all of them, from the outer to the inner ones."""

    @classmethod
    def parse(cls, path: str, text: str) -> "Source":
        return cls(path, text, list(ast.walk(ast.parse(text, path))))


Rule = Callable[[Source], Iterator[str]]


def keep_files_short(source: Source) -> Iterator[str]:
    line_count = len(source.text.splitlines())
    if line_count > FILE_LINES_MAX:
        yield (
            f"{source.path}: {line_count} lines, the limit is {FILE_LINES_MAX};"
            " move one of its ideas into a file of its own"
        )


def keep_functions_short(source: Source) -> Iterator[str]:
    for function in _functions(source.nodes):
        body = _body_without_docstring(function)
        line_count = (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0
        if line_count > FUNCTION_LINES_MAX:
            yield (
                f"{source.path}:{function.lineno}: the body of {function.name} has {line_count}"
                f" lines, the limit is {FUNCTION_LINES_MAX}; give its steps names of their own"
            )


def keep_parameters_few(source: Source) -> Iterator[str]:
    for function in _functions(source.nodes):
        count = len(_positional(function)) + len(function.args.kwonlyargs)
        if count > PARAMETERS_MAX:
            yield (
                f"{source.path}:{function.lineno}: {function.name} has {count} parameters, the"
                f" limit is {PARAMETERS_MAX}; pass one frozen object that holds what belongs"
                " together"
            )


def name_arguments_after_the_third(source: Source) -> Iterator[str]:
    for function in _functions(source.nodes):
        if function.args.posonlyargs or function.name.startswith("test_"):
            continue  # Its callers are of others and give positions, as Hypothesis does.
        positional = _positional(function)
        if len(positional) > POSITIONAL_MAX:
            yield (
                f"{source.path}:{function.lineno}: {function.name} takes {len(positional)}"
                f" arguments by their position, the limit is {POSITIONAL_MAX}; put a * before"
                f" {positional[POSITIONAL_MAX]}"
            )


def import_rooms_through_the_package(source: Source) -> Iterator[str]:
    for node in source.nodes:
        match node:
            case ast.Import():
                modules = [alias.name for alias in node.names]
            case ast.ImportFrom(module=str(module), level=0):
                modules = [module]
            case _:
                continue
        for module in modules:
            if module.partition(".")[0] in ROOMS:
                yield (
                    f"{source.path}:{node.lineno}: a class must have one import path; import"
                    f" tidelog.{module}"
                )


def print_only_to_people(source: Source) -> Iterator[str]:
    if source.path.startswith(PLACES_THAT_PRINT):
        return
    for node in source.nodes:
        match node:
            case ast.Call(func=ast.Name(id="print")):
                yield (
                    f"{source.path}:{node.lineno}: print belongs to the command line; return a"
                    " value, or log in a shell"
                )
            case _:
                pass


def give_every_todo_an_issue(source: Source) -> Iterator[str]:
    if not _TODO.search(source.text):
        return
    for token in tokenize.generate_tokens(io.StringIO(source.text).readline):
        if token.type != tokenize.COMMENT:
            continue
        without_issue = re.sub(r"\bTODO\(#\d+\): \S", "", token.string)
        found = _TODO.search(without_issue)
        if found:
            yield (
                f"{source.path}:{token.start[0]}: {found[0]} without an issue; do it now, or"
                " open an issue and write TODO(#12): what and why"
            )


def name_files_after_what_they_hold(source: Source) -> Iterator[str]:
    stem = Path(source.path).stem
    if stem.removeprefix("test_") in NAMES_THAT_SAY_NOTHING:
        yield f"{source.path}: {stem} says nothing; name the file after the idea it holds"


def leave_the_time_of_a_test_to_the_global_limit(source: Source) -> Iterator[str]:
    for node in source.nodes:
        match node:
            case ast.Attribute(value=ast.Attribute(attr="mark"), attr="timeout"):
                yield (
                    f"{source.path}:{node.lineno}: a busy machine breaks a limit of one test;"
                    " pyproject.toml has the limit of all tests"
                )
            case _:
                pass


def wait_without_a_limit_on_a_real_clock(source: Source) -> Iterator[str]:
    """Refuse limits that a busy machine reaches.

    A wait of at most a second is one that must not end. From `CLEANUP_LIMIT_S` on, a limit kills
    child processes before the global limit ends the test.
    """
    if not source.path.startswith("tests/") or any(each in source.text for each in SIMULATORS):
        return
    simulated = set(_nodes_with_simulated_clock(source.nodes))
    constants = dict(_number_constants(source.nodes))
    for node in source.nodes:
        if not isinstance(node, ast.Call) or node in simulated:
            continue
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        limits = [keyword.value for keyword in node.keywords if keyword.arg == "timeout"]
        if name in {"fail_after", "move_on_after", "settimeout"}:
            limits += node.args[:1]
        for limit in limits:
            seconds = _number(limit, constants)
            if seconds is not None and SHORTEST_LIMIT_S < seconds < CLEANUP_LIMIT_S:
                yield (
                    f"{source.path}:{node.lineno}: a busy machine breaks a limit of {seconds:g} s;"
                    " wait without one, pyproject.toml has the limit of all tests"
                )


def _nodes_with_simulated_clock(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Return all nodes of functions that take a simulated clock, or a fixture that takes one."""
    clocks = {"autojump_clock", "mock_clock"}
    functions = list(_functions(nodes))
    taken_count = 0
    while taken_count < len(clocks):
        taken_count = len(clocks)
        clocks |= {each.name for each in functions if clocks & set(_parameters(each))}
    for function in functions:
        if function.name in clocks:
            yield from ast.walk(function)


def _parameters(function: Function) -> list[str]:
    return [each.arg for each in function.args.args + function.args.kwonlyargs]


def _number_constants(nodes: Iterable[ast.AST]) -> Iterator[tuple[str, float]]:
    for node in nodes:
        match node:
            case ast.Assign(
                targets=[ast.Name(name)], value=ast.Constant(int() | float() as number)
            ) | ast.AnnAssign(ast.Name(name), value=ast.Constant(int() | float() as number)):
                yield name, number
            case _:
                pass


def _number(node: ast.expr, constants: dict[str, float]) -> float | None:
    match node:
        case ast.Constant(value=int() | float() as number):
            return number
        case ast.Name(id=name):
            return constants.get(name)
        case _:
            return None


def give_every_package_its_tests(source: Source) -> Iterator[str]:
    expected = expected_tests(source)
    if expected is not None and not any((ROOT / expected).rglob("test_*.py")):
        yield (
            f"{source.path}: its package has no tests; write {expected}/test_*.py"
            " (a module that only declares needs none)"
        )


def expected_tests(source: Source) -> str | None:
    """Return the folder that holds the tests of a module's package, `None` if there need be none.

    A module that only declares (constants, fields, stubs of protocols) is exempt by what it is,
    not by a list.
    """
    path = Path(source.path)
    if path.parts[0] in {"tests", "bench", "examples"}:
        return None
    if not any(_does_something(function) for function in _functions(source.nodes)):
        return None
    return str(Path("tests", *path.parent.parts))


RULES: list[Rule] = [
    keep_files_short,
    keep_functions_short,
    keep_parameters_few,
    name_arguments_after_the_third,
    import_rooms_through_the_package,
    print_only_to_people,
    give_every_todo_an_issue,
    name_files_after_what_they_hold,
    leave_the_time_of_a_test_to_the_global_limit,
    wait_without_a_limit_on_a_real_clock,
    give_every_package_its_tests,
]


def duplicate_classes(sources: Iterable[Source]) -> list[str]:
    """Return public classes of the product that have one name; faces have the same names."""
    places: dict[str, list[str]] = {}
    for source in sources:
        if source.path.split("/")[0] not in PRODUCT or source.path.startswith(
            ("tidelog/aio/", "tidelog/blocking/")
        ):
            continue
        module: ast.AST = source.nodes[0]
        assert isinstance(module, ast.Module)
        for node in module.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(f"{source.path}:{node.lineno}")
    return [
        f"{' and '.join(found)}: {name} stands twice; give one of them a more exact name"
        for name, found in places.items()
        if len(found) > 1
    ]


def _positional(function: Function) -> list[str]:
    """Return the parameters that may be given by position, `self` left out."""
    arguments = function.args
    names = [argument.arg for argument in arguments.posonlyargs + arguments.args]
    return names[1:] if names and names[0] in {"self", "cls"} else names


def _functions(nodes: Iterable[ast.AST]) -> Iterator[Function]:
    return (node for node in nodes if isinstance(node, Function))


def _body_without_docstring(function: Function) -> list[ast.stmt]:
    match function.body:
        case [ast.Expr(value=ast.Constant(value=str())), *rest]:
            return rest
        case body:
            return body


def _does_something(function: Function) -> bool:
    match _body_without_docstring(function):
        case [] | [ast.Pass()]:
            return False
        case [ast.Expr(value=ast.Constant(value=value))]:
            return value is not ...
        case _:
            return True


@pytest.fixture(scope="module")
def our_sources() -> list[Source]:
    folders = [
        path
        for path in ROOT.iterdir()
        if path.is_dir() and not path.name.startswith(".") and path.name not in {"build", "dist"}
    ]
    paths = sorted(path for folder in folders for path in folder.rglob("*.py"))
    assert paths, "nothing to check was found"
    gc.disable()  # A million nodes and no garbage: looking for it takes most of the time.
    try:
        sources = [
            Source.parse(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8"))
            for path in paths
        ]
    finally:
        gc.freeze()
        gc.enable()
    return sources


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_code_keeps_the_rule(rule: Rule, our_sources: list[Source]) -> None:
    findings = [finding for source in our_sources for finding in rule(source)]

    assert not findings, "\n" + "\n".join(findings)


def test_a_public_class_name_is_unique_in_the_product(our_sources: list[Source]) -> None:
    findings = duplicate_classes(our_sources)

    assert not findings, "\n" + "\n".join(findings)


@pytest.mark.parametrize(
    ("path", "text", "count"),
    [
        ("broker/b.py", "class Queue: ...", 1),
        ("broker/b.py", "class _Queue: ...", 0),
        ("broker/b.py", "def f():\n    class Queue: ...", 0),
        ("tidelog/blocking/queue.py", "class Queue: ...", 0),
        ("tests/client/queue.py", "class Queue: ...", 0),
    ],
)
def test_a_duplicate_public_class_name_is_found(path: str, text: str, count: int) -> None:
    sources = [Source.parse("client/queue.py", "class Queue: ..."), Source.parse(path, text)]

    assert len(duplicate_classes(sources)) == count


LONG_BODY = '    """Say what it does."""\n' + "    x = 1\n" * FUNCTION_LINES_MAX
EIGHT = "a, b, c, *, d, e, f, g, h"


@pytest.mark.parametrize(
    ("rule", "path", "kept", "broken"),
    [
        (keep_files_short, "wire/a.py", "x = 1\n" * FILE_LINES_MAX, "x = 1\n" * 801),
        (
            keep_functions_short,
            "wire/a.py",
            f"def f():\n{LONG_BODY}",
            f"async def f():\n{LONG_BODY}    x = 1",
        ),
        (
            keep_parameters_few,
            "wire/a.py",
            f"class A:\n    def f(self, {EIGHT}): ...",
            f"class A:\n    def f(self, {EIGHT}, i): ...",
        ),
        (
            name_arguments_after_the_third,
            "wire/a.py",
            "class A:\n    def f(self, a, b, c, *, d): ...",
            "def f(a, b, c, d): ...",
        ),
        (
            import_rooms_through_the_package,
            "bench/a.py",
            "from tidelog.wire import errors\nimport tidelog.wire\nfrom . import wire",
            "import os, client.config",
        ),
        (
            import_rooms_through_the_package,
            "tidelog/cli/a.py",
            "import wired",
            "from wire.errors import TidelogError",
        ),
        (print_only_to_people, "wire/a.py", "console.print(1)", "print(1)"),
        (give_every_todo_an_issue, "wire/a.py", "x = 1  # TODO(#12): sort", "x = 1  # TODO: sort"),
        (
            leave_the_time_of_a_test_to_the_global_limit,
            "tests/test_a.py",
            "@pytest.mark.skip\ndef test(): ...",
            "pytestmark = pytest.mark.timeout(30)",
        ),
        (
            wait_without_a_limit_on_a_real_clock,
            "tests/test_a.py",
            "def test(autojump_clock):\n    with trio.fail_after(30): ...",
            "def test():\n    with trio.fail_after(30): ...",
        ),
        (
            wait_without_a_limit_on_a_real_clock,
            "tests/test_a.py",
            "@fixture\ndef a(mock_clock): ...\ndef test(a):\n    with trio.move_on_after(5): ...",
            "_LIMIT_S = 5.0\ndef test():\n    with trio.move_on_after(_LIMIT_S): ...",
        ),
        (
            wait_without_a_limit_on_a_real_clock,
            "tests/test_a.py",
            "import tests.simulation.machine\nsocket.settimeout(10)",
            "socket.settimeout(10)",
        ),
        (
            wait_without_a_limit_on_a_real_clock,
            "tests/test_a.py",
            "run(command, timeout=280)\nwith trio.move_on_after(0.01): ...",
            "thread.join(timeout=30)",
        ),
        (give_every_package_its_tests, "attic/a.py", "def f(): ...", "def f(): return 1"),
        (give_every_package_its_tests, "attic/a.py", "class A:\n    x = 1", "def f():\n    g()"),
    ],
)
def test_a_rule_finds_what_breaks_it_and_nothing_else(
    rule: Rule, path: str, kept: str, *, broken: str
) -> None:
    assert list(rule(Source.parse(path, kept))) == []
    assert len(list(rule(Source.parse(path, broken)))) == 1


def test_the_command_line_may_print() -> None:
    source = Source.parse("tidelog/cli/topic/topic.py", "print(1)")

    assert list(print_only_to_people(source)) == []


def test_a_vague_file_name_is_found() -> None:
    source = Source.parse("broker/utils.py", "")

    assert len(list(name_files_after_what_they_hold(source))) == 1


def test_the_tests_of_a_package_mirror_its_place_in_the_tree() -> None:
    source = Source.parse("tidelog/cli/__init__.py", "def f(): return 1")

    assert expected_tests(source) == "tests/tidelog/cli"
