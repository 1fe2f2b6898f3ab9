"""The generator of `tidelog/blocking/calls`: `python -m tools.blocking_calls`.

It turns each public method of the asynchronous client into a blocking method with the same
signature and docstring. Methods that need more are excluded here and written by hand in
`tidelog/blocking`. A test fails while the files are stale.
"""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent
FOLDER: Final = ROOT / "tidelog/blocking/calls"
_FORWARDING: Final = "from tidelog.blocking.forwarding import Forwarding, in_turn"
_OWN: Final = {
    name: f"from tidelog.blocking.message import {name}"
    for name in ("Message", "Received", "unwrapped")
}
"""Imports of the names that the blocking client replaces."""

_Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Face:
    """A generated class, and the class whose calls it forwards."""

    file: str
    name: str
    module: str
    """The module of the forwarded class."""
    source: str
    """The name of the forwarded class."""
    left_out: frozenset[str] = frozenset()
    own: dict[str, str] = field(default_factory=dict[str, str])
    base: str = "Forwarding[{inner}]"
    caller: str = "self._thread.call"

    @property
    def inner(self) -> str:
        """The import alias of the forwarded class."""
        return f"Async{self.source}"


FACES: Final = (
    Face("admin", "Admin", "client.admin.admin", "Admin"),
    Face(
        "consumer",
        "ConsumerCalls",
        "client.consumer.consumer",
        "Consumer",
        frozenset({"records", "batches"}),
    ),
    Face(
        "message",
        "MessageCalls",
        "client.queue.receive.message",
        "Message",
        frozenset({"content", "lease", "place"}),
    ),
    Face(
        "queue",
        "QueueCalls",
        "client.queue.queue",
        "Queue",
        frozenset({"worker", "work", "subscribe"}),
        _OWN,
    ),
    Face(
        "producer",
        "ProducerCalls",
        "client.producer.producer",
        "Producer",
        frozenset(
            {
                "is_traced",
                "producer_id",
                "send_nowait",
                "send_records",
                "send_values",
                "take_failure",
                "wait_writable",
                "with_context",
            }
        ),
        {"HandedOver": "from tidelog.blocking.handover import HandedOver"},
        base="HandedOver",
        caller="self._handover.call",
    ),
    Face(
        "transaction",
        "TransactionCalls",
        "client.transactions.transaction",
        "Transaction",
        frozenset({"task", "renewed_after"}),
    ),
    Face(
        "transaction_task",
        "TransactionTaskCalls",
        "client.transactions.transaction",
        "TransactionTask",
    ),
)


def written(face: Face) -> str:
    """Return the formatted module of a face."""
    imports = {"from functools import partial", _FORWARDING, *face.own.values()}
    members: list[str] = []
    path = ROOT / "tidelog" / f"{face.module.replace('.', '/')}.py"
    tree = ast.parse(path.read_text("utf-8"))
    known = {**_imports_of(tree, f"tidelog.{face.module}"), **face.own}
    (found,) = (
        each for each in tree.body if isinstance(each, ast.ClassDef) and each.name == face.source
    )
    for member, used in _members(found, face):
        members.append(member)
        imports |= {known[each] for each in sorted(used) if each in known}
    imports.add(f"from tidelog.{face.module} import {face.source} as {face.inner}")
    name = f"tidelog.{face.source}"
    text = "\n".join(
        [
            f'"""The calls of `{name}`, which wait; written by `tools.blocking_calls`."""',
            *sorted(imports),
            f"class {face.name}({face.base.format(inner=face.inner)}):",
            f'    """See `{name}`."""',
            "    __slots__ = ()",
            *members,
        ]
    )
    return _formatted(text)


def _members(found: ast.ClassDef, face: Face) -> Iterator[tuple[str, set[str]]]:
    """Yield the text of each public member, and the names in its signature."""
    is_struct = any(ast.unparse(base).endswith("Struct") for base in found.bases)
    for place, node in enumerate(found.body):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                if not name.startswith("_") and name not in face.left_out:
                    yield _method(node, face.caller), _names(node.args, node.returns)
            case ast.AnnAssign(target=ast.Name(id=name)) if is_struct and name not in face.left_out:
                about = found.body[place + 1]
                assert isinstance(about, ast.Expr), f"{name} has no docstring"
                text = str(ast.literal_eval(about.value))
                yield _property(name, ast.unparse(node.annotation), text), _names(node.annotation)
            case _:
                pass


