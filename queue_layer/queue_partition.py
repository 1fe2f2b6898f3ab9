"""One partition of a queue: the replicated state machine that its shell drives.

Pure: no clock, no I/O.

How a shell uses it, on the broker that leads the journal:

1. Make it, and `apply` the frames of the journal from where that begins. If there is none, begin
   with `seek`.
2. `serve(now_ms)`, and `trim` if the log of the records begins behind `records_from`.
3. Tell it of committed records from `records_from` on: `on_records`, for each stretch. When
   `is_ready`, it can be asked.
4. For a command: `outcome = queue.<command>(...)`; append `outcome.frames` to the journal, in
   their order; `apply` each; send the reply when what was appended is committed (or at once, if
   `receive_acks` is `leader`). No other command may come between the three first steps. If
   appending fails or the leadership is lost, throw the whole object away.
5. Call `advance(now_ms)` no later than `next_deadline_ms` says: then messages are visible again.
   After that, and after every applied frame and stretch of records, who waits for messages may
   find some: look with a plan.
6. Move what `move_targets` says, see `next_move`.

Every time is taken as the larger one of what is given and what was seen before.
"""

from collections.abc import Iterable, Sequence
from typing import final

from tidelog.queue_layer.commands import browse as looking
from tidelog.queue_layer.commands import quarantine as holding
from tidelog.queue_layer.commands import receive as receiving
from tidelog.queue_layer.commands import redrive as redriving
from tidelog.queue_layer.commands import remove as removing
from tidelog.queue_layer.commands import settle as settling
from tidelog.queue_layer.commands.receive import Lease, ReceiveCommand, ReceivePlan
from tidelog.queue_layer.commands.redrive import RedriveCommand
from tidelog.queue_layer.commands.remove import Cancelled
from tidelog.queue_layer.config import QueueConfig
from tidelog.queue_layer.ordering.delivery_order import MakeOrder, RecordFields
from tidelog.queue_layer.ordering.standard_order import StandardOrder
from tidelog.queue_layer.outcome import Outcome
from tidelog.queue_layer.receipts import Receipts
from tidelog.queue_layer.state import time_advance as passing_time
from tidelog.queue_layer.state.pending_dead_letters import DeadLetters, MoveBatch
from tidelog.queue_layer.state.queue_state import QueueState
from tidelog.queue_layer.state.redrive_state import Redrive
from tidelog.queue_layer.state.snapshots import began_in_parts, parts, to_snapshot
from tidelog.wire.errors import BrokerError
from tidelog.wire.messages.queue_journal import (
    NO_TARGET,
    AnyEntry,
    BackgroundWork,
    Frame,
    Moved,
    MoveFailed,
    Purged,
    Seeked,
    SnapshotEnded,
    SnapshotStarted,
    Target,
    TargetChanged,
)
from tidelog.wire.messages.queues import (
    MessageState,
    PartitionReceived,
    Run,
    SeenRun,
    Settled,
    Settlement,
)
from tidelog.wire.messages.redrives import RedriveStatus


