"""One simulated TCP connection: bytes arrive in order, or the connection breaks.

Each end is two things in one, as with real sockets: the application's view, and the kernel's
behaviour, which continues when the process is paused and closes the connection when it is killed.
The rules are Linux's: received bytes can be read after a reset; closing with unread bytes resets;
sending to a closed end causes a reset.
"""

import errno
import os
from collections import deque
from collections.abc import Callable, Sequence
from enum import Enum, auto
from functools import partial
from typing import Any, final
from zlib import crc32

import trio

from tests.simulation.machine.link import Flow, Link
from tidelog.wire.env.env import BytesLike, Certificate, FileRegionSource
from tidelog.wire.errors import ConnectionLostError

BACKLOG_MAX = 1024
"""Maximum connections that wait to be accepted; further ones get no reply."""

Note = Callable[[str], None]
"""Records an event of a connection."""


class End(Enum):
    """State of one end of a connection."""

    OPEN = auto()
    CLOSED = auto()
    """The application has closed it, or the process is gone; the kernel answers with resets."""
    VANISHED = auto()
    """The machine is gone; packets are lost, and cause a reset once it is on again."""


@final
class Wait:
    """At most one task that waits for an event."""

    def __init__(self) -> None:
        """Start without a waiting task."""
        self._task: trio.lowlevel.Task | None = None

    async def wait(self) -> None:
        """Wait for `wake`; a checkpoint.

        Raises:
            trio.BusyResourceError: Another task waits.
        """
        if self._task is not None:
            raise trio.BusyResourceError("another task already waits for this end")

        def stop(_: Any) -> trio.lowlevel.Abort:  # noqa: ANN401  (trio's type for it)
            self._task = None
            return trio.lowlevel.Abort.SUCCEEDED

        self._task = trio.lowlevel.current_task()
        await trio.lowlevel.wait_task_rescheduled(stop)

    def wake(self) -> None:
        """Wake the waiting task, if there is one."""
        task, self._task = self._task, None
        if task is not None:
            trio.lowlevel.reschedule(task)


