"""The seams: everything of the outside world that tidelog touches, except the disk.

Pure: declarations. `wire.env.real_env` has the real world, the simulator has its own; the disk is
declared in `logstore.disk.disk`. Monotonic time and timeouts are trio's, whose clock is pluggable.
Nothing else may reach clocks, sockets, entropy or threads.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Protocol, TypeVar

Result = TypeVar("Result")
BytesLike = bytes | bytearray | memoryview


class Clock(Protocol):
    """The wall clock. It may be wrong and may jump; no safety rests on it."""

    def now_ms(self) -> int:
        """Return Unix time in milliseconds."""
        ...


class FileRegionSource(Protocol):
    """A file whose bytes a stream can send without a copy through this process."""

    def fileno(self) -> int | None:
        """Return the descriptor for `sendfile`, `None` where there is none."""
        ...

    def read_at(self, position: int, length: int) -> bytes:
        """Return up to `length` bytes, fewer only at the end of the file."""
        ...


class Stream(Protocol):
    """One TCP connection. Calls that move bytes never wait; the waits are apart.

    That lets the shells try first and wait only when there is nothing to do, and hold no
    buffer while they wait.
    """

    @property
    def peer(self) -> str:
        """The other side's address, for messages."""
        ...

    @property
    def local(self) -> tuple[str, int]:
        """The host and port on this side."""
        ...

    def receive_nowait(self, buffer: memoryview) -> int | None:
        """Receive into `buffer`; return how much, 0 at the end, `None` when nothing is there.

        Raises:
            ConnectionLostError: The connection is broken.
        """
        ...

    def send_nowait(self, pieces: Sequence[BytesLike]) -> int:
        """Send from the start of `pieces`; return how many bytes were taken, maybe 0.

        Raises:
            ConnectionLostError: The connection is broken.
        """
        ...

    def send_file_nowait(self, source: FileRegionSource, position: int, length: int) -> int:
        """Send bytes of a file; return how many were taken, maybe 0.

        Raises:
            ConnectionLostError: The connection is broken, or the file is shorter.
        """
        ...

    async def wait_readable(self) -> None:
        """Wait until `receive_nowait` would not return `None`; a checkpoint, cancel-safe."""
        ...

    async def wait_writable(self) -> None:
        """Wait until `send_nowait` would take something; a checkpoint, cancel-safe."""
        ...

    def close(self) -> None:
        """Close at once; waiters get `ConnectionLostError`. Closing twice is allowed."""
        ...


class Listener(Protocol):
    """A listening socket."""

    @property
    def address(self) -> tuple[str, int]:
        """The host and port listened on, the real port when 0 was asked for."""
        ...

    async def accept(self) -> Stream:
        """Wait for the next connection.

        Raises:
            OSError: The operating system refuses, for instance for want of file descriptors;
                a later call may succeed.
        """
        ...

    def close(self) -> None:
        """Stop listening; whoever waits in `accept` must have been cancelled before."""
        ...


class Network(Protocol):
    """TCP."""

    async def listen(self, host: str, port: int) -> Listener:
        """Listen on an address; port 0 takes a free one.

        Raises:
            OSError: The address is in use or not of this machine.
        """
        ...

    async def connect(self, host: str, port: int) -> Stream:
        """Connect to an address.

        Raises:
            OSError: The name is unknown, nobody listens, or the network is unreachable.
        """
        ...


class ThreadPool(Protocol):
    """Run blocking or heavy work without holding up the loop."""

    async def __call__(self, work: Callable[[], Result], *, is_brief: bool = False) -> Result:
        """Return what `work` returns. If cancelled, the work runs to its end before that.

        `is_brief` says that it takes no longer than to wake up a thread, as a rule. Then it may be
        done in the loop, as long as that is so.
        """
        ...


class Probe(Protocol):
    """Told of semantic events: logs and metrics in production, trace and checkers in simulation."""

    def __call__(self, event: str, **fields: object) -> None:
        """Take note of one event; never raises in production.

        The field `severity` says how urgent it is to people: `debug`, `info` (which need not be
        said), `warning` or `error`.
        """
        ...


class Buggify(Protocol):
    """Asked at places where a rare branch may be forced."""

    def __call__(self, site: str) -> bool:
        """Return whether to take the rare branch at `site`; always `False` in production."""
        ...


@dataclass(frozen=True, slots=True)
class Env:
    """One process's world."""

    clock: Clock
    network: Network
    random: Random
    """The only entropy: identities, jitter, shuffles."""
    run_in_thread: ThreadPool
    probe: Probe
    buggify: Buggify