@final
class QueuePartition:
    """The messages of one partition of a queue, and what may be done to them."""

    def __init__(
        self, config: QueueConfig, receipts: Receipts, make_order: MakeOrder = StandardOrder
    ) -> None:
        """Begin with nothing known: the journal has to be applied first.

        Args:
            config: May be replaced at any time (`configure`).
            receipts: Makes and checks receipts for this partition.
            make_order: Makes the order of delivery, anew whenever it must forget; see
                `queue_layer.ordering.factory`.
        """
        self._config = config
        self._receipts = receipts
        self._fold = QueueState(make_order)

    # -- loading --------------------------------------------------------------------------------

    def apply(self, frame: Frame) -> None:
        """Take over a frame of the journal; each once, in order."""
        self._fold.apply(frame)

    def serve(self, now_ms: int, *, leader_epoch: int = 0) -> None:
        """Begin to serve, with all frames applied, as the leader of the journal in this epoch."""
        self._fold.advance(now_ms)
        self._fold.lead(leader_epoch)
        self._fold.serve()

    @property
    def records_from(self) -> int:
        """The offset of the first record that it is to be told of next.

        Changes by `serve`, `on_records`, and by applying what `seek` or `trim` returned: after
        these, records are told from here, even if they were told before.
        """
        return self._fold.fresh.end

    @property
    def is_ready(self) -> bool:
        """Whether it knows enough records to be asked.

        Messages of a FIFO queue may be received and settled before: it hands out what it was told
        of, in order. To be purged, counted or looked at it has to know all.
        """
        return self._fold.order is not None and self._fold.fresh.end >= self._fold.cursor

    def on_records(
        self,
        first: int,
        end: int,
        fields: Sequence[RecordFields] | None = None,
        *,
        deliver_at_ms: int = 0,
    ) -> None:
        """Learn of committed records `[first, end)`; they never become uncommitted.

        Args:
            first: Equal to `records_from`.
            end: Exclusive.
            fields: One for each record, `None` if none says anything; then a stretch of any length
                costs the same.
            deliver_at_ms: For all of them, if `fields` is `None`: 0, or a time in Unix
                milliseconds before which nobody gets them.
        """
        self._fold.on_records(first, end, fields, deliver_at_ms=deliver_at_ms)

    def on_chunks(self, first: int, end: int) -> None:
        """Learn of committed records `[first, end)` that are parts of large messages, and none.

        As `on_records` with fields that say so, and costs the same for a stretch of any length.
        """
        self._fold.on_chunks(first, end)

    def configure(self, config: QueueConfig) -> None:
        """Take over settings; they apply from the next command on, also to what is there.

        Lanes and fairness are a matter of the order: to change them, `make_order` is for a new
        partition that is loaded from the journal.
        """
        assert config.is_fifo == self._config.is_fifo, "a queue stays FIFO or standard"
        self._config = config

    @property
    def config(self) -> QueueConfig:
        """The settings."""
        return self._config

    @property
    def version(self) -> int:
        """Grows whenever something happens to messages that have come, by entries or by time."""
        return self._fold.version

    # -- time -----------------------------------------------------------------------------------

    def advance(self, now_ms: int) -> None:
        """Let time pass: leases and delays end."""
        self._fold.advance(now_ms)

    def advance_in_part(self, now_ms: int) -> bool:
        """Let time pass, no further than some thousand leases or delays end; return if it is now.

        To be repeated when others had their turn. Whatever is asked lets the rest of it pass first.
        """
        return passing_time.advance_in_part(self._fold, now_ms)

    @property
    def next_deadline_ms(self) -> int | None:
        """When something becomes visible by itself next, in Unix milliseconds."""
        times = (self._fold.runs.next_deadline_ms(), self._fold.fresh.next_deadline_ms())
        return min((time for time in times if time is not None), default=None)

    def hold(self, first: int, end: int) -> None:
        """Offer nothing of a range for now: it cannot be read. See `let_go`."""
        holding.hold(self._fold, first, end)

    def let_go(self, first: int, end: int) -> None:
        """Offer again what was held."""
        holding.let_go(self._fold, first, end)

    # -- receiving and settling -----------------------------------------------------------------

    def plan(self, command: ReceiveCommand, *, now_ms: int) -> ReceivePlan:
        """Return an offer of messages; iterate over it, take what is enough, then `receive`."""
        now_ms = self._fold.advance(now_ms)
        return ReceivePlan(self._fold, self._config, command, now_ms=now_ms)

    def receive(
        self, plan: ReceivePlan, taken: Iterable[Run], *, now_ms: int
    ) -> Outcome[PartitionReceived]:
        """Decide that messages are handed out.

        The reply has what may be handed out of what was taken (see `ReceivePlan`); `batch_bytes` is
        left to the shell. Without runs there was nothing; there may be entries nevertheless, about
        messages that are dead letters now.

        Args:
            plan: The newest one.
            taken: First offsets and counts: a part of what the plan offered, in its order; the last
                run may be cut. Of a plan that repeats an attempt, everything was.
            now_ms: The time.
        """
        now_ms = self._fold.advance(now_ms)
        entries, lease = receiving.decide(
            self._fold, self._config, plan, taken=list(taken), now_ms=now_ms
        )
        return Outcome(now_ms, entries, self._received(lease))

    def _received(self, lease: Lease) -> PartitionReceived:
        partition = self._receipts.partition
        if not lease.runs:
            return PartitionReceived(partition)
        receipt = self._receipts.make(lease.lease_id, lease.offsets)
        return PartitionReceived(partition, receipt, lease.runs, deadline_ms=lease.deadline_ms)

    def settle(self, settlement: Settlement, *, now_ms: int) -> Outcome[Settled]:
        """Decide what becomes of messages that somebody received; never raises for what is asked.

        Several settlements of one request are decided one after the other, each applied before the
        next one.
        """
        now_ms = self._fold.advance(now_ms)
        try:
            receipt = self._receipts.check(settlement.receipt)
            entries, refused = settling.decide(
                self._fold, self._config, settlement, receipt=receipt, now_ms=now_ms
            )
        except BrokerError as error:
            return Outcome(now_ms, [], Settled(error=error.to_wire()))
        return Outcome(now_ms, entries, Settled(refused))

    # -- all messages at once -------------------------------------------------------------------

    def seek(self, offset: int, *, now_ms: int) -> Outcome[None]:
        """Decide that everything from an offset on is handed out again, and what is below is done.

        Also what a new queue begins with. Receipts of before are void, moves that are pending do
        not happen (one that is under way may). Goes on with `on_records` from that offset.
        """
        now_ms = self._fold.advance(now_ms)
        return Outcome(now_ms, [Seeked(offset, self._fold.free_lease_id)], None)

    def purge(self, end: int, *, now_ms: int) -> Outcome[int]:
        """Decide that all messages below an offset are done; the reply says how many there were.

        Of a FIFO queue, also that those which are done already are no originals of duplicates. See
        `removal_end`: that may be very many.
        """
        now_ms = self._fold.advance(now_ms)
        count = removing.count_below(self._fold, end)
        is_news = count > 0 or (self.config.is_fifo and end > self._fold.purged_below)
        return Outcome(now_ms, [Purged(end)] if is_news else [], count)

    @property
    def purged_below(self) -> int:
        """End of the last purge: messages below it have no duplicates."""
        return self._fold.purged_below

    def trim(self, log_start_offset: int, *, now_ms: int) -> Outcome[None]:
        """Decide that what is below the beginning of the log is gone, leased or not.

        Except messages that are to be moved: they may be at their target already, and nobody knows
        before whoever moves them has asked there; `lost` is for those. Where there are such, it has
        to be told of all records below that offset before (`on_records`).
        """
        now_ms = self._fold.advance(now_ms)
        return Outcome(now_ms, removing.trim(self._fold, log_start_offset), None)

    def has_moves_below(self, offset: int) -> bool:
        """Return whether messages below an offset are to be moved somewhere."""
        return self._fold.moves.has_below(offset)

    def expire(self, before: int, *, now_ms: int) -> Outcome[None]:
        """Decide that messages below an offset are gone, for they are older than `retention_ms`.

        Dead letters stay, and so does what was delayed by its sender until its own time is over;
        ask again when the low-water mark is below what is too old.
        """
        now_ms = self._fold.advance(now_ms)
        entries = removing.expire(self._fold, before, self._config.retention_ms)
        return Outcome(now_ms, entries, None)

    def cancel(self, runs: list[Run], *, now_ms: int) -> Outcome[Cancelled]:
        """Decide that delayed messages are done; the reply says which ones are not delayed.

        Of very many only the first ones: go on with the `rest` when others had their turn.
        """
        now_ms = self._fold.advance(now_ms)
        entries, cancelled = removing.cancel(self._fold, runs)
        return Outcome(now_ms, entries, cancelled)

    def removal_end(self, first: int, end: int) -> int:
        """Return how far to `purge` or `trim` at once, on the way from an offset to another one."""
        return removing.slice_end(self._fold, first, end, forgets_all=True)

    def expiry_end(self, first: int, end: int) -> int:
        """Return how far to `expire` at once, on the way from an offset to another one."""
        return removing.slice_end(self._fold, first, end, forgets_all=False)

    # -- dead letters ---------------------------------------------------------------------------

    @property
    def move_targets(self) -> list[Target]:
        """Where something is to be moved to now; `NO_TARGET` is not among them."""
        return [target for target in self._fold.moves.targets() if target != NO_TARGET]

    @property
    def background_work(self) -> BackgroundWork:
        """What is to be done though nobody asks for it; for the frames of the journal."""
        return self._fold.background_work

    def next_move(self, target: Target) -> MoveBatch | None:
        """Return the batch to produce to a target next, by the idempotent producer.

        Its epoch and sequence are those for this very batch: repeat it as it is until the outcome
        is known. A batch that is too large for one request is cut by a rule that depends on its
        records alone, always beginning at the first. `moved` is told of any part from the front.
        """
        return self._fold.moves.next_batch(target)

    def moved(self, batch: MoveBatch, count: int, *, now_ms: int) -> Outcome[None]:
        """Decide that the first messages of a batch are at their target, durably, and gone here."""
        now_ms = self._fold.advance(now_ms)
        entry = Moved(batch.target, batch.epoch, batch.sequence, count)
        return Outcome(now_ms, [entry] if self._is_next(batch, count) else [], None)

    def move_failed(
        self, batch: MoveBatch, count: int, reason: str, *, delay_ms: int = 0, now_ms: int
    ) -> Outcome[None]:
        """Decide that the first messages of a batch cannot be moved: they are visible again.

        Only when it is certain that they are not at the target, and never will be: the target is
        gone, or refused this record for what it is. Unless the settings change, the next receive
        that meets them finds them dead again, so let that take a while.
        """
        now_ms = self._fold.advance(now_ms)
        visible_at_ms = now_ms + delay_ms if delay_ms else 0
        entry = MoveFailed(batch.target, batch.epoch, batch.sequence, count, reason, visible_at_ms)
        return Outcome(now_ms, [entry] if self._is_next(batch, count) else [], None)

    def lost(self, batch: MoveBatch, log_start_offset: int, *, now_ms: int) -> Outcome[None]:
        """Decide that the first messages of a batch, which the log has lost, are gone.

        Only when it is certain that the batch is not at the target: what is left of it, and what
        comes behind it, begins anew.
        """
        now_ms = self._fold.advance(now_ms)
        entries, count = removing.lost(batch, log_start_offset)
        return Outcome(now_ms, entries if self._is_next(batch, count) else [], None)

    def _is_next(self, batch: MoveBatch, count: int) -> bool:
        moves = self._fold.moves
        return moves.next_if(batch.target, batch.epoch, batch.sequence, count=count) is not None

    def adopt_kept(self, *, now_ms: int) -> Outcome[None]:
        """Decide that dead letters that were kept for want of a target go to the one there is now.

        To be called when a queue that had no dead-letter queue gets one.
        """
        now_ms = self._fold.advance(now_ms)
        target = self._config.dead_letter_target
        if target is None or self._fold.moves.next_batch(NO_TARGET) is None:
            return Outcome(now_ms, [], None)
        return Outcome(now_ms, [TargetChanged(NO_TARGET, target)], None)

    def dead_letters(self, batch: MoveBatch) -> list[DeadLetters]:
        """Return what the headers of dead letters say, in the order of the batch."""
        return looking.dead_letters(self._fold, batch)

    # -- redrive --------------------------------------------------------------------------------

    @property
    def redrive(self) -> Redrive | None:
        """The redrive that runs, or ran last."""
        return self._fold.redrive

    @property
    def redriven_on_the_way(self) -> int:
        """How many messages that redrive took out that are neither at their target nor back."""
        redrive = self._fold.redrive
        return 0 if redrive is None else self._fold.moves.count_of(redrive.number)

    def start_redrive(self, command: RedriveCommand, *, now_ms: int) -> Outcome[int]:
        """Decide that the messages that are visible now are moved; the reply says how many.

        The same again, while it runs, changes nothing: an answer may have been lost.

        Raises:
            InvalidRequestError: Another redrive is running.
        """
        now_ms = self._fold.advance(now_ms)
        to_move = self.counts()[MessageState.VISIBLE]
        entries = redriving.start(self._fold, command, to_move)
        running = redriving.running(self._fold)
        return Outcome(now_ms, entries, to_move if running is None else running.to_move)

    def redrive_candidates(self, max_messages: int) -> tuple[list[Run], int]:
        """Return the next messages of a redrive, and below which offset that is all of them.

        Nothing and 0 if none runs. Read their origins, choose, and tell `redrive_progressed`.
        """
        return redriving.candidates(self._fold, max_messages)

    def redrive_progressed(
        self,
        moves: Sequence[tuple[Target, list[Run]]],
        next_offset: int,
        *,
        skipped: int = 0,
        now_ms: int,
    ) -> Outcome[None]:
        """Decide that some of the candidates go to targets, and that all below an offset is seen.

        They are dead letters then, with moves that are pending; `skipped` others stay. At its end
        the redrive ends.
        """
        now_ms = self._fold.advance(now_ms)
        entries = redriving.progress(self._fold, moves, next_offset, skipped=skipped)
        return Outcome(now_ms, entries, None)

    def end_redrive(self, status: RedriveStatus, reason: str = "", *, now_ms: int) -> Outcome[None]:
        """Decide that the redrive, if one runs, is cancelled or failed; the rest stays."""
        now_ms = self._fold.advance(now_ms)
        return Outcome(now_ms, redriving.end(self._fold, status, reason), None)

    # -- looking --------------------------------------------------------------------------------

    def look(
        self, states: Iterable[MessageState], from_offset: int, max_messages: int
    ) -> tuple[list[SeenRun], int | None]:
        """Return messages in some states (none: in all), ascending, and where to go on.

        As of the last `advance`. `None`: there are no more. There may be fewer than wanted although
        there are more, if very many are in other states.
        """
        return looking.look(self._fold, frozenset(states), from_offset, max_messages=max_messages)

    @property
    def low_water_mark(self) -> int:
        """Below it all is done."""
        return self._fold.low_water_mark

    @property
    def cursor(self) -> int:
        """The first offset that was neither received nor passed over."""
        return self._fold.cursor

    def counts(self) -> tuple[int, int, int, int]:
        """Return how many messages are visible, leased, delayed and dead: exact, at no cost.

        As of the last `advance`; visible ones of a FIFO queue may be blocked.
        """
        fresh = self._fold.fresh
        counts = self._fold.runs.counts
        waiting = max(0, fresh.end - self._fold.cursor) - fresh.chunk_count
        return (
            counts[MessageState.VISIBLE] + waiting - fresh.delayed_count,
            counts[MessageState.LEASED],
            counts[MessageState.DELAYED] + fresh.delayed_count,
            counts[MessageState.DEAD],
        )

    # -- snapshots ------------------------------------------------------------------------------

    def snapshot(self, *, now_ms: int) -> list[Frame]:
        """Return the whole state, to be appended as it is, with nothing in between.

        When all of it is committed, what is before the first frame may be deleted.
        """
        fold = self._fold
        now_ms = fold.advance(now_ms)
        began = SnapshotStarted(
            fold.cursor,
            fold.next_lease_id,
            fold.void_below_lease_id,
            fold.moves.snapshot(),
            to_snapshot(fold.redrive),
            list(fold.attempts),
            fold.purged_below,
        )
        runs = parts(fold.runs, now_ms=now_ms, next_lease_id=fold.next_lease_id)
        entries: list[AnyEntry] = [*began_in_parts(began), *runs, SnapshotEnded(len(fold.runs))]
        return [Frame(now_ms, [entry], fold.background_work) for entry in entries]
