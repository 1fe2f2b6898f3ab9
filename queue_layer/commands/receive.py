"""Receive: the choice of messages, and the journal entries of their delivery.

Pure: no clock, no I/O. Two steps: a plan offers messages one run after the other, and the reader of
the records stops when it has enough; then the lease of the taken messages is decided. Nothing
changes before the entries are applied.
"""

from collections.abc import Iterable, Iterator
from itertools import chain
from operator import attrgetter
from typing import Final, final

import msgspec
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
_first_offset: Final = attrgetter("first_offset")


@final
class ReceiveCommand(msgspec.Struct, frozen=True, kw_only=True):
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


class GrantedLease(msgspec.Struct, frozen=True):
    """Lease of delivered messages; empty if there were none."""

    lease_id: int
    runs: list[ReceivedRun]
    """Runs of messages, ascending."""
    offsets: list[Run]
    """First offsets and counts, joined where they touch."""
    deadline_ms: int


def earlier_attempt(
    state: QueueState, config: QueueConfig, command: ReceiveCommand, *, now_ms: int
) -> Attempt | None:
    """Return the receive that a command repeats, `None` without one."""
    if not config.is_fifo or command.attempt_id is None:
        return None
    return state.attempts.find(command.attempt_id, now_ms=now_ms)


@final
class ReceivePlan(msgspec.Struct, frozen=True):
    """Offer of messages, best first.

    To be passed to `receive` with those that are taken, before the queue changes. If it did change
    meanwhile (`is_current`), a standard queue delivers the taken messages that are still visible. A
    FIFO queue delivers none, because other messages may now come first.

    A plan that repeats an attempt offers its messages again, all of which are to be taken.
    """

    state: QueueState
    version: int
    """Version of the state that it was made of."""
    command: ReceiveCommand
    now_ms: int
    attempt: Attempt | None
    """Receive that this one repeats."""
    offers: list[ReceivedRun]
    """Runs of messages with equal receive counts, no more than are wanted."""

    @property
    def is_current(self) -> bool:
        """Whether nothing changed since the plan was made; of a repetition, nothing about it."""
        state = self.state
        if self.attempt is not None:
            found = state.attempts.find(self.attempt.attempt_id, now_ms=state.time_ms)
            return found is self.attempt
        return self.version == state.version

    def __iter__(self) -> Iterator[ReceivedRun]:
        """Yield the offers."""
        return iter(self.offers)

    def rank_at(self, offset: int) -> int:
        """Return the rank of an offered message."""
        # It may be in the middle of its run, because those before it are damaged.
        at_or_before = [run for run in self.offers if run.first_offset <= offset]
        return max(at_or_before, key=_first_offset).rank if at_or_before else 0

    def taken_of(self, taken: list[Run]) -> list[ReceivedRun] | None:
        """Return taken messages as they were offered; `None` if other runs were taken."""
        offers = self.offers
        if len(taken) > len(offers):
            return None
        runs: list[ReceivedRun] = []
        for (first, count), run in zip(taken, offers, strict=False):
            if first != run.first_offset or count > run.count:
                return None
            runs.append(run if count == run.count else replace(run, count=count))
        return runs


def offers_of(
    state: QueueState, config: QueueConfig, max_messages: int, *, now_ms: int
) -> list[ReceivedRun]:
    """Return runs of visible messages to deliver, best first."""
    runs = state.runs
    left = min(max_messages, config.max_in_flight - runs.counts[MessageState.IN_FLIGHT])
    if left <= 0 or state.order is None:
        return []
    offers: list[ReceivedRun] = []
    max_deliveries = runs.max_deliveries
    last_chance = max_deliveries - 1 or WITHOUT_LIMIT
    """Receive count of messages whose next delivery is the last, of several."""
    looked_at = 0
    for first, end, rank in state.order.candidates(left, state.next_lease_id):
        is_fresh = first >= state.cursor
        pieces = ((first, end, SKIPPED),) if is_fresh else _with_status(state, first, end)
        for at, stop, status in pieces:
            looked_at += 1
            if looked_at > RUNS_MAX:
                return offers
            if status.receive_count and runs.is_exhausted(status):
                continue  # It is a dead letter soon.
            count = min(stop - at, left)
            is_last_chance = status.receive_count == last_chance
            if is_last_chance and offers:
                # A poison message must not cost its companions their last delivery. Messages after
                # it cannot be taken either: in a FIFO queue they could be of the same group.
                return offers
            if is_last_chance:
                count = 1
            first_received_ms = status.first_received_ms or now_ms
            offers.append(ReceivedRun(at, count, status.receive_count + 1, first_received_ms, rank))
            left -= count
            if left == 0 or is_last_chance:
                return offers
    return offers


