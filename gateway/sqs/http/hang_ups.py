"""Hang-ups of clients: known while a connection waits for something else than its socket.

Shell: owns an epoll descriptor of the operating system.
"""

import select
from collections.abc import Callable
from contextlib import suppress
from typing import Final, final

import trio

from tidelog.wire.env.env import Stream

_EVENTS: Final = select.EPOLLRDHUP | select.EPOLLONESHOT
_EVENTS_AT_ONCE: Final = 1_000


@final
class HangUps:
    """Tells connections that their client has hung up.

    One task watches all sockets through one epoll descriptor, in which each connection is
    registered once, when it opens. So a watched request costs nothing, and a waiting poll has no
    second task.
    """

    def __init__(self) -> None:
        """Watch nothing yet."""
        self._epoll = select.epoll()
        self._calls: dict[int, Callable[[], None]] = {}

    def watch(self, stream: Stream, call: Callable[[], None]) -> None:
        """Call `call` once if the client of `stream` hangs up before `forget`."""
        descriptor = stream.fileno()
        if descriptor is not None:
            self._calls[descriptor] = call
            self._epoll.register(descriptor, _EVENTS)

    def forget(self, stream: Stream) -> None:
        """Stop watching a stream that is still open."""
        descriptor = stream.fileno()
        if descriptor is not None and self._calls.pop(descriptor, None) is not None:
            with suppress(OSError):
                self._epoll.unregister(descriptor)

    async def run(self) -> None:
        """Watch until cancelled, then close the descriptor."""
        try:
            while True:
                await trio.lowlevel.wait_readable(self._epoll.fileno())
                for descriptor, _ in self._epoll.poll(0, _EVENTS_AT_ONCE):
                    call = self._calls.get(descriptor)
                    if call is not None:
                        call()
        finally:
            self._epoll.close()
