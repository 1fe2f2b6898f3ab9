"""Objects whose calls run in the thread of the client.

The classes in `calls` are written by `tools.blocking_calls`; this is what they have in common.
"""

from collections.abc import AsyncIterator, Iterator
from typing import Generic, TypeVar

from tidelog.blocking.thread import TrioThread
from tidelog.client.client import Client

ClientThread = TrioThread[Client]
Inner = TypeVar("Inner")
Item = TypeVar("Item")


class Forwarding(Generic[Inner]):
    """Forwards calls to an object of the client, and waits for what they return."""

    __slots__ = ("_inner", "_thread")

    def __init__(self, thread: ClientThread, inner: Inner) -> None:
        """Forward to `inner`, which belongs to `thread`."""
        self._thread = thread
        self._inner = inner


def in_turn(thread: ClientThread, items: AsyncIterator[Item]) -> Iterator[Item]:
    """Yield the items of an iterator in another thread, each when it is asked for."""

    async def following() -> Item | None:
        return await anext(items, None)

    while (item := thread.call(following)) is not None:
        yield item