def _method(node: _Function, caller: str) -> str:
    about = ast.get_docstring(node) or ""
    returns = ast.unparse(node.returns) if node.returns is not None else "None"
    if any(isinstance(each, ast.Name) and each.id == "property" for each in node.decorator_list):
        return _property(node.name, returns, about)
    arguments = [_passed(each) for each in node.args.args[1:]]
    arguments += [f"{each.arg}={_passed(each)}" for each in node.args.kwonlyargs]
    arguments += [f"**{each.arg}" for each in (node.args.kwarg,) if each is not None]
    if returns.startswith("AsyncIterator["):
        call = f"in_turn(self._thread, self._inner.{node.name}({', '.join(arguments)}))"
        returns = returns.removeprefix("Async")
    else:
        work = f"self._inner.{node.name}"
        work = f"partial({', '.join([work, *arguments])})" if arguments else work
        is_async = isinstance(node, ast.AsyncFunctionDef)
        call = f"{caller if is_async else 'self._thread.call_sync'}({work})"
    if returns == "list[Message]":
        call = f"[Message(self._thread, each) for each in {call}]"
    given = "" if returns == "None" else "return "
    head = f"    def {node.name}({ast.unparse(node.args)}) -> {returns}:"
    return f"{head}\n{_docstring(about)}\n        {given}{call}\n"


def _property(name: str, kind: str, about: str) -> str:
    head = f"    @property\n    def {name}(self) -> {kind}:"
    return f"{head}\n{_docstring(about)}\n        return self._inner.{name}\n"


def _passed(argument: ast.arg) -> str:
    """Return the forwarded argument: iterators and messages belong to the caller's thread."""
    kind = "" if argument.annotation is None else ast.unparse(argument.annotation)
    if kind == "Received":
        return f"unwrapped({argument.arg})"
    if kind == "Iterable[Received]":
        return f"list(map(unwrapped, {argument.arg}))"
    is_iterator = kind.startswith("Iterable[") and not kind.endswith("None")
    return f"list({argument.arg})" if is_iterator else argument.arg


def _docstring(about: str) -> str:
    """Return a docstring for programs without `await`."""
    plain = re.sub(r"\b(await|async(?= (with|for)\b)) ", "", about)
    lines = f'"""{plain}"""' if "\n" not in plain else f'"""{plain}\n"""'
    return "\n".join(f"        {line}".rstrip() for line in lines.splitlines())


def _names(*nodes: ast.AST | None) -> set[str]:
    return {
        each.id
        for node in nodes
        if node is not None
        for each in ast.walk(node)
        if isinstance(each, ast.Name)
    } | (
        {"Iterator"}
        if any(node and "AsyncIterator" in ast.unparse(node) for node in nodes)
        else set()
    )


def _imports_of(tree: ast.Module, module: str) -> dict[str, str]:
    """Return the import statement for each top-level name of a module."""
    found: dict[str, str] = {"Iterator": "from collections.abc import Iterator"}
    for node in tree.body:
        match node:
            case ast.ImportFrom(module=source, names=names):
                for each in names:
                    name = each.asname or each.name
                    found[name] = f"from {source} import {each.name}" + (
                        f" as {each.asname}" if each.asname else ""
                    )
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                found[name] = f"from {module} import {name}"
            case ast.ClassDef(name=name):
                found[name] = f"from {module} import {name}"
            case _:
                pass
    return found


def _formatted(text: str) -> str:
    ruff = [str(Path(sys.executable).with_name("ruff")), "--quiet"]
    name = ["--stdin-filename", str(FOLDER / "calls.py"), "-"]
    for step in (["check", "--select", "F401,I", "--fix-only"], ["format"]):
        done = subprocess.run(
            [*ruff, *step, *name], input=text, capture_output=True, text=True, check=True, cwd=ROOT
        )
        text = done.stdout
    return text


if __name__ == "__main__":
    for _face in FACES:
        (FOLDER / f"{_face.file}.py").write_text(written(_face), encoding="utf-8")
