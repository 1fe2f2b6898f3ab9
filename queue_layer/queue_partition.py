"""Queue partition: the replicated state machine of one partition of a queue.

Pure: no clock, no I/O. `QueuePartition.state` is the current state; the methods of `QueuePartition`
are the commands, which decide its changes.

How a shell uses it, on the broker that leads the journal:

1. Create it, and `state.apply` the frames of the journal from its start. Without any,
   begin with `seek`.
2. `start(now_ms)`, and `trim` if the log of the records begins above `state.records_from`.
3. Report committed records from `state.records_from` on: `state.on_records`, for each stretch.
   When `state.is_ready`, it takes commands.
4. For a command: `outcome = queue.<command>(...)`; append `outcome.frames` to the journal, in
   their order; `state.apply` each; send the reply when the frames are committed (or at once, if
   `receive_acks` is `leader`). No other command may come between the first three steps. If
   appending fails or the leadership is lost, discard the whole object.
5. Call `state.advance(now_ms)` no later than `state.next_deadline_ms`: then messages become
   visible again. If some are `state.exhausted` then, `dead_letter_exhausted`, before a `plan`.
   After that, and after every applied frame and stretch of records, a waiting
   receive may find messages: make a `plan`.
6. Move the dead letters for `state.moves.targets()`, see `DeadLetterBatch`.

A time below an earlier one is replaced by the earlier one. `time` makes the time for the commands
from the broker's time.
"""

from collections.abc import Iterable, Sequence
from typing import Final, final

from tidelog.queue_layer.collections.queue_clock import QueueClock
from tidelog.queue_layer.commands import dead_letter, peek, receive, redrive, remove, settle
from tidelog.queue_layer.commands.receive import ReceiveCommand, ReceivePlan
from tidelog.queue_layer.commands.redrive import RedriveCommand
from tidelog.queue_layer.commands.remove import Cancelled
from tidelog.queue_layer.ordering.delivery_order import MakeOrder
from tidelog.queue_layer.ordering.standard_order import StandardOrder
from tidelog.queue_layer.outcome import Outcome
from tidelog.queue_layer.receipts import Receipts
from tidelog.queue_layer.state.message_runs import WITHOUT_LIMIT
from tidelog.queue_layer.state.pending_dead_letters import DeadLetterBatch
from tidelog.queue_layer.state.queue_state import QueueState
from tidelog.wire.config.queue_config import QueueConfig
from tidelog.wire.errors import BrokerError
from tidelog.wire.messages.queue_journal import (
    NO_TARGET,
    Attempt,
    JournalFrame,
    Moved,
    MoveFailed,
    Purged,
    Seeked,
    Target,
    TargetChanged,
)
from tidelog.wire.messages.queues import (
    MessageState,
    PartitionReceived,
    PeekedRun,
    ReceivedRun,
    Run,
    Settled,
    Settlement,
)
from tidelog.wire.messages.redrives import RedriveStatus

_SETTLED: Final = Settled()


