"""The base class of blocking objects, which forward calls to the client's thread.

`tools.face_calls` generates the subclasses in `calls`.
"""

from collections.abc import AsyncIterator, Iterator
from typing import Generic, TypeVar

from tidelog.blocking.thread import TrioThread
from tidelog.client.client import Client

ClientThread = TrioThread[Client]
Inner = TypeVar("Inner")
Item = TypeVar("Item")


class Forwarding(Generic[Inner]):
    """Forwards calls to an object of the client, and waits for their results."""

    __slots__ = ("_inner", "_thread")

    def __init__(self, thread: ClientThread, inner: Inner) -> None:
        """Forward to `inner`, which belongs to `thread`."""
        self._thread = thread
        self._inner = inner


def in_turn(thread: ClientThread, items: AsyncIterator[Item]) -> Iterator[Item]:
    """Yield the items of an iterator that runs in the client's thread, one per request."""

    async def following() -> Item | None:
        return await anext(items, None)

    while (item := thread.call(following)) is not None:
        yield item
