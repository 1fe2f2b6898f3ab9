"""Receive attempts: receives that are repeated because their reply was lost.

Pure: no clock, no I/O.

A FIFO group is blocked while its messages are leased. If the reply of a receive is lost, its
messages are not processed, and the messages behind them are blocked until the leases are over. So a
receive may have an attempt id. If it is repeated within five minutes, and its messages have not
changed meanwhile, the reply has the same messages under the same receipt, and their lease starts
again. If any of them has changed, the repetition is a receive like any other.

Attempts are a part of the state of the queue: only `apply` changes them, they are in snapshots, and
they survive a failover. Settling a message of a lease removes its attempt, so there are not many
more attempts than current leases. There are never more than `ATTEMPTS_MAX`. Beyond that the oldest
is removed, which costs no more than a wait for leases to end.
"""

from collections import OrderedDict
from collections.abc import Iterator
from typing import Final, final

from tidelog.wire.messages.queue_journal import Attempt

ATTEMPT_WINDOW_MS: Final = 5 * 60 * 1000
"""Milliseconds after its first receive in which an attempt can be repeated."""
ATTEMPT_ID_SIZE_MAX: Final = 16
ATTEMPTS_MAX: Final = 100_000


@final
class ReceiveAttempts:
    """Receives of one partition that can be repeated.

    Invariant: no message of their leases was settled or received again.
    """

    __slots__ = ("_by_id", "id_of_lease")

    def __init__(self) -> None:
        """Start without attempts."""
        self._by_id: OrderedDict[bytes, Attempt] = OrderedDict()
        """Roughly the oldest first; a repetition moves an attempt to the end."""
        self.id_of_lease: dict[int, bytes] = {}
        """Attempt ids by lease; to be read only."""

    def __len__(self) -> int:
        """Return the number of attempts."""
        return len(self._by_id)

    def __iter__(self) -> Iterator[Attempt]:
        """Yield the attempts in an order in which `received` restores the same state."""
        return iter(self._by_id.values())

    def find(self, attempt_id: bytes, *, now_ms: int) -> Attempt | None:
        """Return the receive that this id repeats; `None` if new messages are to be chosen."""
        attempt = self._by_id.get(attempt_id)
        if attempt is None or now_ms >= attempt.deadline_ms:
            return None
        return attempt if now_ms - attempt.received_ms < ATTEMPT_WINDOW_MS else None

    def received(self, attempt: Attempt) -> None:
        """Add a receive, in place of an older one with the same id; remove old ones.

        A repetition is stored as the receive that it repeats, with its new deadline.
        """
        self._forget(attempt.attempt_id)
        while self._by_id:
            oldest = next(iter(self._by_id.values()))
            is_young = attempt.received_ms - oldest.received_ms < ATTEMPT_WINDOW_MS
            if is_young and len(self._by_id) < ATTEMPTS_MAX:
                break
            self._forget(oldest.attempt_id)
        if attempt.runs:
            self._by_id[attempt.attempt_id] = attempt
            self.id_of_lease[attempt.lease_id] = attempt.attempt_id

    def on_lease_changed(self, lease_id: int) -> None:
        """Remove the attempt of a lease, because one of its messages was settled or moved."""
        attempt_id = self.id_of_lease.get(lease_id)
        if attempt_id is not None:
            self._forget(attempt_id)

    def clear(self) -> None:
        """Remove all attempts, after a purge or a seek."""
        self._by_id.clear()
        self.id_of_lease.clear()

    def _forget(self, attempt_id: bytes) -> None:
        attempt = self._by_id.pop(attempt_id, None)
        if attempt is not None:
            del self.id_of_lease[attempt.lease_id]
