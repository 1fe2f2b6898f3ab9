"""The generator of `tidelog/blocking/calls` and `tidelog/aio/calls`: `python -m tools.face_calls`.

It turns each public method of the client for trio into a method for threads, and into one for
asyncio, with the same signature and docstring. Methods that need more are excluded here and written
by hand in `tidelog/blocking` and `tidelog/aio`. A test fails while the files are stale.
"""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent
_OWN: Final = ("Message", "Received", "unwrapped")
"""Names in `message` of a face, which replace those of the client."""

_Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Face:
    """A kind of programs that the client is offered to."""

    package: str
    host: str
    """The attribute with the host of the client."""
    call: str
    """How a method that waits calls the host."""
    call_producer: str
    """The same for producers."""
    producer_base: str
    about: str
    is_async: bool = False

    @property
    def folder(self) -> Path:
        """The folder of the generated modules."""
        return ROOT / "tidelog" / self.package / "calls"

    @property
    def inner(self) -> str:
        """The forwarded object, for a method that does not wait."""
        return "self._here" if self.is_async else "self._inner"

    def call_of(self, source: str) -> str:
        """Return how a method of this class that waits calls the host."""
        return self.call_producer if source == "Producer" else self.call

    def about_of(self, about: str) -> str:
        """Return a docstring: without `await` for programs that have none."""
        if self.is_async:
            return about
        return re.sub(r"\b(await|async(?= (with|for)\b)) ", "", about)

    def given(self, call: str) -> str:
        """Return the expression of a result that the caller waits for."""
        return f"await {call}" if self.is_async else call


BLOCKING: Final = Face(
    "blocking",
    "self._thread",
    "self._thread.call",
    "self._handover.call",
    "HandedOver",
    "which wait",
)
AIO: Final = Face(
    "aio",
    "self._guest",
    "self._guest.call",
    "self._guest.call",
    "Forwarding[{inner}]",
    "for asyncio",
    is_async=True,
)
FACES: Final = (BLOCKING, AIO)


@dataclass(frozen=True)
class Calls:
    """A generated class, and the class whose calls it forwards."""

    file: str
    name: str
    module: str
    """The module of the forwarded class."""
    source: str
    """The name of the forwarded class."""
    left_out: frozenset[str] = frozenset()
    aio_left_out: frozenset[str] = frozenset()
    """Also left out for asyncio."""
    blocking_left_out: frozenset[str] = frozenset()
    """Also left out for threads."""
    undo: dict[str, str] = field(default_factory=dict[str, str])
    """For methods of the face for asyncio: what to do with a result that arrives too late."""

    @property
    def inner(self) -> str:
        """The import alias of the forwarded class."""
        return f"Inner{self.source}"


CALLS: Final = (
    Calls("admin", "Admin", "client.admin.admin", "Admin"),
    Calls("access", "AccessAdmin", "client.admin.access", "AccessAdmin"),
    Calls("security_admin", "SecurityAdmin", "client.admin.security_admin", "SecurityAdmin"),
    Calls(
        "consumer",
        "ConsumerCalls",
        "client.consumer.consumer",
        "Consumer",
        frozenset({"records", "batches"}),
    ),
    Calls(
        "message",
        "MessageCalls",
        "client.queue.receive.message",
        "Message",
        frozenset({"content", "lease", "place"}),
    ),
    Calls(
        "queue",
        "QueueCalls",
        "client.queue.queue",
        "Queue",
        frozenset({"give_back", "worker", "work", "subscribe"}),
        frozenset({"send", "send_batch"}),
        undo={"receive": "None if attempt_id else self._inner.give_back"},
    ),
    Calls(
        "producer",
        "ProducerCalls",
        "client.producer.producer",
        "Producer",
        frozenset(
            {
                "begin_send",
                "is_traced",
                "producer_id",
                "send_nowait",
                "send_open",
                "send_records",
                "send_values",
                "stage_for",
                "take_failure",
                "with_context",
            }
        ),
        frozenset({"send"}),
        frozenset({"wait_writable"}),
    ),
    Calls(
        "transaction",
        "TransactionCalls",
        "client.transactions.transaction",
        "Transaction",
        frozenset({"task", "open", "renew", "renewed_after"}),
    ),
    Calls(
        "transaction_task",
        "TransactionTaskCalls",
        "client.transactions.transaction",
        "TransactionTask",
        frozenset({"previous_id"}),
    ),
)


def written(face: Face, calls: Calls) -> str:
    """Return the formatted module of a class of a face."""
    package = f"tidelog.{face.package}"
    own = {name: f"from {package}.message import {name}" for name in _OWN}
    own["HandedOver"] = f"from {package}.handover import HandedOver"
    base = face.producer_base if calls.source == "Producer" else "Forwarding[{inner}]"
    members: list[str] = []
    path = ROOT / "tidelog" / f"{calls.module.replace('.', '/')}.py"
    tree = _Unquoted().visit(ast.parse(path.read_text("utf-8")))
    known = _imports_of(tree, f"tidelog.{calls.module}")
    if calls.source != "Message":
        known |= own
    imports = {
        "from functools import partial",
        f"from {package}.forwarding import Forwarding, in_turn",
        f"from tidelog.{calls.module} import {calls.source} as {calls.inner}",
        *own.values(),
    }
    (found,) = (
        each for each in tree.body if isinstance(each, ast.ClassDef) and each.name == calls.source
    )
    for member, used in _members(found, face, calls):
        members.append(member)
        imports |= {known[each] for each in sorted(used) if each in known}
    name = f"tidelog.{calls.source}"
    text = "\n".join(
        [
            f'"""The calls of `{name}`, {face.about}; written by `tools.face_calls`."""',
            *sorted(imports),
            f"class {calls.name}({base.format(inner=calls.inner)}):",
            f'    """See `{name}`."""',
            "    __slots__ = ()",
            *members,
        ]
    )
    return _formatted(text, face.folder)


