"""Progress of a processor in one input partition, and its next transaction.

Pure: no clock, no I/O. The id of a transaction is the offset of the next input record, so the last
committed id is the position in the input. Above its 48 bits the id has the number of replays: the
ids grow, also after an operator has moved the group back.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, final

from tidelog.client.producer.producer_record import ProducerRecord

UNPLACED: Final = 0
"""Id of the transaction that claims a name: nothing of the input is processed."""
_OFFSET_BITS: Final = 48
_BYTES_MAX: Final = 16 * 1024 * 1024
"""Bytes of output at which a transaction is full."""
_AHEAD: Final = 4
"""Number of full transactions for which output may wait, while one is in flight."""


class GroupOffset(NamedTuple):
    """Committed offset of a group."""

    offset: int
    is_own: bool
    """Whether a processor committed it, after a transaction. Otherwise an operator or another
    program has moved the group there."""


class Start(NamedTuple):
    """Where a processor starts in a partition."""

    previous_id: int
    """Id on which the first transaction builds."""
    offset: int | None
    """Offset of the first record, `None` without any position."""
    is_moved: bool = False
    """Whether a transaction without records, with the id `previous_id`, must come first."""


def start_of(last_id: int, committed: GroupOffset | None) -> Start:
    """Return where to start.

    The last transaction counts, because the offset of the group follows later. But if the group was
    moved, in either direction, the processor follows.

    Args:
        last_id: Id of the last committed transaction.
        committed: Committed offset of the group, `None` without one.
    """
    last = None if last_id == UNPLACED else offset_of(last_id)
    if committed is None:
        return Start(last_id, last)
    if last is None:
        return Start(last_id, committed.offset)
    if committed.is_own:
        return Start(last_id, max(last, committed.offset))
    if committed.offset == last:
        return Start(last_id, last)
    return Start(next_id(last_id, committed.offset), committed.offset, is_moved=True)


def next_id(last_id: int, offset: int) -> int:
    """Return an id above `last_id` for an offset; the number of replays grows if it must."""
    replays = last_id >> _OFFSET_BITS
    if offset <= offset_of(last_id):
        replays += 1
    return (replays << _OFFSET_BITS) | offset


def offset_of(transaction_id: int) -> int:
    """Return the offset of the next input record after a transaction."""
    return transaction_id & ((1 << _OFFSET_BITS) - 1)


@final
@dataclass(frozen=True, slots=True)
class PlannedTransaction:
    """Output of consecutive input records."""

    previous_id: int
    """Id of the transaction that must be the last committed one."""
    transaction_id: int
    next_offset: int
    """Offset of the next input record."""
    outputs: Sequence[ProducerRecord]
    input_count: int
    dead_letter_count: int


@final
class InputProgress:
    """Transformed records of one partition that are not committed.

    Invariant: at most one transaction is in flight, and it begins where the last committed one
    ended. Pending output is that of the input behind it.
    """

    def __init__(self, previous_id: int, *, commit_interval: float, max_records: int) -> None:
        """Build on the transaction `previous_id`.

        Args:
            previous_id: Id of the last committed transaction.
            commit_interval: Seconds from the first pending record to its transaction.
            max_records: Input or output records at which a transaction is full.
        """
        self.previous_id = previous_id
        """Id of the last committed transaction."""
        self._commit_interval = commit_interval
        self._max_records = max_records
        self._in_flight: PlannedTransaction | None = None
        self._is_hurried = False
        self._clear()

    def _clear(self) -> None:
        self._outputs: list[ProducerRecord] = []
        self._bytes = 0
        self._input_count = 0
        self._dead_letter_count = 0
        self._next_offset: int | None = None
        self._first_at = 0.0

    @property
    def is_idle(self) -> bool:
        """Whether all that was added is committed."""
        return self._next_offset is None and self._in_flight is None

    @property
    def has_room(self) -> bool:
        """Whether more records may be added."""
        return not self._is_full(_AHEAD)

    def _is_full(self, times: int) -> bool:
        """Return whether so many transactions are full."""
        return (
            max(self._input_count, len(self._outputs)) >= times * self._max_records
            or self._bytes >= times * _BYTES_MAX
        )

    @property
    def due_at(self) -> float:
        """Time of the next transaction in seconds; inf while one is in flight or none is needed."""
        if self._in_flight is not None or self._next_offset is None:
            return math.inf
        if self._is_hurried or self._is_full(1):
            return self._first_at
        return self._first_at + self._commit_interval

    def hurry(self) -> None:
        """Commit from now on without waiting for more records."""
        self._is_hurried = True

    def add(
        self,
        next_offset: int,
        outputs: Sequence[ProducerRecord],
        *,
        input_count: int,
        dead_letter_count: int = 0,
        now: float,
    ) -> None:
        """Add the output of the input before `next_offset`."""
        assert next_offset < 1 << _OFFSET_BITS
        if self._next_offset is None:
            self._first_at = now
        self._next_offset = next_offset
        self._outputs.extend(outputs)
        self._bytes += sum(output.size for output in outputs)
        self._input_count += input_count
        self._dead_letter_count += dead_letter_count

    def begin(self) -> PlannedTransaction:
        """Return the next transaction, which is in flight from now on."""
        assert self._in_flight is None, "one transaction is in flight at a time"
        assert self._next_offset is not None, "there is something to commit"
        self._in_flight = PlannedTransaction(
            self.previous_id,
            next_id(self.previous_id, self._next_offset),
            self._next_offset,
            self._outputs,
            self._input_count,
            self._dead_letter_count,
        )
        self._clear()
        return self._in_flight

    def committed(self) -> None:
        """End the transaction in flight: the next one builds on it."""
        assert self._in_flight is not None, "a transaction is in flight"
        self.previous_id = self._in_flight.transaction_id
        self._in_flight = None