@final
class SimulatedStream:
    """One end of a connection; see `wire.env.env.Stream`.

    Invariant: `_unread` counts the sent bytes that the other application is not known to have read;
    they never exceed the window.
    """

    def __init__(
        self,
        link: Link,
        flow: Flow,
        *,
        local: tuple[str, int],
        remote: tuple[str, int],
        window_bytes: int,
        note: Note,
    ) -> None:
        """Send over `link`, by `flow`; `connect_ends` sets its other end."""
        self.local = local
        self.peer = f"{remote[0]}:{remote[1]}"
        self.is_encrypted = False
        self.peer_certificate: Certificate | None = None
        self.other: SimulatedStream
        self.check_alive: Callable[[], None] = _nothing
        """Called before every operation of the application; raises when its process is dead."""
        self.on_sent: Callable[[bytes], None] | None = None
        """Callback with all that the application sends."""
        self._link = link
        self._flow = flow
        self._window_bytes = window_bytes
        self._note = note
        self._end = End.OPEN
        self._received = bytearray()
        self._unread = 0
        self._has_sent_end = False
        self._has_other_ended = False
        self._failure: str | None = None
        self._reader = Wait()
        self._writer = Wait()

    # Operations of the application.

    async def handshake(self) -> None:
        """See `wire.env.env.Stream`."""

    def fileno(self) -> int | None:
        """See `wire.env.env.Stream`."""
        return None

    def receive_nowait(self, buffer: memoryview) -> int | None:
        """See `wire.env.env.Stream`."""
        self._check_open()
        count = min(len(buffer), len(self._received))
        if count:
            buffer[:count] = self._received[:count]
            del self._received[:count]
            self._note(f"read {count}")
            self._flow.send(partial(self.other.was_read, count))
            return count
        if self._has_other_ended:
            return 0
        if self._failure is not None:
            raise self._lost()
        return None

    def send_nowait(self, pieces: Sequence[BytesLike]) -> int:
        """See `wire.env.env.Stream`."""
        self._check_sendable()
        room = self._window_bytes - self._unread
        taken: list[BytesLike] = []
        for piece in pieces:
            if room <= 0:
                break
            taken.append(memoryview(piece)[:room])
            room -= len(piece)
        data = b"".join(taken)
        if data:
            self._transmit(data)
        return len(data)

    def send_file_nowait(self, source: FileRegionSource, position: int, length: int) -> int:
        """See `wire.env.env.Stream`."""
        self._check_sendable()
        room = self._window_bytes - self._unread
        if room <= 0:
            return 0
        try:
            data = source.read_at(position, min(length, room))
        except OSError as error:
            raise ConnectionLostError(f"connection to {self.peer}: {error.strerror}") from error
        if not data:
            raise ConnectionLostError("a file ends before the region that was to be sent")
        return self.send_nowait([data])

    async def wait_readable(self) -> None:
        """See `wire.env.env.Stream`."""
        self._check_open()
        if self._received or self._has_other_ended or self._failure is not None:
            await trio.lowlevel.checkpoint()
        else:
            await self._reader.wait()
        self._check_open()

    async def wait_writable(self) -> None:
        """See `wire.env.env.Stream`."""
        self._check_open()
        if self._unread < self._window_bytes or self._failure is not None:
            await trio.lowlevel.checkpoint()
        else:
            await self._writer.wait()
        self._check_open()

    def send_end(self) -> None:
        """Close the sending direction; bytes of the other end can still be read."""
        self._check_open()
        self._finish()

    def close(self) -> None:
        """See `wire.env.env.Stream`."""
        self.check_alive()
        self.release()

    # Operations of the kernel.

    @property
    def is_open(self) -> bool:
        """Whether a process has it, or may still accept it."""
        return self._end is End.OPEN

    @property
    def is_connected(self) -> bool:
        """Whether it is open and has not failed."""
        return self._end is End.OPEN and self._failure is None

    @property
    def is_known(self) -> bool:
        """Whether its machine still has its state."""
        return self._end is not End.VANISHED

    @property
    def heard_at(self) -> float:
        """Time of the last packet from the other end."""
        return self.other._flow.arrived_at

    @property
    def unsent_since(self) -> float | None:
        """Due time of the first packet that has not reached the other end, `None` if all have."""
        return self._flow.waiting_since

    def release(self) -> None:
        """Close, by the application or because its process has ended."""
        if self._end is not End.OPEN:
            return
        self._end = End.CLOSED
        if self._received:
            self._note("closed with unread bytes")
            self.send_reset()
        else:
            self._finish()
        self._wake()

    def abort(self) -> None:
        """Close with a reset to the other end."""
        if self._end is End.OPEN:
            self._end = End.CLOSED
            self.send_reset()
            self._wake()

    def vanish(self) -> None:
        """Vanish with the machine: the other end gets no packet."""
        self._end = End.VANISHED
        self._flow.drop_unsent()
        self._wake()

    def confirm(self, arrive: Callable[[], None]) -> None:
        """Confirm the connection, before any data."""
        self._flow.send(arrive)

    def break_off(self, reason: str) -> None:
        """Fail here, as after a reset."""
        if self._end is not End.OPEN or self._failure is not None:
            return
        self._note(f"broken: {reason}")
        self._failure = reason
        self._wake()

    def send_reset(self) -> None:
        """Send a reset: there is no connection at this end (any more)."""
        self._note("reset")
        self._flow.send(partial(self.other.break_off, os.strerror(errno.ECONNRESET)))

    def arrived(self, data: bytes) -> None:
        """Receive bytes from the other end."""
        if self._end is End.OPEN:
            self._received += data
            self._reader.wake()
        else:
            self.send_reset()

    def ended(self) -> None:
        """Receive the end of the other end's data."""
        if self._end is End.OPEN:
            self._has_other_ended = True
            self._reader.wake()
        elif self._end is End.VANISHED:
            self.send_reset()

    def was_read(self, count: int) -> None:
        """Free window space: the other application has read `count` bytes."""
        self._unread -= count
        self._writer.wake()

    def _transmit(self, data: bytes) -> None:
        self._note(f"send {len(data)} {crc32(data):08x}")
        if self.on_sent is not None:
            self.on_sent(data)
        quality, random = self._link.quality, self._link.random
        is_reset = quality.reset and random.random() < quality.reset
        if is_reset:
            data = data[: random.randrange(len(data))]
        pieces = [data]
        if quality.split and len(data) > 1 and random.random() < quality.split:
            cut = random.randrange(1, len(data))
            pieces = [data[:cut], data[cut:]]
        for piece in filter(None, pieces):
            self._unread += len(piece)
            self._flow.send(partial(self.other.arrived, piece), size=len(piece))
        if is_reset:
            self.send_reset()
            self.break_off(os.strerror(errno.ECONNRESET))

    def _finish(self) -> None:
        if not self._has_sent_end and self._failure is None:
            self._has_sent_end = True
            self._note("end")
            self._flow.send(self.other.ended)

    def _wake(self) -> None:
        self._reader.wake()
        self._writer.wake()

    def _check_open(self) -> None:
        self.check_alive()
        if self._end is not End.OPEN:
            raise ConnectionLostError(f"connection to {self.peer} was closed here")

    def _check_sendable(self) -> None:
        self._check_open()
        if self._failure is not None or self._has_sent_end:
            raise self._lost()

    def _lost(self) -> ConnectionLostError:
        return ConnectionLostError(
            f"connection to {self.peer}: {self._failure or os.strerror(errno.EPIPE)}"
        )