def _members(found: ast.ClassDef, face: Face, calls: Calls) -> Iterator[tuple[str, set[str]]]:
    """Yield the text of each public member, and the names in its signature."""
    is_struct = any(ast.unparse(base).endswith("Struct") for base in found.bases)
    of_face = calls.aio_left_out if face.is_async else calls.blocking_left_out
    left_out = calls.left_out | of_face
    for place, node in enumerate(found.body):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                if not name.startswith("_") and name not in left_out:
                    yield _method(node, face, calls), _names(node.args, node.returns)
            case ast.AnnAssign(target=ast.Name(id=name)) if is_struct and name not in left_out:
                about = found.body[place + 1]
                assert isinstance(about, ast.Expr), f"{name} has no docstring"
                text = str(ast.literal_eval(about.value))
                kind = ast.unparse(node.annotation)
                yield _property(name, kind, face.about_of(text)), _names(node.annotation)
            case _:
                pass


def _method(node: _Function, face: Face, calls: Calls) -> str:
    about = face.about_of(ast.get_docstring(node) or "")
    returns = ast.unparse(node.returns) if node.returns is not None else "None"
    if any(isinstance(each, ast.Name) and each.id == "property" for each in node.decorator_list):
        return _property(node.name, returns, about)
    arguments = [_passed(each) for each in node.args.args[1:]]
    arguments += [f"{each.arg}={_passed(each)}" for each in node.args.kwonlyargs]
    arguments += [f"**{each.arg}" for each in (node.args.kwarg,) if each is not None]
    waits = isinstance(node, ast.AsyncFunctionDef)
    if returns.startswith("AsyncIterator["):
        call = f"in_turn({face.host}, self._inner.{node.name}({', '.join(arguments)}))"
        returns = returns if face.is_async else returns.removeprefix("Async")
    elif waits or not face.is_async:
        work = f"self._inner.{node.name}"
        work = f"partial({', '.join([work, *arguments])})" if arguments else work
        undo = calls.undo.get(node.name) if face.is_async else None
        work = work if undo is None else f"{work}, undo={undo}"
        call = face.call_of(calls.source) if waits else f"{face.host}.call_sync"
        call = face.given(f"{call}({work})")
    else:
        call = f"self._here.{node.name}({', '.join(arguments)})"
    if returns == "list[Message]":
        call = f"[Message({face.host}, each) for each in {call}]"
    given = "" if returns == "None" else "return "
    prefix = "async def" if waits and face.is_async else "def"
    head = f"    {prefix} {node.name}({ast.unparse(node.args)}) -> {returns}:"
    return f"{head}\n{_docstring(about)}\n        {given}{call}\n"


def _property(name: str, kind: str, about: str) -> str:
    head = f"    @property\n    def {name}(self) -> {kind}:"
    return f"{head}\n{_docstring(about)}\n        return self._inner.{name}\n"


def _passed(argument: ast.arg) -> str:
    """Return the forwarded argument: iterators and messages belong to the caller."""
    kind = "" if argument.annotation is None else ast.unparse(argument.annotation)
    if kind == "Received":
        return f"unwrapped({argument.arg})"
    if kind == "Iterable[Received]":
        return f"list(map(unwrapped, {argument.arg}))"
    is_iterator = kind.startswith("Iterable[") and not kind.endswith("None")
    return f"list({argument.arg})" if is_iterator else argument.arg


def _docstring(about: str) -> str:
    lines = f'"""{about}"""' if "\n" not in about else f'"""{about}\n"""'
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


class _Unquoted(ast.NodeTransformer):
    """Replaces annotations in quotes by their expressions."""

    def visit_arg(self, node: ast.arg) -> ast.arg:
        """Replace the annotation of an argument."""
        node.annotation = _unquoted(node.annotation)
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        """Replace the annotations of a function."""
        node.returns = _unquoted(node.returns)
        return self.generic_visit(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        """Replace the annotations of a function."""
        node.returns = _unquoted(node.returns)
        return self.generic_visit(node)


def _unquoted(annotation: ast.expr | None) -> ast.expr | None:
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        return ast.parse(annotation.value, mode="eval").body
    return annotation


def _imports_of(tree: ast.Module, module: str) -> dict[str, str]:
    """Return the import statement for each top-level name of a module."""
    found: dict[str, str] = {
        name: f"from collections.abc import {name}" for name in ("AsyncIterator", "Iterator")
    }
    type_checking = (
        each
        for node in tree.body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for each in node.body
    )
    for node in (*tree.body, *type_checking):
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


def _formatted(text: str, folder: Path) -> str:
    ruff = [str(Path(sys.executable).with_name("ruff")), "--quiet"]
    name = ["--stdin-filename", str(folder / "calls.py"), "-"]
    for step in (["check", "--select", "F401,I", "--fix-only"], ["format"]):
        done = subprocess.run(
            [*ruff, *step, *name], input=text, capture_output=True, text=True, check=True, cwd=ROOT
        )
        text = done.stdout
    return text


if __name__ == "__main__":
    for _face, _calls in product(FACES, CALLS):
        (_face.folder / f"{_calls.file}.py").write_text(written(_face, _calls), encoding="utf-8")
