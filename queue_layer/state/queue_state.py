"""State of one partition of a queue, determined by the entries of its journal.

Pure: no clock, no I/O. Only `apply` changes decided state. State that depends on the time (whether
a lease has ended) and on the log (the number of unreceived messages) is derived, and does not
change the meaning of an entry: every broker that applies the same entries has the same state.
Kafka's counterpart is `SharePartition`. `state.message_state` explains the states of a message.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Final, NamedTuple, final

from msgspec.structs import replace as replace_field

from tidelog.queue_layer.ordering.delivery_order import DeliveryOrder, MakeOrder, RecordFields
from tidelog.queue_layer.state.message_runs import WITHOUT_LIMIT, MessageRuns, Piece
from tidelog.queue_layer.state.message_state import (
    SKIPPED,
    TRANSITIONS,
    MessageStatus,
    SnapshotState,
)
from tidelog.queue_layer.state.pending_dead_letters import (
    DeadLetterBatch,
    DeadLetters,
    PendingDeadLetters,
)
from tidelog.queue_layer.state.receive_attempts import ReceiveAttempts
from tidelog.queue_layer.state.redrive_state import Redrive, Redrives
from tidelog.queue_layer.state.snapshots import SNAPSHOT_PARTS, SnapshotReader, snapshot_entries
from tidelog.queue_layer.state.unreceived import UnreceivedRecords, chunks_in, delays_in
from tidelog.wire.messages.queue_journal import (
    AnyEntry,
    Attempt,
    BackgroundWork,
    DeadLettered,
    Delayed,
    Deleted,
    Expired,
    Extended,
    JournalFrame,
    LogStartAdvanced,
    Moved,
    MoveFailed,
    Purged,
    Received,
    ReceiveRepeated,
    RedriveEnded,
    Redriven,
    RedriveProgressed,
    RedriveStarted,
    Released,
    Returned,
    Seeked,
    SnapshotEnded,
    SnapshotMoreAttempts,
    SnapshotMoreMoves,
    SnapshotRuns,
    SnapshotStarted,
    Target,
    TargetChanged,
)
from tidelog.wire.messages.queues import MessageState, Run
from tidelog.wire.messages.redrives import RedriveStatus

TIMERS_PER_STEP: Final = 2_000
"""Leases or delays that end in one `advance_in_part`, or those of its last millisecond if more."""
_EPOCH_BITS: Final = 40
"""Bits of a lease id below the leader epoch: at 10,000 leases a second they last three years."""

StatefulPiece = tuple[int, int, MessageState, MessageStatus]
"""First offset, end, and the state and status of all messages in between."""
Change = Callable[[MessageStatus], MessageStatus]
"""Returns the new status of messages."""


class StateCounts(NamedTuple):
    """How many messages of a partition are in each state."""

    visible: int
    in_flight: int
    delayed: int
    dead: int


@final
class QueueState:
    """State from a journal, and the state derived from it now.

    Invariant: every message below `cursor` is in `runs`, or deleted. Every message from it on is
    unreceived and in no run. Records that are no messages count as deleted.

    No two leases have the same id, even if the journal lost one of them (with `receive_acks`
    `leader`, a receive does not wait until it is committed): each leader epoch has its own ids, and
    they grow with it.
    """

    def __init__(self, make_order: MakeOrder, *, max_deliveries: int = WITHOUT_LIMIT) -> None:
        """Start empty; messages received `max_deliveries` times become `exhausted`."""
        self.cursor = 0
        """First offset that was neither received nor skipped."""
        self.applied_lease_end = 1
        """End of the lease ids in the journal; `next_lease_id` is the one to use."""
        self.next_lease_id = 1
        """Id of the next lease: above all ids that were used, also by lost leases."""
        self.void_below_lease_id = 1
        """Receipts of older leases are void, after a seek."""
        self.purged_below = 0
        """End of the last purge: messages below it have no duplicates."""
        self.runs = MessageRuns(max_deliveries=max_deliveries)
        self.exhausted: list[Run] = []
        """Messages that became visible after their last delivery, and are to be dead letters; some
        of them may have changed since. Empty until `start`."""
        self.moves = PendingDeadLetters()
        self.attempts = ReceiveAttempts()
        self.redrives = Redrives()
        self.unreceived = UnreceivedRecords(0, 0)
        self.ended_leases = 0
        """Messages whose lease has ended by time alone since `take_ended_leases`; to be read only.
        """
        self.version = 0
        """Grows with each change of known messages, by entries or by time."""
        self.order: DeliveryOrder | None = None
        """`None` until `start`."""
        self._make_order = make_order
        self._snapshot: SnapshotReader | None = None

    # -- current state --------------------------------------------------------------------------

    @property
    def time_ms(self) -> int:
        """Time of the queue: the largest so far."""
        return self.runs.time_ms

    @property
    def low_water_mark(self) -> int:
        """Offset below which all messages are deleted; never decreases, except by a seek."""
        first = self.runs.first
        return self.cursor if first is None else min(first, self.cursor)

    @property
    def first_message(self) -> int | None:
        """Offset of the first message that is not deleted, if it is known."""
        first = self.runs.first
        if first is None:
            unreceived = self.unreceived.messages(self.cursor, self.unreceived.end)
            first, _ = next(unreceived, (None, None))
        return first

    @property
    def oldest_offset(self) -> int:
        """Offset below which no message is known: the low-water mark, or the end of chunks there.

        Chunks of a large message that was sent are right before it; others are of a failed send.
        """
        first = self.first_message
        return max(self.cursor, self.unreceived.end) if first is None else first

    @property
    def records_from(self) -> int:
        """Offset at which the next `on_records` begins.

        `start` and `on_records` change it, and so do a seek and the removal of messages: after
        these, records are reported from here, even if they were reported before.
        """
        return self.unreceived.end

    @property
    def is_ready(self) -> bool:
        """Whether it knows enough records to take commands.

        Messages of a FIFO queue may be received and settled before: it delivers those that it
        knows, in order. To be purged, counted or browsed it has to know all.
        """
        return self.order is not None and self.unreceived.end >= self.cursor

    @property
    def next_deadline_ms(self) -> int | None:
        """Time at which the next messages become visible by themselves, in Unix milliseconds."""
        times = (self.runs.next_deadline_ms(), self.unreceived.next_deadline_ms())
        return min((time for time in times if time is not None), default=None)

    @property
    def background_work(self) -> BackgroundWork:
        """Work of the queue that needs no request."""
        redrive = self.redrive
        if redrive is None and not self.runs.exhausted_count and not self.moves.chains:
            return BackgroundWork.NOTHING
        if redrive is not None and redrive.status is RedriveStatus.RUNNING:
            return BackgroundWork.MOVES
        if self.runs.exhausted_count:
            return max(BackgroundWork.LAST_DELIVERIES, self.moves.background_work)
        return self.moves.background_work

    @property
    def redrive(self) -> Redrive | None:
        """Redrive that runs, or the last one that ran."""
        return self.redrives.latest

    @property
    def visible_count(self) -> int:
        """Number of visible messages; see `counts`."""
        unreceived = self.unreceived
        waiting = max(0, unreceived.end - self.cursor) - unreceived.chunk_count
        return self.runs.counts[MessageState.VISIBLE] + waiting - unreceived.delayed_count

    def counts(self) -> StateCounts:
        """Return how many messages are in each state: exact, at no cost.

        As of the last `advance`; visible ones of a FIFO queue may be blocked.
        """
        unreceived = self.unreceived
        counts = self.runs.counts
        return StateCounts(
            self.visible_count,
            counts[MessageState.IN_FLIGHT],
            counts[MessageState.DELAYED] + unreceived.delayed_count,
            counts[MessageState.DEAD],
        )

    def take_ended_leases(self) -> int:
        """Return the messages whose lease has ended by time alone since the last call."""
        ended, self.ended_leases = self.ended_leases, 0
        return ended

    def pieces(self, first: int, end: int) -> Iterator[StatefulPiece]:
        """Yield the messages in a range of offsets, in order; no changes meanwhile."""
        for piece_first, piece_end, status in self.runs.pieces(first, min(end, self.cursor)):
            yield piece_first, piece_end, self.runs.state(status), status
        first, end = max(first, self.cursor), min(end, self.unreceived.end)
        if first >= end:
            return
        for at, stop in self.unreceived.messages(first, end):
            visible_from = at
            for piece_first, piece_end, deliver_at_ms in self.unreceived.delayed(at, stop):
                if visible_from < piece_first:
                    yield visible_from, piece_first, MessageState.VISIBLE, SKIPPED
                delayed = MessageStatus(visible_at_ms=deliver_at_ms)
                yield piece_first, piece_end, MessageState.DELAYED, delayed
                visible_from = piece_end
            if visible_from < stop:
                yield visible_from, stop, MessageState.VISIBLE, SKIPPED

    def count_below(self, end: int) -> int:
        """Return the number of messages below an offset."""
        below = self.runs.pieces(self.low_water_mark, min(end, self.cursor))
        unreceived = self.unreceived.messages(self.cursor, min(end, self.unreceived.end))
        return sum(stop - at for at, stop, _ in below) + sum(stop - at for at, stop in unreceived)

    def dead_letters(self, batch: DeadLetterBatch) -> list[DeadLetters]:
        """Return the fields for the headers of dead letters, in the order of the batch."""
        return [
            DeadLetters(
                at,
                stop - at,
                status.receive_count,
                status.first_received_ms,
                status.last_received_ms,
                status.reason,
            )
            for first, count in batch.runs
            for at, stop, status in self.runs.pieces(first, first + count)
        ]

    def snapshot(self) -> list[JournalFrame]:
        """Return the state as frames, of the time of the last `advance`."""
        entries = snapshot_entries(
            SnapshotStarted(
                self.cursor,
                self.applied_lease_end,
                self.void_below_lease_id,
                self.moves.snapshot(),
                None if self.redrive is None else self.redrive.snapshot(),
                list(self.attempts),
                self.purged_below,
                [each.snapshot() for each in self.redrives.earlier],
            ),
            self.runs,
            now_ms=self.time_ms,
        )
        return [JournalFrame(self.time_ms, [entry], self.background_work) for entry in entries]

    # -- changes without entries: time, and records ---------------------------------------------

    def advance(self, now_ms: int) -> int:
        """Let time pass to `now_ms`; return the new time, which never decreases."""
        runs, unreceived = self.runs, self.unreceived
        if now_ms <= runs.time_ms:
            return runs.time_ms
        leases, delays = runs.timers.heap, unreceived.timers.heap
        if not (leases and leases[0][0] <= now_ms) and not (delays and delays[0][0] <= now_ms):
            runs.time_ms = unreceived.time_ms = now_ms
            return now_ms
        for first, end, deliver_at_ms in self.unreceived.pop_due(now_ms):
            self._tell_visible(first, end, deliver_at_ms)
        for first, end, status in self.runs.advance(now_ms):
            if status.stored is SnapshotState.IN_FLIGHT:
                self.ended_leases += end - first
            self._tell_visible(first, end, status.visible_at_ms)
            self._note_exhausted(first, end, status)
        return self.runs.time_ms

    @property
    def has_many_timers(self) -> bool:
        """Whether so many leases or delays may end at once that time passes in parts."""
        count = max(len(self.runs.timers.heap), len(self.unreceived.timers.heap))
        return count >= TIMERS_PER_STEP

    def advance_in_part(self, now_ms: int) -> bool:
        """Let time pass by some thousand leases or delays; return whether it is `now_ms`.

        To be repeated after other commands; any command lets the rest of the time pass first.
        Messages become visible in the order of their times, and each part ends at a time: so the
        order of delivery is the same as if time passed at once.
        """
        if now_ms <= self.runs.time_ms:
            return True
        if not self.has_many_timers:
            self.advance(now_ms)
            return True
        until_ms = min(
            self.runs.time_of(TIMERS_PER_STEP, now_ms),
            self.unreceived.time_of(TIMERS_PER_STEP, now_ms),
        )
        self.advance(until_ms)
        return until_ms >= now_ms

    def set_leader_epoch(self, leader_epoch: int) -> None:
        """Use lease ids that no other leader epoch uses."""
        self.next_lease_id = max(self.next_lease_id, leader_epoch << _EPOCH_BITS)

    def start(self) -> None:
        """Begin to deliver messages; the order follows all changes from now on."""
        start = self.cursor
        order = self._make_order(start)
        if order.needs_all_records:
            start = self.low_water_mark
            order = self._make_order(start)
        self.order = order
        self.unreceived = UnreceivedRecords(start, self.time_ms)
        self.exhausted.clear()
        if self.runs.exhausted_count:
            for first, end, status in self.runs:
                if self.runs.state(status) is MessageState.VISIBLE:
                    self._note_exhausted(first, end, status)
        if order.needs_all_records:
            return
        for first, end, status in self.runs:
            if self.runs.state(status) is MessageState.VISIBLE:
                order.on_visible(first, end, status.visible_at_ms)

    def on_records(
        self,
        first: int,
        end: int,
        fields: Sequence[RecordFields] | None = None,
        *,
        deliver_at_ms: int = 0,
    ) -> None:
        """Add committed records `[first, end)`; they never become uncommitted.

        Args:
            first: Equal to `records_from`.
            end: Exclusive end.
            fields: One for each record, `None` if none has fields; then a stretch of any length
                costs the same.
            deliver_at_ms: For all of them, if `fields` is `None`: 0, or a time in Unix
                milliseconds before which they are not delivered.
        """
        assert self.order is not None, "there are records before the queue was started"
        expected = self.unreceived.end
        assert first == expected < end, f"there are records from {first}, not {expected}"
        assert fields is None or len(fields) == end - first
        self.unreceived.on_records(end)
        self.order.on_records(first, end, fields)
        if first < self.cursor:
            self._tell_past(first, min(end, self.cursor))
        if fields is None and not deliver_at_ms:
            return
        unreceived_from = max(first, self.cursor)
        for chunks_first, chunks_end in chunks_in(first, end, fields):
            self._skip_chunks(max(chunks_first, unreceived_from), chunks_end)
        for delay_first, delay_end, time_ms in delays_in(
            first, end, fields, deliver_at_ms=deliver_at_ms
        ):
            start = max(delay_first, unreceived_from)
            if start >= delay_end:
                continue
            self.unreceived.delay(start, delay_end, time_ms)
            if time_ms > self.time_ms:
                self.order.on_invisible(start, delay_end, is_in_flight=False)

    def on_chunks(self, first: int, end: int) -> None:
        """Add committed records `[first, end)` that are chunks of large messages.

        Same as `on_records` with such fields, at the same cost for a stretch of any length.
        """
        self.on_records(first, end, None, deliver_at_ms=0)
        self._skip_chunks(max(first, self.cursor), end)

    def _skip_chunks(self, first: int, end: int) -> None:
        assert self.order is not None
        if first < end:
            self.unreceived.skip_chunks(first, end)
            self.order.on_deleted(first, end)

    def _tell_past(self, first: int, end: int) -> None:
        """Report the states of older messages to a new order."""
        assert self.order is not None
        at = first
        for piece_first, piece_end, status in self.runs.pieces(first, end):
            if at < piece_first:
                self.order.on_deleted(at, piece_first)
            at = piece_end
            state = self.runs.state(status)
            if state is MessageState.DEAD:
                self.order.on_dead_lettered(piece_first, piece_end)
            elif state is not MessageState.VISIBLE:
                is_in_flight = state is MessageState.IN_FLIGHT
                self.order.on_invisible(piece_first, piece_end, is_in_flight=is_in_flight)
        if at < end:
            self.order.on_deleted(at, end)

    def quarantine(self, first: int, end: int) -> None:
        """Do not deliver messages of a range for now: this replica cannot read their records.

        The quarantine is not in the journal, and changes no state of a message.
        """
        if self.order is not None:
            for piece_first, piece_end, _ in self._visible(first, end):
                self.order.on_invisible(piece_first, piece_end, is_in_flight=False)

    def end_quarantine(self, first: int, end: int) -> None:
        """Deliver messages of a range again."""
        if self.order is not None:
            for piece_first, piece_end, since_ms in self._visible(first, end):
                # Messages that became visible only during the quarantine are offered already.
                self.order.on_invisible(piece_first, piece_end, is_in_flight=False)
                self.order.on_visible(piece_first, piece_end, since_ms)

    def _visible(self, first: int, end: int) -> Iterator[tuple[int, int, int]]:
        """Yield the visible messages of a range, and since when they are visible."""
        for piece_first, piece_end, state, status in self.pieces(first, end):
            if state is MessageState.VISIBLE:
                yield piece_first, piece_end, status.visible_at_ms

    # -- changes by entries ---------------------------------------------------------------------

    def apply(self, frame: JournalFrame) -> None:
        """Apply the entries of one frame; each frame once, in order."""
        now_ms = frame.now_ms
        if now_ms > self.runs.time_ms:
            self.advance(now_ms)
        self.version += 1
        for entry in frame.entries:
            if self._snapshot is not None and not isinstance(entry, SNAPSHOT_PARTS):
                # A snapshot without its end does not count: its writer failed meanwhile.
                self._snapshot = None
            match entry:
                case Received():
                    self._received(entry, now_ms)
                case Deleted() | Expired():
                    self._done(entry.runs)
                case _:
                    self._apply_rare(entry, now_ms)

    def _apply_rare(self, entry: AnyEntry, now_ms: int) -> None:  # noqa: C901, PLR0912 (one branch each)
        match entry:
            case ReceiveRepeated():
                self._receive_repeated(entry, now_ms)
            case Extended():
                self._extended(entry)
            case Released():
                self._released(entry)
            case Returned():
                self._returned(entry)
            case Delayed():
                self._delayed(entry)
            case DeadLettered():
                self._dead_lettered(entry)
            case Moved():
                self._moved(entry)
            case MoveFailed():
                self._move_failed(entry, now_ms)
            case TargetChanged():
                self.moves.retarget(_target(entry.source), _target(entry.target))
            case LogStartAdvanced() | Purged():
                self._removed(entry)
            case Seeked():
                self._seeked(entry)
            case RedriveStarted():
                self._redrive_started(entry, now_ms)
            case Redriven():
                self._redriven(entry)
            case RedriveProgressed() | RedriveEnded():
                self._redrive_went_on(entry, now_ms)
            case SnapshotStarted():
                self._snapshot = SnapshotReader(entry, now_ms)
            case SnapshotRuns() | SnapshotMoreMoves() | SnapshotMoreAttempts():
                if self._snapshot is not None:
                    self._snapshot.add(entry)
            case SnapshotEnded():
                self._snapshot_ended(entry)
            case Received() | Deleted() | Expired():
                raise AssertionError("`apply` has these cases")

    def _seeked(self, entry: Seeked) -> None:
        self.runs.clear()
        self.attempts.clear()
        self.moves.drop(0, self.cursor)
        self.cursor = entry.offset
        self.void_below_lease_id = max(self.applied_lease_end, entry.void_below_lease_id)
        if self.order is not None:
            self.order = self._make_order(entry.offset)
            self.unreceived = UnreceivedRecords(entry.offset, self.time_ms)

    def _received(self, entry: Received, now_ms: int) -> None:
        assert entry.lease_id >= self.applied_lease_end
        self.applied_lease_end = entry.lease_id + 1
        if entry.lease_id >= self.next_lease_id:
            self.next_lease_id = entry.lease_id + 1
        for first, count in entry.runs:
            for at, end, old in self._take(first, first + count):
                new = MessageStatus(
                    SnapshotState.IN_FLIGHT,
                    entry.visible_at_ms,
                    old.receive_count + 1,
                    old.first_received_ms or now_ms,
                    now_ms,
                    entry.lease_id,
                    entry.holder,
                    old.reason,
                )
                self._replace(at, end, old, new=new)
        if entry.attempt_id is not None:
            runs = tuple(entry.runs)
            attempt = Attempt(entry.attempt_id, entry.lease_id, runs, now_ms, entry.visible_at_ms)
            self.attempts.received(attempt)

    def _receive_repeated(self, entry: ReceiveRepeated, now_ms: int) -> None:
        attempt = self.attempts.find(entry.attempt_id, now_ms=now_ms)
        assert attempt is not None, "messages of a repeated receive have changed"

        def extend(status: MessageStatus) -> MessageStatus:
            return status.changed(SnapshotState.IN_FLIGHT, entry.visible_at_ms)

        self._change_all(list(attempt.runs), extend)
        self.attempts.received(replace_field(attempt, deadline_ms=entry.visible_at_ms))

    def _delayed(self, entry: Delayed) -> None:
        for first, count, visible_at_ms in entry.runs:
            self._skip_to(first)
            self._skip(first, first + count, MessageStatus(visible_at_ms=visible_at_ms))

    def _extended(self, entry: Extended) -> None:
        def extend(status: MessageStatus) -> MessageStatus:
            return status.changed(SnapshotState.IN_FLIGHT, entry.visible_at_ms)

        self._change_all(entry.runs, extend)

    def _released(self, entry: Released) -> None:
        def release(status: MessageStatus) -> MessageStatus:
            reason = entry.reason or status.reason
            return status.changed(SnapshotState.AVAILABLE, entry.visible_at_ms, reason=reason)

        self._change_all(entry.runs, release)

    def _returned(self, entry: Returned) -> None:
        def give_back(status: MessageStatus) -> MessageStatus:
            count = max(0, status.receive_count - 1)
            return MessageStatus(
                SnapshotState.AVAILABLE,
                entry.visible_at_ms,
                count,
                status.first_received_ms if count else 0,
                status.last_received_ms if count else 0,
                status.lease_id,
                status.holder,
                status.reason,
            )

        self._change_all(entry.runs, give_back)

    def _dead_lettered(self, entry: DeadLettered) -> None:
        self._take_out(entry.runs, entry.reason)
        self.moves.add(_target(entry.target), entry.runs)

    def _redriven(self, entry: Redriven) -> None:
        redrive = self.redrive
        assert redrive is not None, "messages were redriven without a redrive"
        self._take_out(entry.runs, "")
        self.moves.add(_target(entry.target), entry.runs, redrive=redrive.number)
        taken = redrive.taken + sum(count for _, count in entry.runs)
        self.redrives.change(redrive.number, lambda each: replace(each, taken=taken))

    def _take_out(self, runs: list[Run], reason: str) -> None:
        def die(status: MessageStatus) -> MessageStatus:
            return status.changed(SnapshotState.DEAD, 0, reason=reason or status.reason)

        self._change_all(runs, die)

    def _moved(self, entry: Moved) -> None:
        target = _target(entry.target)
        batch = self.moves.next_if(target, entry.epoch, entry.sequence, count=entry.count)
        if batch is not None:
            self._done(self.moves.pop(target, entry.count))
            self.redrives.change(
                batch.redrive, lambda each: replace(each, moved=each.moved + entry.count)
            )

    def _move_failed(self, entry: MoveFailed, now_ms: int) -> None:
        target = _target(entry.target)

        def revive(status: MessageStatus) -> MessageStatus:
            visible_at_ms = entry.visible_at_ms or now_ms
            return status.changed(
                SnapshotState.AVAILABLE, visible_at_ms, reason=entry.reason or status.reason
            )

        batch = self.moves.next_if(target, entry.epoch, entry.sequence, count=entry.count)
        if batch is not None:
            self._change_all(self.moves.give_up(target, entry.count), revive)
            self.redrives.change(
                batch.redrive, lambda each: replace(each, failed=each.failed + entry.count)
            )

    def _removed(self, entry: LogStartAdvanced | Purged) -> None:
        if isinstance(entry, LogStartAdvanced):
            self._remove_below(entry.offset)
        else:
            self.purged_below = max(entry.end, self.purged_below)
            self._remove_below(entry.end)

    def _remove_below(self, end: int) -> None:
        start = self.low_water_mark
        if end <= start:
            return
        self.runs.cut(start, end)
        self.attempts.clear()
        self.moves.drop(start, end)
        self.unreceived.remove(start, end)
        self.cursor = max(self.cursor, end)
        if self.order is None:
            return
        if end >= self.unreceived.end:
            # All known messages are gone: a new order does not need to learn of each one.
            self.start()
        else:
            self.order.on_deleted(start, end)

    def _redrive_started(self, entry: RedriveStarted, now_ms: int) -> None:
        self.redrives.start(
            Redrive(
                end=entry.end,
                next_offset=self.low_water_mark,
                to_move=entry.to_move,
                started_ms=now_ms,
                number=1 if self.redrive is None else self.redrive.number + 1,
                destination=entry.destination,
                messages_per_s=entry.messages_per_s,
                origin_queue=entry.origin_queue,
                redrive_id=entry.redrive_id,
                note=entry.note,
                only_sources=entry.only_sources,
            )
        )

    def _redrive_went_on(self, entry: RedriveProgressed | RedriveEnded, now_ms: int) -> None:
        redrive = self.redrive
        if redrive is None:
            return
        if isinstance(entry, RedriveProgressed):
            changed = replace(
                redrive,
                next_offset=entry.next_offset,
                skipped=redrive.skipped + entry.skipped,
                reason=redrive.reason or entry.reason,
            )
        else:
            status = RedriveStatus(entry.status)
            changed = replace(redrive, status=status, reason=entry.reason, ended_ms=now_ms)
        self.redrives.change(redrive.number, lambda _: changed)

    def _snapshot_ended(self, entry: SnapshotEnded) -> None:
        if self._snapshot is None or not self._snapshot.is_complete(entry):
            return
        reader, self._snapshot = self._snapshot, None
        if self.order is not None:
            # The writer of a snapshot has this state already, and the order knows it.
            return
        self.cursor = reader.started.cursor
        self.applied_lease_end = reader.started.next_lease_id
        self.next_lease_id = max(self.next_lease_id, self.applied_lease_end)
        self.void_below_lease_id = reader.started.void_below_lease_id
        self.purged_below = reader.started.purged_below
        self.moves = PendingDeadLetters(reader.moves)
        self.redrives = reader.redrives()
        self.attempts.clear()
        for attempt in reader.attempts:
            self.attempts.received(attempt)
        self.runs.fill(reader.runs)

    # -- changes of messages --------------------------------------------------------------------

    def _skip_to(self, end: int) -> None:
        """Skip all unreceived messages below an offset."""
        if self.cursor < end:
            self._skip(self.cursor, end, SKIPPED)

    def _skip(self, first: int, end: int, status: MessageStatus) -> None:
        self.runs.put(first, end, status)
        self.unreceived.remove(first, end)
        self.cursor = end

    def _change_all(self, runs: list[Run], change: Change) -> None:
        for first, count in runs:
            for at, end, old in self._take(first, first + count):
                self._replace(at, end, old, new=change(old))

    def _done(self, runs: list[Run]) -> None:
        """Remove messages."""
        for first, count in runs:
            for at, end, old in self._take(first, first + count):
                if old.lease_id in self.attempts.id_of_lease:
                    self.attempts.on_lease_changed(old.lease_id)
                if self.order is not None:
                    stop = min(end, self.unreceived.end)
                    if at < stop:
                        self.order.on_deleted(at, stop)

    def _take(self, first: int, end: int) -> list[Piece]:
        """Take messages out, each of which is in a run or unreceived; the cursor passes them."""
        cursor = self.cursor
        if end <= cursor:
            return self.runs.cut(first, end)
        pieces = self.runs.cut(first, cursor) if first < cursor else []
        if cursor < first:
            self._skip_to(first)
        at = max(first, cursor)
        if not self.unreceived.is_plain:
            self.unreceived.remove(at, end)
        self.cursor = end
        pieces.append((at, end, SKIPPED))
        return pieces

    def _replace(self, first: int, end: int, old: MessageStatus, *, new: MessageStatus) -> None:
        if old.lease_id in self.attempts.id_of_lease:
            self.attempts.on_lease_changed(old.lease_id)
        before = MessageState.VISIBLE if old is SKIPPED else self.runs.state(old)
        state = self.runs.put(first, end, new)
        assert (before, state) in TRANSITIONS, f"{before.name} -> {state.name} is no transition"
        if state is MessageState.VISIBLE:
            self._note_exhausted(first, end, new)
        order, stop = self.order, min(end, self.unreceived.end)
        if order is None or first >= stop:
            return
        if state is MessageState.DEAD:
            order.on_dead_lettered(first, stop)
        elif state is not MessageState.VISIBLE:
            if before is MessageState.DEAD:
                order.on_visible(first, stop, new.visible_at_ms)
            order.on_invisible(first, stop, is_in_flight=state is MessageState.IN_FLIGHT)
        else:
            if before is MessageState.VISIBLE:
                order.on_invisible(first, stop, is_in_flight=True)
            order.on_visible(first, stop, new.visible_at_ms)

    def _note_exhausted(self, first: int, end: int, status: MessageStatus) -> None:
        """Remember messages that became visible and have had all their deliveries."""
        if self.order is not None and self.runs.is_exhausted(status):
            self.exhausted.append((first, end - first))

    def _tell_visible(self, first: int, end: int, since_ms: int) -> None:
        self.version += 1
        stop = min(end, self.unreceived.end)
        if self.order is not None and first < stop:
            self.order.on_visible(first, stop, since_ms)


def _target(pair: Target) -> Target:
    # Decoding gives a tuple; a list would be no key.
    return (pair[0], pair[1])