def connect_ends(one: SimulatedStream, other: SimulatedStream) -> None:
    """Connect two ends."""
    one.other, other.other = other, one


@final
class SimulatedListener:
    """A listening socket; see `wire.env.env.Listener`."""

    def __init__(
        self,
        address: tuple[str, int],
        *,
        check_alive: Callable[[], None],
        on_accept: Callable[[SimulatedStream], None],
        on_close: Callable[["SimulatedListener"], None],
    ) -> None:
        """Listen at `address`; `on_accept` gets every accepted stream."""
        self.address = address
        self._check_alive = check_alive
        self._on_accept = on_accept
        self._on_close = on_close
        self._half_made: dict[SimulatedStream, None] = {}
        self._backlog: deque[SimulatedStream] = deque()
        self._is_closed = False
        self._accepting = Wait()

    @property
    def has_room(self) -> bool:
        """Whether another connection may wait to be accepted."""
        return len(self._backlog) < BACKLOG_MAX

    async def accept(self) -> SimulatedStream:
        """See `wire.env.env.Listener`."""
        self._check_alive()
        if self._backlog:
            await trio.lowlevel.checkpoint()
        while not self._backlog:
            await self._accepting.wait()
            self._check_alive()
            if self._is_closed:
                raise trio.ClosedResourceError("the listener was closed")
        stream = self._backlog.popleft()
        self._on_accept(stream)
        return stream

    def close(self) -> None:
        """See `wire.env.env.Listener`."""
        self._check_alive()
        self.release()

    def expect(self, stream: SimulatedStream) -> None:
        """Add a connection that the other side has not confirmed yet."""
        self._half_made[stream] = None

    def offer(self, stream: SimulatedStream) -> None:
        """Offer a confirmed connection for acceptance."""
        del self._half_made[stream]
        self._backlog.append(stream)
        self._accepting.wake()

    def release(self) -> None:
        """Close, by the application or because its process has ended."""
        if not self._is_closed:
            self._on_close(self)
            self._end(SimulatedStream.abort)

    def vanish(self) -> None:
        """Vanish with the machine."""
        self._end(SimulatedStream.vanish)

    def _end(self, end_stream: Callable[[SimulatedStream], None]) -> None:
        self._is_closed = True
        for stream in (*self._half_made, *self._backlog):
            end_stream(stream)
        self._half_made.clear()
        self._backlog.clear()
        self._accepting.wake()


def _nothing() -> None:
    """Allow every operation."""
