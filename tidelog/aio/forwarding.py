"""The base classes of the objects for asyncio, which forward calls to the client.

`tools.face_calls` generates the subclasses in `calls`.
"""

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Generator
from functools import partial
from types import TracebackType
from typing import Any, Generic, Self, TypeVar, cast

from tidelog.aio.guest import TrioGuest
from tidelog.client.client import Client

ClientGuest = TrioGuest[Client]
Inner = TypeVar("Inner")
Item = TypeVar("Item")


class Forwarding(Generic[Inner]):
    """Forwards calls to an object of the client, and awaits their results."""

    __slots__ = ("_guest", "_inner")

    def __init__(self, guest: ClientGuest, inner: Inner) -> None:
        """Forward to `inner`, which belongs to `guest`."""
        self._guest = guest
        self._inner = inner

    @property
    def _here(self) -> Inner:
        """The object, for a call that does not wait.

        Raises:
            RuntimeError: The caller is on another event loop.
            ClosedError: The client is closed.
        """
        self._guest.require_open()
        return self._inner


class Openable(ABC):
    """Object that is opened by `async with`, or by `await` and later closed by `close`."""

    __slots__ = ()

    @abstractmethod
    async def __aenter__(self) -> Self:
        """Open."""

    @abstractmethod
    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close."""

    def __await__(self) -> Generator[Any, None, Self]:
        """Open, as `async with` does, and return itself."""
        return self.__aenter__().__await__()

    async def close(self) -> None:
        """Close, as the end of `async with` does."""
        await self.__aexit__(None, None, None)


async def in_turn(guest: ClientGuest, items: AsyncIterator[Item]) -> AsyncIterator[Item]:
    """Yield the items of an iterator of trio, one for each call.

    Trio complains of asynchronous generators that are left early and not closed.
    """
    generator = cast("AsyncGenerator[Item, None]", items)
    guest.iterators.add(generator)
    try:
        while (item := await guest.call(partial(anext, generator, None))) is not None:
            yield item
    finally:
        if guest.is_open:  # Otherwise the guest closes it.
            await guest.call(generator.aclose)
            guest.iterators.discard(generator)