@final
class QueuePartition:
    """The messages of one partition of a queue, and the commands on them."""

    def __init__(
        self, config: QueueConfig, receipts: Receipts, make_order: MakeOrder = StandardOrder
    ) -> None:
        """Start with an empty state: the journal has to be applied first.

        Args:
            config: Settings; `configure` replaces them at any time.
            receipts: Makes and checks receipts for this partition.
            make_order: Creates the delivery order, again whenever it must forget; see
                `queue_layer.ordering.factory`.
        """
        self.config = config
        self._receipts = receipts
        self.state = QueueState(make_order, max_deliveries=config.max_deliveries or WITHOUT_LIMIT)
        self._clock = QueueClock()

    def time(self, now_ms: int) -> int:
        """Return the time of the queue by the broker's time, both in Unix milliseconds.

        It is the broker's time, unless an earlier leader has used later times. Call it whenever the
        broker's time is used: a lead is lost by the time that passes between calls.
        """
        return self._clock.time(now_ms, used_ms=self.state.runs.time_ms)

    def start(self, now_ms: int, *, leader_epoch: int = 0) -> None:
        """Begin to deliver, with all frames applied, as the leader of the journal in this epoch."""
        self.state.advance(now_ms)
        self.state.set_leader_epoch(leader_epoch)
        self.state.start()

    def configure(self, config: QueueConfig) -> None:
        """Replace the settings; they apply from the next command on, also to existing messages.

        Priorities and fairness depend on the order, and the state counts deliveries up to their
        limit: a change of these (see `can_configure`) needs a new partition, loaded from the
        journal.
        """
        assert self.can_configure(config), "these settings need a new partition"
        self.config = config

    def can_configure(self, config: QueueConfig) -> bool:
        """Return whether `configure` takes these settings."""
        return _parts_of_state(config) == _parts_of_state(self.config)

    # -- receiving and settling -----------------------------------------------------------------

    def plan(self, command: ReceiveCommand, *, now_ms: int) -> ReceivePlan:
        """Return an offer of messages; take enough of its `offers`, then `receive`."""
        if now_ms != self.state.runs.time_ms:
            now_ms = self.state.advance(now_ms)
        state, config = self.state, self.config
        attempt: Attempt | None = None
        offers: list[ReceivedRun] = []
        if command.attempt_id is not None:
            attempt = receive.earlier_attempt(state, config, command, now_ms=now_ms)
        if attempt is not None:
            offers = receive.again(state, attempt)
        elif not command.is_repetition:
            offers = receive.offers_of(state, config, command.max_messages, now_ms=now_ms)
        return ReceivePlan(state, state.version, command, now_ms, attempt, offers)

    def may_deliver(self, command: ReceiveCommand, *, now_ms: int) -> bool:
        """Return whether a plan may have an offer: a repetition needs an earlier receive."""
        if not command.is_repetition:
            return True
        now_ms = self.state.advance(now_ms)
        return receive.earlier_attempt(self.state, self.config, command, now_ms=now_ms) is not None

    def receive(
        self, plan: ReceivePlan, taken: Iterable[Run], *, now_ms: int
    ) -> Outcome[PartitionReceived]:
        """Decide on the delivery of messages.

        The reply has the taken messages that may be delivered (see `ReceivePlan`); the shell fills
        in `batch_bytes`. Without runs there were none.

        Args:
            plan: The newest plan.
            taken: First offsets and counts: a part of the plan's offer, in its order; the last run
                may be cut. For a plan that repeats an attempt, all of them.
            now_ms: The time.
        """
        if now_ms != self.state.runs.time_ms:
            now_ms = self.state.advance(now_ms)
        entries, lease = receive.decide(
            self.state, self.config, plan, taken=list(taken), now_ms=now_ms
        )
        partition = self._receipts.partition
        if not lease.runs:
            return Outcome(now_ms, entries, PartitionReceived(partition))
        receipt = self._receipts.make(lease.lease_id, lease.offsets)
        received = PartitionReceived(partition, receipt, lease.runs, deadline_ms=lease.deadline_ms)
        return Outcome(now_ms, entries, received)

    @property
    def is_over_limit(self) -> bool:
        """Whether `max_in_flight` keeps visible messages from being received."""
        return receive.room_in(self.state, self.config) <= 0 < self.state.counts().visible

    def settle(self, settlement: Settlement, *, now_ms: int) -> Outcome[Settled]:
        """Decide on a settlement of received messages; errors are in the reply, none is raised.

        Several settlements of one request are decided one after the other, each applied before the
        next one.
        """
        if now_ms != self.state.runs.time_ms:
            now_ms = self.state.advance(now_ms)
        try:
            receipt = self._receipts.check(settlement.receipt)
            entries, refused = settle.decide(
                self.state, self.config, settlement, receipt=receipt, now_ms=now_ms
            )
        except BrokerError as error:
            return Outcome(now_ms, [], Settled(error=error.to_wire()))
        return Outcome(now_ms, entries, Settled(refused) if refused else _SETTLED)

    # -- all messages at once -------------------------------------------------------------------

    def seek(self, offset: int, *, now_ms: int) -> Outcome[None]:
        """Decide that messages from an offset on are delivered again, and those below are done.

        A new queue begins with it, too. Earlier receipts are void, and pending moves do not happen
        (a move in flight may). Continue with `state.on_records` from that offset.
        """
        now_ms = self.state.advance(now_ms)
        return Outcome(now_ms, [Seeked(offset, self.state.next_lease_id)], None)

    def purge(self, end: int, *, now_ms: int) -> Outcome[int]:
        """Decide that all messages below an offset are done; the reply is their number.

        In a FIFO queue, those that are done already are no originals of duplicates any more, too.
        There may be very many: `commands.remove.removal_end` limits a step.
        """
        now_ms = self.state.advance(now_ms)
        count = self.state.count_below(end)
        is_news = count > 0 or (self.config.is_fifo and end > self.state.purged_below)
        return Outcome(now_ms, [Purged(end)] if is_news else [], count)

    def trim(self, log_start_offset: int, *, now_ms: int) -> Outcome[None]:
        """Decide that messages below the start of the log are gone, in flight or not.

        Except messages that are to be moved: they may be at their target already, which the mover
        has to ask first; `lost` is for those. With such messages, all records below that offset
        have to be reported before (`state.on_records`).
        """
        now_ms = self.state.advance(now_ms)
        return Outcome(now_ms, remove.trim(self.state, log_start_offset), None)

    def expire(self, before: int, *, first: int = 0, now_ms: int) -> Outcome[int | None]:
        """Decide that messages between two offsets are gone, because `retention_ms` has passed.

        Dead letters stay, and so do messages delayed by their sender until their own time is over;
        the reply is when the first of these is to expire, `None` if there is none.
        """
        now_ms = self.state.advance(now_ms)
        if self.config.retention_ms is None:
            return Outcome(now_ms, [], None)
        entries, kept_until_ms = remove.expire(
            self.state, first, before, retention_ms=self.config.retention_ms
        )
        return Outcome(now_ms, entries, kept_until_ms)

    def destroy(self, first: int, end: int, *, now_ms: int) -> Outcome[None]:
        """Decide that visible messages between two offsets are gone: their data key was deleted."""
        now_ms = self.state.advance(now_ms)
        entries, _ = remove.expire(self.state, first, end, retention_ms=0)
        return Outcome(now_ms, entries, None)

    def cancel(self, runs: list[Run], *, now_ms: int) -> Outcome[Cancelled]:
        """Decide that delayed messages are done; the reply has those that are not delayed.

        Of very many only the first ones: continue with the `rest` after other commands.
        """
        now_ms = self.state.advance(now_ms)
        entries, cancelled = remove.cancel(self.state, runs)
        return Outcome(now_ms, entries, cancelled)

    # -- dead letters ---------------------------------------------------------------------------

    def dead_letter_exhausted(self, *, now_ms: int) -> Outcome[None]:
        """Decide that messages that are visible after their last delivery are dead letters.

        Of very many only a part: repeat it while `state.exhausted` has some.
        """
        now_ms = self.state.advance(now_ms)
        return Outcome(now_ms, dead_letter.exhausted(self.state, self.config), None)

    def moved(self, batch: DeadLetterBatch, count: int, *, now_ms: int) -> Outcome[None]:
        """Decide that the first messages of a batch are at their target, durably, and gone here."""
        now_ms = self.state.advance(now_ms)
        entry = Moved(batch.target, batch.epoch, batch.sequence, count)
        return Outcome(now_ms, [entry] if self._is_next(batch, count) else [], None)

    def move_failed(
        self, batch: DeadLetterBatch, count: int, reason: str, *, delay_ms: int = 0, now_ms: int
    ) -> Outcome[None]:
        """Decide that the first messages of a batch cannot be moved: they are visible again.

        Only when it is certain that they are not at the target, and never will be: the target was
        deleted, or refused this record for its content. Messages that had all their deliveries
        are dead letters again when they become visible; so let that take a while.
        """
        now_ms = self.state.advance(now_ms)
        visible_at_ms = now_ms + delay_ms if delay_ms else 0
        entry = MoveFailed(batch.target, batch.epoch, batch.sequence, count, reason, visible_at_ms)
        return Outcome(now_ms, [entry] if self._is_next(batch, count) else [], None)

    def lost(self, batch: DeadLetterBatch, log_start_offset: int, *, now_ms: int) -> Outcome[None]:
        """Decide that the first messages of a batch, which the log has deleted, are gone.

        Only when it is certain that the batch is not at the target: its rest, and later batches,
        start again under the next epoch.
        """
        now_ms = self.state.advance(now_ms)
        entries, count = remove.lost(batch, log_start_offset)
        return Outcome(now_ms, entries if self._is_next(batch, count) else [], None)

    def _is_next(self, batch: DeadLetterBatch, count: int) -> bool:
        moves = self.state.moves
        return moves.next_if(batch.target, batch.epoch, batch.sequence, count=count) is not None

    def adopt_kept(self, *, now_ms: int) -> Outcome[None]:
        """Decide that dead letters without a target go to the current dead-letter queue.

        To be called when a queue that had no dead-letter queue gets one.
        """
        now_ms = self.state.advance(now_ms)
        target = self.config.dead_letter_target
        if target is None or self.state.moves.next_batch(NO_TARGET) is None:
            return Outcome(now_ms, [], None)
        return Outcome(now_ms, [TargetChanged(NO_TARGET, target)], None)

    # -- redrive --------------------------------------------------------------------------------

    def start_redrive(self, command: RedriveCommand, *, now_ms: int) -> Outcome[int]:
        """Decide that the messages that are visible now are moved; the reply is their number.

        The same call changes nothing: a reply may have been lost.

        Raises:
            InvalidRequestError: A different redrive is running.
        """
        now_ms = self.state.advance(now_ms)
        to_move = self.state.counts().visible
        entries = redrive.start(self.state, command, to_move)
        same = redrive.redrive_of(self.state, command)
        return Outcome(now_ms, entries, to_move if same is None else same.to_move)

    def redrive_candidates(self, max_messages: int) -> tuple[list[Run], int]:
        """Return the next messages of a redrive, and the offset below which they are all.

        Nothing and 0 if none runs. Read their origins, choose, and call `redrive_progressed`.
        """
        return redrive.candidates(self.state, max_messages)

    def redrive_progressed(
        self,
        moves: Sequence[tuple[Target, list[Run]]],
        next_offset: int,
        *,
        skipped: int = 0,
        reason: str = "",
        now_ms: int,
    ) -> Outcome[None]:
        """Decide that some candidates go to targets, and that all below an offset were looked at.

        They are dead letters then, with pending moves; `skipped` others stay. At its end the
        redrive ends: it has failed if there was a `reason`.
        """
        now_ms = self.state.advance(now_ms)
        entries = redrive.progress(self.state, moves, next_offset, skipped=skipped, reason=reason)
        return Outcome(now_ms, entries, None)

    def redrive_lost_destination(self, number: int, reason: str, *, now_ms: int) -> Outcome[None]:
        """Decide that the redrive with this number fails, because a destination was deleted."""
        now_ms = self.state.advance(now_ms)
        return Outcome(now_ms, redrive.lost_destination(self.state, number, reason), None)

    def end_redrive(self, status: RedriveStatus, reason: str = "", *, now_ms: int) -> Outcome[None]:
        """Decide that the redrive, if one runs, is cancelled or failed; the rest stays."""
        now_ms = self.state.advance(now_ms)
        return Outcome(now_ms, redrive.end(self.state, status, reason), None)

    # -- browsing -------------------------------------------------------------------------------

    def peek(
        self, states: Iterable[MessageState], from_offset: int, max_messages: int
    ) -> tuple[list[PeekedRun], int | None]:
        """Return messages in some states (none: in all), ascending, and the next offset.

        As of the last `advance`. `None`: there are no more. There may be fewer than wanted although
        there are more, if very many are in other states.
        """
        return peek.peek(self.state, frozenset(states), from_offset, max_messages=max_messages)

    # -- snapshots ------------------------------------------------------------------------------

    def snapshot(self, *, now_ms: int) -> list[JournalFrame]:
        """Return the whole state, to be appended as it is, with nothing in between.

        When all of it is committed, the journal before the first frame may be deleted.
        """
        self.state.advance(now_ms)
        return self.state.snapshot()


def _parts_of_state(config: QueueConfig) -> tuple[object, ...]:
    """Return the settings on which the state depends."""
    return config.is_fifo, *config.order_settings, config.max_deliveries