def _with_status(
    state: QueueState, first: int, end: int
) -> Iterable[tuple[int, int, MessageStatus]]:
    """Return candidates that begin below the cursor, with their status."""
    cursor = state.cursor
    if end <= cursor:
        return state.runs.pieces(first, end)
    return chain(state.runs.pieces(first, cursor), ((cursor, end, SKIPPED),))


def again(state: QueueState, attempt: Attempt) -> list[ReceivedRun]:
    """Return the messages of an attempt."""
    return [
        ReceivedRun(at, stop - at, status.receive_count, status.first_received_ms)
        for first, count in attempt.runs
        for at, stop, status in state.runs.pieces(first, first + count)
    ]


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
    is_current = plan.version == state.version and plan.now_ms == now_ms
    runs = plan.taken_of(taken) if is_current else None
    if runs is None:
        runs = _still_offered(state, config, plan, taken=taken, now_ms=now_ms)
    lease_id = state.next_lease_id
    deadline_ms = now_ms + timeout_ms
    if timeout_ms:  # A little later if very many others end then.
        deadline_ms = min(state.runs.free_time(deadline_ms), now_ms + VISIBILITY_TIMEOUT_MS_MAX)
    if not runs:
        return [], GrantedLease(lease_id, [], [], deadline_ms)
    runs.sort(key=_first_offset)
    offsets: list[Run] = []
    for run in runs:
        offsets.append((run.first_offset, run.count))  # noqa: PERF401  (a call less)
    if len(offsets) > 1:
        offsets = joined(offsets)
    holder, attempt_id = plan.command.holder, plan.command.attempt_id if config.is_fifo else None
    entries: list[AnyEntry] = [Received(lease_id, offsets, deadline_ms, holder, attempt_id)]
    if not state.unreceived.is_plain:
        entries = [*passed(state, offsets, entries), *entries]
    return entries, GrantedLease(lease_id, runs, offsets, deadline_ms)


def _still_offered(
    state: QueueState, config: QueueConfig, plan: ReceivePlan, *, taken: list[Run], now_ms: int
) -> list[ReceivedRun]:
    """Return taken messages that may be delivered although the queue or the time has changed."""
    runs: list[ReceivedRun] = []
    if config.is_fifo and not plan.is_current:
        return runs
    max_deliveries = config.max_deliveries or WITHOUT_LIMIT
    for first, count in taken:
        rank = plan.rank_at(first)
        found = _still_visible(state, first, first + count, rank=rank, now_ms=now_ms)
        # With an old plan, another receive may have had the last delivery meanwhile.
        runs.extend(run for run in found if run.receive_count <= max_deliveries)
    return _cut(runs, room_in(state, config))


def _repeated(
    plan: ReceivePlan, attempt: Attempt, deadline_ms: int
) -> tuple[list[AnyEntry], GrantedLease]:
    """Return the entries of a repeated receive, whose lease starts again."""
    if not plan.is_current:
        return [], GrantedLease(attempt.lease_id, [], [], deadline_ms)
    deadline_ms = min(deadline_ms, attempt.received_ms + VISIBILITY_TIMEOUT_MS_MAX)
    entry = ReceiveRepeated(attempt.attempt_id, deadline_ms)
    offsets = joined([(run.first_offset, run.count) for run in plan.offers])
    return [entry], GrantedLease(attempt.lease_id, plan.offers, offsets, deadline_ms)


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
