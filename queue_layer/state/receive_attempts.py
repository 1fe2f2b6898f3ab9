"""Receives that are repeated because their answer was lost.

Pure: no clock, no I/O.

A FIFO group is blocked while its messages are leased. If the answer of a receive is lost, nobody
works on them, and nobody else gets what is behind them, until the leases are over. So a receive may
carry an attempt id: when it comes again within five minutes, and nothing happened to its messages
meanwhile, the answer is the same messages under the same receipt, and their time begins anew. If
anything happened, to any of them, the repetition is a receive like any other.

What is remembered is a part of the state of the queue: it is changed by `apply` only, it is in
snapshots, and it outlives the broker. Settling a message of a lease forgets its attempt, so there
are not many more than leases that live; and never more than `ATTEMPTS_MAX`, beyond which the oldest
is forgotten, which costs no more than a wait for leases to end.
"""

from collections import OrderedDict
from collections.abc import Iterator
from typing import Final, final

from tidelog.wire.messages.queue_journal import Attempt

ATTEMPT_WINDOW_MS: Final = 5 * 60 * 1000
"""An attempt can be repeated for so long from its first time on."""
ATTEMPT_ID_SIZE_MAX: Final = 16
ATTEMPTS_MAX: Final = 100_000


@final
class ReceiveAttempts:
    """The receives of one partition that can be repeated.

    Invariant: each is of a lease none of whose messages was settled or received again.
    """

    __slots__ = ("_by_id", "_id_of_lease")

    def __init__(self) -> None:
        """Remember nothing yet."""
        self._by_id: OrderedDict[bytes, Attempt] = OrderedDict()
        """Roughly the oldest first: those that were repeated stand where they were repeated."""
        self._id_of_lease: dict[int, bytes] = {}

    def __len__(self) -> int:
        """Return how many are remembered."""
        return len(self._by_id)

    def __iter__(self) -> Iterator[Attempt]:
        """Yield them in an order in which `received` with each makes the same memory again."""
        return iter(self._by_id.values())

    def find(self, attempt_id: bytes, *, now_ms: int) -> Attempt | None:
        """Return the receive that this id repeats; `None` if new messages are to be chosen."""
        attempt = self._by_id.get(attempt_id)
        if attempt is None or now_ms >= attempt.deadline_ms:
            return None
        return attempt if now_ms - attempt.received_ms < ATTEMPT_WINDOW_MS else None

    def received(self, attempt: Attempt) -> None:
        """Remember a receive, in the place of an older one with the same id; forget old ones.

        A repetition is remembered as the receive it repeats, with its new deadline.
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
            self._id_of_lease[attempt.lease_id] = attempt.attempt_id

    def on_lease_changed(self, lease_id: int) -> None:
        """Forget the receive that a lease comes from: a message of it was settled or moved."""
        attempt_id = self._id_of_lease.get(lease_id)
        if attempt_id is not None:
            self._forget(attempt_id)

    def clear(self) -> None:
        """Forget all, as a purge or a seek does."""
        self._by_id.clear()
        self._id_of_lease.clear()

    def _forget(self, attempt_id: bytes) -> None:
        attempt = self._by_id.pop(attempt_id, None)
        if attempt is not None:
            del self._id_of_lease[attempt.lease_id]
