"""Receive: the choice of messages, and the journal entries of their delivery.

Pure: no clock, no I/O. Two steps: a plan offers messages one run after the other, and the reader of
the records stops when it has enough; then the lease of the taken messages is decided. Nothing
changes before the entries are applied.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final, NamedTuple, final

from msgspec.structs import replace

from tidelog.queue_layer.commands.unreceived_entries import passed
from tidelog.queue_layer.state.message_runs import WITHOUT_LIMIT
from tidelog.queue_layer.state.message_state import SKIPPED, MessageStatus
from tidelog.queue_layer.state.queue_state import QueueState
from tidelog.queue_layer.state.receive_attempts import ATTEMPT_ID_SIZE_MAX
from tidelog.wire.config.queue_config import QueueConfig
from tidelog.wire.errors import InvalidRequestError
from tidelog.wire.messages.queue_journal import (
    AnyEntry,
    Attempt,
    Received,
    ReceiveRepeated,
)
from tidelog.wire.messages.queues import (
    RECEIVE_COUNT_MAX,
    VISIBILITY_TIMEOUT_MS_MAX,
    MessageState,
    ReceivedRun,
    Run,
)

RUNS_MAX: Final = 100
"""Maximum runs of messages in one decision: each costs time, and other requests wait meanwhile."""
HOLDER_LENGTH_MAX: Final = 128


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiveCommand:
    """Receive of messages."""

    max_messages: int
    visibility_timeout_ms: int | None = None
    """Milliseconds; `None` for the setting of the queue."""
    holder: str = ""
    attempt_id: bytes | None = None
    """Receive attempt id in FIFO queues, shared by a repeated receive and the first
    (`state.receive_attempts`). Other queues ignore it."""
    is_repetition: bool = False
    """Whether only messages of an earlier receive with the attempt id are wanted."""

    def __post_init__(self) -> None:
        if not 1 <= self.max_messages <= RECEIVE_COUNT_MAX:
            raise InvalidRequestError(
                f"max_messages must be from 1 to {RECEIVE_COUNT_MAX}, not {self.max_messages}"
            )
        timeout_ms = self.visibility_timeout_ms
        if timeout_ms is not None and not 0 <= timeout_ms <= VISIBILITY_TIMEOUT_MS_MAX:
            raise InvalidRequestError(
                f"visibility_timeout_ms must be from 0 to {VISIBILITY_TIMEOUT_MS_MAX},"
                f" not {timeout_ms}"
            )
        if len(self.holder) > HOLDER_LENGTH_MAX:
            raise InvalidRequestError(f"a holder has at most {HOLDER_LENGTH_MAX} characters")
        if self.attempt_id is not None and not 1 <= len(self.attempt_id) <= ATTEMPT_ID_SIZE_MAX:
            raise InvalidRequestError(f"an attempt id has 1 to {ATTEMPT_ID_SIZE_MAX} bytes")


class GrantedLease(NamedTuple):
    """Lease of delivered messages; empty if there were none."""

    lease_id: int
    runs: list[ReceivedRun]
    """Runs of messages, ascending."""
    deadline_ms: int

    @property
    def offsets(self) -> list[Run]:
        """First offsets and counts, joined where they touch."""
        return joined([(run.first_offset, run.count) for run in self.runs])


def earlier_attempt(
    state: QueueState, config: QueueConfig, command: ReceiveCommand, *, now_ms: int
) -> Attempt | None:
    """Return the receive that a command repeats, `None` without one."""
    if not config.is_fifo or command.attempt_id is None:
        return None
    return state.attempts.find(command.attempt_id, now_ms=now_ms)


@final
class ReceivePlan:
    """Offer of messages, best first; each iteration starts from the beginning.

    To be read to the end, or until there is enough, and then passed to `receive`, before the queue
    changes. If it did change meanwhile (`is_current`), a standard queue delivers the taken messages
    that are still visible. A FIFO queue delivers none, because other messages may now come first.

    A plan that repeats an attempt offers its messages again, all of which are to be taken.
    """

    def __init__(
        self, state: QueueState, config: QueueConfig, command: ReceiveCommand, *, now_ms: int
    ) -> None:
        self.command = command
        self.attempt = earlier_attempt(state, config, command, now_ms=now_ms)
        """Receive that this one repeats."""
        self._ranks: dict[int, int] = {}
        """Rank of each yielded run, by its first offset."""
        self._state = state
        self._config = config
        self._now_ms = now_ms
        self._version = state.version

    @property
    def is_current(self) -> bool:
        """Whether nothing changed since the plan was made; of a repetition, nothing about it."""
        if self.attempt is not None:
            found = self._state.attempts.find(self.attempt.attempt_id, now_ms=self._state.time_ms)
            return found is self.attempt
        return self._version == self._state.version

    def __iter__(self) -> Iterator[ReceivedRun]:
        """Yield runs of messages with equal receive counts, no more than are wanted."""
        self._ranks = {}
        if self.attempt is not None:
            yield from self._again(self.attempt)
        if self.attempt is not None or self.command.is_repetition:
            return
        left = min(self.command.max_messages, room_in(self._state, self._config))
        if left <= 0 or self._state.order is None:
            return
        taken = 0
        for first, end, rank, status in islice(self._offers(left), RUNS_MAX):
            if self._state.runs.is_exhausted(status):
                continue  # It is a dead letter soon.
            count = min(end - first, left)
            is_last_chance = self._is_last_chance(status)
            if is_last_chance and taken:
                # A poison message must not cost its companions their last delivery. Messages after
                # it cannot be taken either: in a FIFO queue they could be of the same group.
                return
            if is_last_chance:
                count = 1
            self._ranks[first] = rank
            first_received_ms = status.first_received_ms or self._now_ms
            yield ReceivedRun(first, count, status.receive_count + 1, first_received_ms, rank)
            taken += count
            left -= count
            if left == 0 or is_last_chance:
                return

    def rank_at(self, offset: int) -> int:
        """Return the rank of an offered message."""
        rank = self._ranks.get(offset)
        if rank is None:  # It is not the first of its run, because those before it are damaged.
            first = max((first for first in self._ranks if first < offset), default=None)
            rank = 0 if first is None else self._ranks[first]
        return rank

    def _again(self, attempt: Attempt) -> Iterator[ReceivedRun]:
        for first, count in attempt.runs:
            for piece_first, piece_end, status in self._state.runs.pieces(first, first + count):
                yield ReceivedRun(
                    piece_first,
                    piece_end - piece_first,
                    status.receive_count,
                    status.first_received_ms,
                )

    def _offers(self, limit: int) -> Iterator[tuple[int, int, int, MessageStatus]]:
        assert self._state.order is not None
        cursor = self._state.cursor
        for first, end, rank in self._state.order.candidates(limit, self._state.next_lease_id):
            if first < cursor:
                for start, stop, status in self._state.runs.pieces(first, min(end, cursor)):
                    yield start, stop, rank, status
            if end > cursor:
                yield max(first, cursor), end, rank, SKIPPED

    def _is_last_chance(self, status: MessageStatus) -> bool:
        max_deliveries = self._config.max_deliveries
        return (
            max_deliveries is not None
            and max_deliveries > 1
            and status.receive_count == max_deliveries - 1
        )


def room_in(state: QueueState, config: QueueConfig) -> int:
    """Return how many more messages may be in flight; negative after a change of the setting."""
    return config.max_in_flight - state.runs.counts[MessageState.IN_FLIGHT]


def decide(
    state: QueueState, config: QueueConfig, plan: ReceivePlan, *, taken: list[Run], now_ms: int
) -> tuple[list[AnyEntry], GrantedLease]:
    """Return the entries for messages taken from a plan, and their lease."""
    timeout_ms = plan.command.visibility_timeout_ms
    if timeout_ms is None:
        timeout_ms = config.visibility_timeout_ms
    if plan.attempt is not None:
        return _repeated(plan, plan.attempt, now_ms + timeout_ms)
    runs: list[ReceivedRun] = []
    max_deliveries = config.max_deliveries or WITHOUT_LIMIT
    if plan.is_current or not config.is_fifo:
        for first, count in taken:
            rank = plan.rank_at(first)
            found = _still_visible(state, first, first + count, rank=rank, now_ms=now_ms)
            # With an old plan, another receive may have had the last delivery meanwhile.
            runs.extend(run for run in found if run.receive_count <= max_deliveries)
        runs = _cut(runs, room_in(state, config))
        runs.sort(key=lambda run: run.first_offset)
    lease = GrantedLease(state.next_lease_id, runs, _lease_end(state, now_ms, timeout_ms))
    if not runs:
        return [], lease
    offsets = lease.offsets
    holder, attempt_id = plan.command.holder, plan.command.attempt_id if config.is_fifo else None
    received = Received(lease.lease_id, offsets, lease.deadline_ms, holder, attempt_id)
    return [*passed(state, offsets, [received]), received], lease


def _lease_end(state: QueueState, now_ms: int, timeout_ms: int) -> int:
    """Return the end of a lease: a little later if very many others end then."""
    if not timeout_ms:
        return now_ms
    return min(state.runs.free_time(now_ms + timeout_ms), now_ms + VISIBILITY_TIMEOUT_MS_MAX)


def _repeated(
    plan: ReceivePlan, attempt: Attempt, deadline_ms: int
) -> tuple[list[AnyEntry], GrantedLease]:
    """Return the entries of a repeated receive, whose lease starts again."""
    if not plan.is_current:
        return [], GrantedLease(attempt.lease_id, [], deadline_ms)
    deadline_ms = min(deadline_ms, attempt.received_ms + VISIBILITY_TIMEOUT_MS_MAX)
    entry = ReceiveRepeated(attempt.attempt_id, deadline_ms)
    return [entry], GrantedLease(attempt.lease_id, list(plan), deadline_ms)


def joined(runs: list[Run]) -> list[Run]:
    """Return runs in ascending order, joined where they touch."""
    result: list[Run] = []
    for first, count in sorted(runs):
        if result and result[-1][0] + result[-1][1] == first:
            result[-1] = (result[-1][0], result[-1][1] + count)
        else:
            result.append((first, count))
    return result


def _cut(runs: list[ReceivedRun], room: int) -> list[ReceivedRun]:
    kept: list[ReceivedRun] = []
    for run in runs:
        count = min(run.count, room)
        if count <= 0:
            break
        kept.append(run if count == run.count else replace(run, count=count))
        room -= count
    return kept


def _still_visible(
    state: QueueState, first: int, end: int, *, rank: int, now_ms: int
) -> Iterator[ReceivedRun]:
    for piece_first, piece_end, message_state, status in state.pieces(first, end):
        if message_state is MessageState.VISIBLE:
            yield ReceivedRun(
                piece_first,
                piece_end - piece_first,
                status.receive_count + 1,
                status.first_received_ms or now_ms,
                rank,
            )
