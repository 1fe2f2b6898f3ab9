"""The state of one partition of a queue: what the entries of its journal come to.

Pure: no clock, no I/O. `apply` is the only thing that changes what is decided. What depends on the
time (whether a lease has ended) and on the log (how many fresh messages there are) is derived,
and no entry means anything else because of it: a fold of the same entries is the same everywhere.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, final

from msgspec.structs import replace as replace_field

from tidelog.queue_layer.ordering.delivery_order import DeliveryOrder, MakeOrder, RecordFields
from tidelog.queue_layer.state.message_runs import MessageRuns
from tidelog.queue_layer.state.message_status import SKIPPED, Kind, MessageStatus
from tidelog.queue_layer.state.pending_dead_letters import PendingMoves
from tidelog.queue_layer.state.receive_attempts import ReceiveAttempts
from tidelog.queue_layer.state.redrive_state import Redrive
from tidelog.queue_layer.state.snapshots import SNAPSHOT_PARTS, SnapshotReader
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
    Frame,
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

_EPOCH_BITS: Final = 40
"""Ids of leases below those of one leader epoch: at 10,000 a second they last for three years."""

Change = Callable[[MessageStatus], MessageStatus | None]
"""What becomes of messages; `None`: they are done."""


@final
class QueueState:
    """What a journal says, and what follows from it now.

    Invariant: every message below `cursor` is in `runs`, or done. Every message from it on is
    fresh: nobody received it, and it is in no run. Records that are no messages are as if done.

    No lease has the id of another one, of which nobody may know any more (with
    `receive_acks` `leader`, a receive does not wait until it is committed): each leader epoch has
    ids of its own, and they grow with it.
    """

    def __init__(self, make_order: MakeOrder) -> None:
        self.cursor = 0
        self.next_lease_id = 1
        """As far as the journal says; `free_lease_id` is what may be given."""
        self.void_below_lease_id = 1
        """Receipts of older leases are void: a seek came after them."""
        self.purged_below = 0
        """End of the last purge: no message below it counts as sent, though it is in the log."""
        self.runs = MessageRuns()
        self.moves = PendingMoves()
        self.attempts = ReceiveAttempts()
        self.redrive: Redrive | None = None
        self.fresh = UnreceivedRecords(0, 0)
        self.version = 0
        """Grows whenever something happens to messages that have come."""
        self.order: DeliveryOrder | None = None
        """`None` until the queue is served here."""
        self._make_order = make_order
        self._snapshot: SnapshotReader | None = None
        self._lease_ids_from = 1

    @property
    def free_lease_id(self) -> int:
        """The id of the next lease here: nobody gave it or a higher one, lost or not."""
        return max(self.next_lease_id, self._lease_ids_from)

    def lead(self, leader_epoch: int) -> None:
        """Give ids of leases that no other leader epoch gives."""
        self._lease_ids_from = max(1, leader_epoch << _EPOCH_BITS)

    @property
    def low_water_mark(self) -> int:
        """Below it all is done; never decreases, except by a seek."""
        first = self.runs.first
        return self.cursor if first is None else min(first, self.cursor)

    @property
    def time_ms(self) -> int:
        """The time here: the largest one that was seen."""
        return self.runs.time_ms

    @property
    def background_work(self) -> BackgroundWork:
        """What is to be done though nobody asks for it."""
        redrive = self.redrive
        if redrive is not None and redrive.status is RedriveStatus.RUNNING:
            return BackgroundWork.MOVES
        return self.moves.background_work

    # -- what is not decided here: time, and records --------------------------------------------

    def advance(self, now_ms: int) -> int:
        """Let time pass to `now_ms`; return the time then, which is never less than before."""
        for first, end, deliver_at_ms in self.fresh.pop_due(now_ms):
            self._tell_visible(first, end, deliver_at_ms)
        for first, end, status in self.runs.advance(now_ms):
            self._tell_visible(first, end, status.visible_at_ms)
        return self.runs.time_ms

    def serve(self) -> None:
        """Begin to choose messages; from now on the order knows what changes."""
        start = self.cursor
        order = self._make_order(start)
        if order.needs_all_records:
            start = self.low_water_mark
            order = self._make_order(start)
        self.order = order
        self.fresh = UnreceivedRecords(start, self.time_ms)
        if order.needs_all_records:
            return
        for first, end, status in self.runs:
            if self.runs.state(status) is MessageState.VISIBLE:
                order.on_visible(first, end, status.visible_at_ms)

    def on_records(
        self, first: int, end: int, fields: Sequence[RecordFields] | None, *, deliver_at_ms: int
    ) -> None:
        """Take note of committed records; see `QueuePartition.on_records`."""
        assert self.order is not None, "records came before the queue was served"
        assert first == self.fresh.end < end, f"records came from {first}, not {self.fresh.end}"
        assert fields is None or len(fields) == end - first
        self.fresh.on_records(end)
        self.order.on_records(first, end, fields)
        self._tell_past(first, min(end, self.cursor))
        fresh_from = max(first, self.cursor)
        for chunks_first, chunks_end in chunks_in(first, end, fields):
            self._pass_over_chunks(max(chunks_first, fresh_from), chunks_end)
        for delay_first, delay_end, time_ms in delays_in(
            first, end, fields, deliver_at_ms=deliver_at_ms
        ):
            start = max(delay_first, fresh_from)
            if start >= delay_end:
                continue
            self.fresh.delay(start, delay_end, time_ms)
            if time_ms > self.time_ms:
                self.order.on_invisible(start, delay_end, is_leased=False)

    def on_chunks(self, first: int, end: int) -> None:
        """Take note of committed records that are no messages; see `QueuePartition.on_chunks`."""
        self.on_records(first, end, None, deliver_at_ms=0)
        self._pass_over_chunks(max(first, self.cursor), end)

    def _pass_over_chunks(self, first: int, end: int) -> None:
        assert self.order is not None
        if first < end:
            self.fresh.pass_over_chunks(first, end)
            self.order.on_deleted(first, end)

    def _tell_past(self, first: int, end: int) -> None:
        """Tell the order what has become of records that came before it was there."""
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
                is_leased = state is MessageState.LEASED
                self.order.on_invisible(piece_first, piece_end, is_leased=is_leased)
        if at < end:
            self.order.on_deleted(at, end)

    # -- what is decided ------------------------------------------------------------------------

    def apply(self, frame: Frame) -> None:
        """Take over the entries of one frame, which came after all others."""
        self.advance(frame.now_ms)
        self.version += 1
        for entry in frame.entries:
            if not isinstance(entry, SNAPSHOT_PARTS):
                # A snapshot that was not ended is none: its writer went away meanwhile.
                self._snapshot = None
            self._apply(entry, frame.now_ms)

    def _apply(self, entry: AnyEntry, now_ms: int) -> None:  # noqa: C901, PLR0912 (one branch each)
        match entry:
            case Received():
                self._received(entry, now_ms)
            case ReceiveRepeated():
                self._repeated(entry, now_ms)
            case Deleted() | Expired():
                self._change_all(entry.runs, lambda _: None)
            case Extended():
                self._extended(entry)
            case Released():
                self._released(entry)
            case Returned():
                self._returned(entry)
            case Delayed():
                self._deferred(entry)
            case DeadLettered():
                self._died(entry)
            case Moved():
                self._moved(entry)
            case MoveFailed():
                self._move_failed(entry, now_ms)
            case TargetChanged():
                self.moves.retarget(_target(entry.source), _target(entry.target))
            case LogStartAdvanced() | Purged():
                self._removed(entry)
            case Seeked():
                self._sought(entry)
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

    def _sought(self, entry: Seeked) -> None:
        self.runs.clear()
        self.attempts.clear()
        self.moves.drop(0, self.cursor)
        self.cursor = entry.offset
        self.void_below_lease_id = max(self.next_lease_id, entry.void_below_lease_id)
        if self.order is not None:
            self.order = self._make_order(entry.offset)
            self.fresh = UnreceivedRecords(entry.offset, self.time_ms)

    def _received(self, entry: Received, now_ms: int) -> None:
        assert entry.lease_id >= self.next_lease_id
        self.next_lease_id = entry.lease_id + 1

        def receive(status: MessageStatus) -> MessageStatus:
            return MessageStatus(
                Kind.LEASED,
                entry.visible_at_ms,
                status.receive_count + 1,
                status.first_received_ms or now_ms,
                now_ms,
                entry.lease_id,
                entry.holder,
                status.reason,
            )

        self._change_all(entry.runs, receive)
        if entry.attempt_id is not None:
            runs = tuple(entry.runs)
            attempt = Attempt(entry.attempt_id, entry.lease_id, runs, now_ms, entry.visible_at_ms)
            self.attempts.received(attempt)

    def _repeated(self, entry: ReceiveRepeated, now_ms: int) -> None:
        attempt = self.attempts.find(entry.attempt_id, now_ms=now_ms)
        assert attempt is not None, "something happened to the messages of a repeated receive"

        def extend(status: MessageStatus) -> MessageStatus:
            return status.changed(Kind.LEASED, entry.visible_at_ms)

        self._change_all(list(attempt.runs), extend)
        self.attempts.received(replace_field(attempt, deadline_ms=entry.visible_at_ms))

    def _deferred(self, entry: Delayed) -> None:
        for first, count, visible_at_ms in entry.runs:
            self._pass_to(first)
            self._pass_over(first, first + count, MessageStatus(visible_at_ms=visible_at_ms))

    def _extended(self, entry: Extended) -> None:
        def extend(status: MessageStatus) -> MessageStatus:
            return status.changed(Kind.LEASED, entry.visible_at_ms)

        self._change_all(entry.runs, extend)

    def _released(self, entry: Released) -> None:
        def release(status: MessageStatus) -> MessageStatus:
            reason = entry.reason or status.reason
            return status.changed(Kind.WAITING, entry.visible_at_ms, reason=reason)

        self._change_all(entry.runs, release)

    def _returned(self, entry: Returned) -> None:
        def give_back(status: MessageStatus) -> MessageStatus:
            count = max(0, status.receive_count - 1)
            return MessageStatus(
                Kind.WAITING,
                entry.visible_at_ms,
                count,
                status.first_received_ms if count else 0,
                status.last_received_ms if count else 0,
                status.lease_id,
                status.holder,
                status.reason,
            )

        self._change_all(entry.runs, give_back)

    def _died(self, entry: DeadLettered) -> None:
        self._take_out(entry.runs, entry.reason)
        self.moves.add(_target(entry.target), entry.runs)

    def _redriven(self, entry: Redriven) -> None:
        redrive = self.redrive
        assert redrive is not None, "messages were redriven, and nobody began with that"
        self._take_out(entry.runs, "")
        self.moves.add(_target(entry.target), entry.runs, redrive=redrive.number)
        taken = redrive.taken + sum(count for _, count in entry.runs)
        self.redrive = replace(redrive, taken=taken)

    def _take_out(self, runs: list[Run], reason: str) -> None:
        def die(status: MessageStatus) -> MessageStatus:
            return status.changed(Kind.DEAD, 0, reason=reason or status.reason)

        self._change_all(runs, die)

    def _moved(self, entry: Moved) -> None:
        target = _target(entry.target)
        batch = self.moves.next_if(target, entry.epoch, entry.sequence, count=entry.count)
        if batch is not None:
            self._change_all(self.moves.pop(target, entry.count), lambda _: None)
            redrive = self.redrive
            if redrive is not None and redrive.number == batch.redrive:
                self.redrive = replace(redrive, moved=redrive.moved + entry.count)

    def _move_failed(self, entry: MoveFailed, now_ms: int) -> None:
        target = _target(entry.target)

        def revive(status: MessageStatus) -> MessageStatus:
            visible_at_ms = entry.visible_at_ms or now_ms
            return status.changed(Kind.WAITING, visible_at_ms, reason=entry.reason or status.reason)

        batch = self.moves.next_if(target, entry.epoch, entry.sequence, count=entry.count)
        if batch is not None:
            self._change_all(self.moves.give_up(target, entry.count), revive)
            redrive = self.redrive
            if redrive is not None and redrive.number == batch.redrive:
                self.redrive = replace(redrive, failed=redrive.failed + entry.count)

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
        self.fresh.remove(start, end)
        self.cursor = max(self.cursor, end)
        if self.order is None:
            return
        if end >= self.fresh.end:
            # Nothing that it was told of is left: a new one needs not be told of each message.
            self.serve()
        else:
            self.order.on_deleted(start, end)

    def _redrive_started(self, entry: RedriveStarted, now_ms: int) -> None:
        self.redrive = Redrive(
            end=entry.end,
            next_offset=self.low_water_mark,
            to_move=entry.to_move,
            started_ms=now_ms,
            number=1 if self.redrive is None else self.redrive.number + 1,
            destination=entry.destination,
            messages_per_s=entry.messages_per_s,
            origin_queue=entry.origin_queue,
        )

    def _redrive_went_on(self, entry: RedriveProgressed | RedriveEnded, now_ms: int) -> None:
        redrive = self.redrive
        if redrive is None:
            return
        if isinstance(entry, RedriveProgressed):
            skipped = redrive.skipped + entry.skipped
            self.redrive = replace(redrive, next_offset=entry.next_offset, skipped=skipped)
        else:
            status = RedriveStatus(entry.status)
            self.redrive = replace(redrive, status=status, reason=entry.reason, ended_ms=now_ms)

    def _snapshot_ended(self, entry: SnapshotEnded) -> None:
        if self._snapshot is None or not self._snapshot.is_complete(entry):
            return
        reader, self._snapshot = self._snapshot, None
        if self.order is not None:
            # Whoever writes a snapshot has this state already, and the order knows it.
            return
        self.cursor = reader.began.cursor
        self.next_lease_id = reader.began.next_lease_id
        self.void_below_lease_id = reader.began.void_below_lease_id
        self.purged_below = reader.began.purged_below
        self.moves = PendingMoves(reader.moves)
        self.redrive = reader.redrive()
        self.attempts.clear()
        for attempt in reader.attempts:
            self.attempts.received(attempt)
        self.runs.fill(reader.runs)

    # -- how it is changed ----------------------------------------------------------------------

    def _pass_to(self, end: int) -> None:
        """Pass over all fresh messages below an offset: they are there, never received."""
        if self.cursor < end:
            self._pass_over(self.cursor, end, SKIPPED)

    def _pass_over(self, first: int, end: int, status: MessageStatus) -> None:
        self.runs.put(first, end, status)
        self.fresh.remove(first, end)
        self.cursor = end

    def _change_all(self, runs: list[Run], change: Change) -> None:
        for first, count in runs:
            self._change(first, first + count, change)

    def _change(self, first: int, end: int, change: Change) -> None:
        """Change messages, each of which is in a run or fresh."""
        if first < self.cursor:
            for piece_first, piece_end, old in self.runs.cut(first, min(end, self.cursor)):
                self._replace(piece_first, piece_end, old, change=change)
        if end > self.cursor:
            self._pass_to(first)
            first = self.cursor
            self.fresh.remove(first, end)
            self.cursor = end
            self._replace(first, end, SKIPPED, change=change)

    def _replace(self, first: int, end: int, old: MessageStatus, *, change: Change) -> None:
        self.attempts.on_lease_changed(old.lease_id)
        new = change(old)
        if new is not None:
            self.runs.put(first, end, new)
        stop = min(end, self.fresh.end)
        if self.order is None or stop <= first:
            return
        if new is None:
            self.order.on_deleted(first, stop)
            return
        state = self.runs.state(new)
        if state is MessageState.DEAD:
            self.order.on_dead_lettered(first, stop)
        elif state is not MessageState.VISIBLE:
            if old.kind is Kind.DEAD:
                self.order.on_visible(first, stop, new.visible_at_ms)
            is_leased = state is MessageState.LEASED
            self.order.on_invisible(first, stop, is_leased=is_leased)
        else:
            if self.runs.state(old) is MessageState.VISIBLE:
                self.order.on_invisible(first, stop, is_leased=True)
            self.order.on_visible(first, stop, new.visible_at_ms)

    def _tell_visible(self, first: int, end: int, since_ms: int) -> None:
        self.version += 1
        stop = min(end, self.fresh.end)
        if self.order is not None and first < stop:
            self.order.on_visible(first, stop, since_ms)


def _target(pair: Target) -> Target:
    # Decoding gives a tuple; a list would be no key.
    return (pair[0], pair[1])
