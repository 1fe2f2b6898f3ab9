"""Interfaces to clock, network, randomness and threads; the disk is in `logstore.disk.disk`.

Pure: declarations. `wire.env.real` implements them on the operating system, the simulator has its
own. Monotonic time and timeouts are trio's, whose clock is pluggable. No other code may reach
clocks, sockets, entropy or threads.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import NamedTuple, Protocol, TypeVar

Result = TypeVar("Result")
URI_SCHEME = "tidelog://"
"""Start of the names of nodes and users in certificates; see `wire.security.certificate_name`."""
BytesLike = bytes | bytearray | memoryview


class Clock(Protocol):
    """The wall clock. It may be wrong and may jump; safety never depends on it."""

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


class Certificate(NamedTuple):
    """Facts of a verified X.509 certificate."""

    subject: str
    """The common name; for messages."""
    uris: tuple[str, ...]
    """Uniform resource identifiers among the alternative names."""
    serial: str
    """Serial number, in hexadecimal digits."""
    not_before_ms: int
    expires_at_ms: int
    """Unix milliseconds from which the certificate is not valid any more."""


class Stream(Protocol):
    """One TCP connection. Calls that move bytes never wait; waiting has its own calls.

    So the shells try first, wait only when there is nothing to do, and hold no buffer while they
    wait.
    """

    @property
    def peer(self) -> str:
        """The other side's address, for messages."""
        ...

    @property
    def local(self) -> tuple[str, int]:
        """The host and port on this side."""
        ...

    @property
    def is_encrypted(self) -> bool:
        """Whether others cannot read the bytes; known after `handshake`."""
        ...

    @property
    def peer_certificate(self) -> Certificate | None:
        """The certificate by which the other side has proved itself; `None` without one."""
        ...

    def fileno(self) -> int | None:
        """Return the descriptor, for watching alone; `None` where there is none, or no more."""
        ...

    async def handshake(self) -> None:
        """Exchange what must come before the first byte, as TLS does; nothing on plain TCP.

        The acceptor's side calls this once, in the task of the connection. The deadline is the
        caller's.

        Raises:
            HandshakeFailedError: The other side has no valid certificate, or does not speak TLS.
            ConnectionLostError: The connection is broken.
        """
        ...

    def receive_nowait(self, buffer: memoryview) -> int | None:
        """Receive into `buffer`; return the bytes, 0 at the end, `None` when none are available.

        Raises:
            ConnectionLostError: The connection is broken.
        """
        ...

    def send_nowait(self, pieces: Sequence[BytesLike]) -> int:
        """Send from the start of `pieces`; return the number of accepted bytes, maybe 0.

        Raises:
            ConnectionLostError: The connection is broken.
        """
        ...

    def send_file_nowait(self, source: FileRegionSource, position: int, length: int) -> int:
        """Send bytes of a file; return the number of accepted bytes, maybe 0.

        Raises:
            ConnectionLostError: The connection is broken, or the file is shorter.
        """
        ...

    async def wait_readable(self) -> None:
        """Wait until `receive_nowait` would not return `None`; a checkpoint, cancel-safe."""
        ...

    async def wait_writable(self) -> None:
        """Wait until `send_nowait` would accept bytes; a checkpoint, cancel-safe."""
        ...

    def close(self) -> None:
        """Close at once; waiters get `ConnectionLostError`. Closing twice is allowed."""
        ...


class Listener(Protocol):
    """A listening socket."""

    @property
    def address(self) -> tuple[str, int]:
        """The host and port of the socket; the real port when 0 was requested."""
        ...

    async def accept(self) -> Stream:
        """Wait for the next connection.

        Raises:
            OSError: The operating system refuses, for instance without free file descriptors;
                a later call may succeed.
        """
        ...

    def close(self) -> None:
        """Stop listening; calls of `accept` must have been cancelled before."""
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
            OSError: The name is unknown, no process listens, or the network is unreachable.
        """
        ...


class SecureNetwork(Network, Protocol):
    """TCP with TLS. A certificate of this process can be replaced; open connections live on.

    `connect` includes the handshake, and raises `HandshakeFailedError` as well.
    """

    @property
    def certificate(self) -> Certificate:
        """The certificate of this process that is in force."""
        ...

    @property
    def authority_expires_at_ms(self) -> int:
        """Unix milliseconds at which the first of the trusted CA certificates expires."""
        ...

    async def reload(self) -> bool:
        """Read the certificate again; return whether another one is in force now.

        Raises:
            ConfigError: The new certificate cannot be used; the old one stays in force.
        """
        ...


class ThreadPool(Protocol):
    """Executor of blocking or heavy work outside the event loop."""

    async def __call__(self, work: Callable[[], Result], *, is_brief: bool = False) -> Result:
        """Return the result of `work`. A cancellation waits until the work has ended.

        `is_brief` says that the work usually takes no longer than the wake-up of a thread. Such
        work may run in the event loop, as long as it stays brief.
        """
        ...


class Probe(Protocol):
    """Sink of semantic events: logs and metrics in production, trace and checkers in simulation."""

    def __call__(self, event: str, **fields: object) -> None:
        """Record one event; never raises in production.

        The field `severity` is the urgency: `debug`, `info` (the default), `warning` or `error`.
        """
        ...


class Buggify(Protocol):
    """Switch of rare branches that a simulation may force."""

    def __call__(self, site: str, /) -> bool:
        """Return whether to take the rare branch at `site`; always `False` in production."""
        ...


class ProcessUsage(NamedTuple):
    """Resources of this process; 0 where the platform does not tell."""

    cpu_s: float = 0.0
    """CPU time in user and system mode."""
    resident_bytes: int = 0
    open_files: int = 0
    max_open_files: int = 0
    started_at_s: float = 0.0
    """Unix seconds."""


@dataclass(frozen=True, slots=True)
class Env:
    """The environment of one process."""

    clock: Clock
    network: Network
    random: Random
    """The only source of entropy: ids, jitter, shuffles."""
    run_in_thread: ThreadPool
    probe: Probe
    buggify: Buggify
    process_usage: Callable[[], ProcessUsage] = ProcessUsage
    secure_network: SecureNetwork | None = None
    """The network of a node with TLS, for clients and other nodes; `None` without TLS."""
