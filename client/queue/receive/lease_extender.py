"""Lease extender of a message window: extends visibility timeouts when half of their time is over.

Shell: one task that finds due leases, and one for each partition whose messages are being
extended. So a broker that does not answer does not cost messages of other partitions.
"""

from collections.abc import Awaitable, Callable, Hashable
from typing import Final, final

import msgspec
import trio

from tidelog.client.queue.receive.message import Message, extension
from tidelog.client.queue.receive.settled_messages import Place
from tidelog.client.queue.receive.settler import QueueSettler
from tidelog.wire.errors import (
    BatchError,
    BrokerError,
    ConnectionLostError,
    InvalidRequestError,
    TidelogError,
)

_EXTEND_AT: Final = 0.5
"""Part of the remaining time of a lease after which it is extended."""
_PATIENCE_S: Final = 5.0
"""Maximum seconds of one attempt when the leases have no time left."""
_RETRY_S: Final = 1.0
"""Seconds between a failure and the next attempt."""
_TIMEOUT_MIN_S: Final = 1.0
_NEVER: Final = float("inf")


@final
class HeldMessage(msgspec.Struct, eq=False):
    """One message that a worker or a subscription holds."""

    message: Message
    place: Place
    group: Hashable | None
    """Group in a FIFO queue: messages of one group are processed one after the other."""
    expires_at: float
    """End of its visibility timeout in seconds of trio's clock, as far as it is known."""
    received_at: float = 0.0
    """Time of its arrival."""
    ready_at: float = 0.0
    """Time since which it may start: that of its arrival, or later if others of its group had to be
    done before."""
    extend_at: float = _NEVER
    """Time of the next extension; never while one is in flight."""
    scope: trio.CancelScope | None = None
    """Scope of its handler, once that has started."""
    has_started: bool = False
    """Whether the application has seen it."""
    is_lost: bool = False
    """Whether another receiver may have it."""
    is_final: bool = False
    """Whether its visibility timeout can be extended no more, 12 hours after the receive."""


@final
class LeaseExtender:
    """Extends the leases of messages until they are untracked."""

    def __init__(
        self,
        settler: QueueSettler,
        timeout: Callable[[], Awaitable[float]],
        on_over: Callable[[HeldMessage], None],
        *,
        now: Callable[[], float],
        on_woken: Callable[[float], None],
    ) -> None:
        """Extend by `timeout()` seconds; call `on_over` with messages whose lease is over.

        It is lost, or cannot be extended any more and has ended. `now` is trio's clock. `on_woken`
        is called with the time of the next extension whenever the extender wakes up, in time or
        late.
        """
        self.held: dict[HeldMessage, None] = {}
        """Messages whose leases are extended."""
        self._settler = settler
        self._now = now
        self._timeout = timeout
        self._on_over = on_over
        self._on_woken = on_woken
        self._wake = trio.Event()
        self._wakes_at = -_NEVER
        """Time of the next look at all leases: no later than any of them is due."""

    def track(self, held: HeldMessage) -> None:
        """Start extending the lease of a message."""
        now = held.received_at = held.ready_at = self._now()
        extend_at = now + (held.expires_at - now) * _EXTEND_AT
        held.extend_at = max(now, extend_at)
        self.held[held] = None
        if extend_at < self._wakes_at:
            self._wake.set()

    def untrack(self, held: HeldMessage) -> None:
        """Stop extending the lease of a message."""
        self.held.pop(held, None)

    async def run(self) -> None:
        """Extend due leases, without end."""
        async with trio.open_nursery() as nursery:
            while True:
                self._wake = trio.Event()
                now = trio.current_time()
                due: dict[int, list[HeldMessage]] = {}
                for held in list(self.held):
                    if held.extend_at <= now:
                        held.extend_at = _NEVER
                        if held.is_final:
                            self._on_over(held)
                        elif self._is_wanted(held):
                            due.setdefault(held.message.partition, []).append(held)
                for together in due.values():
                    nursery.start_soon(self._extend, together)
                wake_at = min((held.extend_at for held in self.held), default=_NEVER)
                self._wakes_at = wake_at
                with trio.CancelScope(deadline=wake_at):
                    await self._wake.wait()
                self._on_woken(wake_at)

    def _is_wanted(self, held: HeldMessage) -> bool:
        is_settled = self._settler.settled.action_of(held.place) is not None
        return held in self.held and not held.is_lost and not is_settled

    async def _extend(self, together: list[HeldMessage]) -> None:
        """Extend messages of one partition; retry while any of their leases has time left."""
        asked_at = trio.current_time()
        left = max(held.expires_at for held in together) - asked_at
        seconds = 0.0
        errors = dict.fromkeys(range(len(together)), _no_answer())
        with trio.move_on_after(max(left, _PATIENCE_S)) as patience:
            try:
                seconds = max(await self._timeout(), _TIMEOUT_MIN_S)
                messages = [held.message for held in together]
                deadline = patience.deadline
                await self._settler.settle(messages, extension(seconds), deadline=deadline)
                errors = {}
            except BatchError as failure:
                errors = failure.errors
            except trio.ClosedResourceError:
                return  # No lease can be kept any more.
            except TidelogError as failure:
                errors = dict.fromkeys(errors, failure)
        for index, held in enumerate(together):
            if index in errors:
                self._failed(held, errors[index])
            else:
                held.expires_at = asked_at + seconds
                held.extend_at = asked_at + seconds * _EXTEND_AT
        self._wake.set()

    def _failed(self, held: HeldMessage, error: TidelogError) -> None:
        if isinstance(error, InvalidRequestError):
            held.is_final = True
            held.extend_at = held.expires_at
        elif not isinstance(error, BrokerError) or error.is_retriable:
            held.extend_at = trio.current_time() + _RETRY_S
        elif self._is_wanted(held):
            held.is_lost = True
            self._settler.counters.lost_leases += 1
            self._on_over(held)


def _no_answer() -> TidelogError:
    return ConnectionLostError("no broker answered in time")
