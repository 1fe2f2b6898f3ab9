"""The faces of the client: each runs the same scenarios, written for trio.

A scenario awaits nothing but the client. So asyncio runs it as it is, and without its `async` and
`await` it is a scenario for threads.
"""

import ast
import asyncio
import inspect
import textwrap
from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol, Unpack, cast

import trio
import uvloop

import tidelog
from tidelog import aio, blocking
from tidelog.client.config import ClientSettings

Scenario = Callable[[tidelog.Client, str], Awaitable[None]]
"""Takes an open client, and a name for its topics and queues."""


class Run(Protocol):
    """Connects a client of a face, and runs a scenario over it."""

    def __call__(
        self, scenario: Scenario, address: str, name: str, **settings: Unpack[ClientSettings]
    ) -> None:
        """Run a scenario."""
        ...


def _on_trio(
    scenario: Scenario, address: str, name: str, **settings: Unpack[ClientSettings]
) -> None:
    async def main() -> None:
        async with tidelog.connect(address, **settings) as client:
            await scenario(client, name)

    trio.run(main)


async def _on_a_loop(
    scenario: Scenario, address: str, name: str, **settings: Unpack[ClientSettings]
) -> None:
    async with aio.connect(address, **settings) as client:
        await scenario(cast("tidelog.Client", client), name)


def _on_asyncio(
    scenario: Scenario, address: str, name: str, **settings: Unpack[ClientSettings]
) -> None:
    asyncio.run(_on_a_loop(scenario, address, name, **settings), debug=True)


def _on_uvloop(
    scenario: Scenario, address: str, name: str, **settings: Unpack[ClientSettings]
) -> None:
    uvloop.run(_on_a_loop(scenario, address, name, **settings))


def _in_a_thread(
    scenario: Scenario, address: str, name: str, **settings: Unpack[ClientSettings]
) -> None:
    with blocking.connect(address, **settings) as client:
        _without_await(scenario)(client, name)


FACES: Final[dict[str, Run]] = {
    "trio": _on_trio,
    "asyncio": _on_asyncio,
    "uvloop": _on_uvloop,
    "blocking": _in_a_thread,
}


def _without_await(scenario: Scenario) -> Callable[[object, str], None]:
    """Return a scenario as a plain function."""
    lines, first = inspect.getsourcelines(scenario)
    tree = ast.parse(textwrap.dedent("".join(lines)))
    function = tree.body[0]
    assert isinstance(function, ast.AsyncFunctionDef)
    function.decorator_list = []
    plain = ast.fix_missing_locations(_Plain().visit(tree))
    ast.increment_lineno(plain, first - 1)
    code = compile(plain, inspect.getfile(scenario), "exec")
    names = {**cast("Any", scenario).__globals__}
    exec(code, names)
    return cast("Callable[[object, str], None]", names[scenario.__name__])


class _Plain(ast.NodeTransformer):
    """Removes `async` and `await`."""

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        return self._as(ast.FunctionDef, node)

    def visit_AsyncWith(self, node: ast.AsyncWith) -> ast.AST:
        return self._as(ast.With, node)

    def visit_AsyncFor(self, node: ast.AsyncFor) -> ast.AST:
        return self._as(ast.For, node)

    def visit_Await(self, node: ast.Await) -> ast.AST:
        return cast("ast.AST", self.visit(node.value))

    def visit_comprehension(self, node: ast.comprehension) -> ast.AST:
        node.is_async = 0
        return self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        node.id = {"anext": "next", "aiter": "iter"}.get(node.id, node.id)
        return node

    def _as(self, kind: type[ast.AST], node: ast.AST) -> ast.AST:
        self.generic_visit(node)
        return kind(**{name: getattr(node, name, None) for name in kind._fields})
