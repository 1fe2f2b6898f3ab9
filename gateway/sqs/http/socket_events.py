"""Events of many sockets: input, and hang-ups of clients.

Shell: owns an epoll descriptor of the operating system.
"""

import select
from collections.abc import Callable
from contextlib import suppress
from typing import Final, final

import trio

HANG_UP: Final = select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLERR
"""Events after which the client sends nothing more."""
_WATCHED: Final = select.EPOLLIN | select.EPOLLRDHUP | select.EPOLLET
_EVENTS_AT_ONCE: Final = 1_000


@final
class SocketEvents:
    """Tells connections when bytes have arrived, and when their client has hung up.

    One task waits for all sockets, each of which is registered once, for changes alone
    (edge-triggered). So a request costs no registration, a turn of the loop wakes all connections
    with input together, and a waiting receive needs no second task that watches its socket.
    """

    def __init__(self) -> None:
        """Watch nothing yet."""
        self._epoll = select.epoll()
        self._calls: dict[int, Callable[[int], None]] = {}

    def watch(self, descriptor: int, call: Callable[[int], None]) -> None:
        """Call `call` with the flags of each event of a socket until `forget`."""
        self._calls[descriptor] = call
        self._epoll.register(descriptor, _WATCHED)

    def forget(self, descriptor: int) -> None:
        """Stop watching a socket, which must still be open."""
        del self._calls[descriptor]
        if not self._epoll.closed:
            with suppress(OSError):
                self._epoll.unregister(descriptor)

    async def run(self) -> None:
        """Watch until cancelled, then close the descriptor."""
        epoll, calls = self._epoll, self._calls
        try:
            while True:
                await trio.lowlevel.wait_readable(epoll.fileno())
                for descriptor, flags in epoll.poll(0, _EVENTS_AT_ONCE):
                    # A call may close the connections of later events.
                    call = calls.get(descriptor)
                    if call is not None:
                        call(flags)
        finally:
            epoll.close()
