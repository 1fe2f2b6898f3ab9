"""A broker inside this process, for programs of asyncio."""

import os
from types import TracebackType
from typing import Self, final

from tidelog import surface
from tidelog.aio.forwarding import Openable
from tidelog.aio.guest import TrioGuest


def open_broker(
    data_dir: str | os.PathLike[str], *, listen: str = "127.0.0.1:0", **settings: object
) -> "RunningBroker":
    """Run a broker inside this program: `async with tidelog.aio.open_broker("data") as broker`.

    Like a client, it is also opened by `await`, and then closed by `close`. For the arguments and
    errors see `tidelog.open_broker`.
    """
    return RunningBroker(TrioGuest(surface.open_broker(data_dir, listen=listen, **settings)))


@final
class RunningBroker(Openable):
    """A broker that runs on the event loop of the program."""

    def __init__(self, guest: TrioGuest[surface.RunningBroker]) -> None:
        """Use `open_broker`."""
        self._guest = guest

    async def __aenter__(self) -> Self:
        """Start the broker; see `open_broker`."""
        await self._guest.open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop the broker cleanly."""
        await self._guest.close()

    @property
    def address(self) -> str:
        """`host:port` that clients connect to."""
        return self._guest.resource.address

    @property
    def http_address(self) -> str:
        """`host:port` of the HTTP server; empty unless `http_listen` is set."""
        return self._guest.resource.http_address
