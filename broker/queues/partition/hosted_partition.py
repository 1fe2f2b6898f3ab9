"""One partition of a queue, hosted by the leader of its journal (Kafka: SharePartition).

Shell: owns the task that loads the partition, and the one that reads cold records. All else is
plain calls: no other task runs between a decision and its effect.
"""

from contextlib import suppress
from functools import partial
from typing import Final, TypeVar, final

import trio
from msgspec.structs import replace

from tidelog.broker.metrics.queue_totals import QueueTotals
from tidelog.broker.partitions.partition import AckWaiter, Partition
from tidelog.broker.queues.partition.batch_cache import EmptyCache
from tidelog.broker.queues.partition.context import Context, MessageWaiter
from tidelog.broker.queues.partition.delivery import Delivery, EmptyReason
from tidelog.broker.queues.partition.ended_leases import EndedLeases
from tidelog.broker.queues.partition.expiry import Expiry
from tidelog.broker.queues.partition.fresh_letters import FreshLetters
from tidelog.broker.queues.partition.gathered import Gathered
from tidelog.broker.queues.partition.journal import Journal
from tidelog.broker.queues.partition.journal_retention import JournalHistory
from tidelog.broker.queues.partition.quarantine import Quarantine
from tidelog.broker.queues.partition.queue_summary import QueueSummary, summary_of
from tidelog.broker.queues.partition.source_records import (
    WITHOUT_LIMIT_BYTES,
    Reading,
    SourceRecords,
    Work,
)
from tidelog.broker.queues.queue_view import QueueView
from tidelog.broker.queues.supervisor import start_supervised
from tidelog.broker.requests.commit_wait import COMMIT_TIMEOUT_S, CommitWait
from tidelog.queue_layer.commands.receive import ReceiveCommand, ReceivePlan
from tidelog.queue_layer.ordering.factory import order_for
from tidelog.queue_layer.outcome import Outcome
from tidelog.queue_layer.queue_partition import QueuePartition
from tidelog.queue_layer.receipts import Receipts
from tidelog.wire.errors import (
    BrokerError,
    LeaderNotAvailableError,
    RequestTimedOutError,
    UnexpectedServerError,
    WireFormatError,
)
from tidelog.wire.messages.produce import AckLevel
from tidelog.wire.messages.queue_journal import BackgroundWork, JournalFrame, Received

Reply = TypeVar("Reply")

_RETRY_MS: Final = 1_000
"""Time in milliseconds until dead letters are decided again that could not be written."""
_MORE_RECORDS: Final = 20_000
"""Number of records read further when the known ones hold no message to deliver."""


@final
class HostedPartition:
    """A partition of a queue.

    Invariant: a waiting receive is called for every event that may give it messages: by the records
    when the high watermark advances, by the deadlines of the server, and after every journal entry.
    """

    metadata_version = -1
    """Version of the metadata at the last check of `view`."""
    used_ms = 0
    """Time of the last request, in Unix milliseconds."""
    tick_at: float | None = None
    """Time of its next tick without an event, in seconds of trio's clock."""
    has_moves = False
    """Whether messages may have to be moved to other topics."""

    def __init__(
        self,
        context: Context,
        view: QueueView,
        journal: Partition,
        *,
        before: QueueSummary | None = None,
    ) -> None:
        """Serve from a journal that is led here; `load` must run in a task.

        `before` is the summary with which the same leader has unloaded the partition.
        """
        self.number = journal.number
        self.key = journal.key
        self.view = view
        self.error: BrokerError | None = None
        """Reason that the partition is no longer served."""
        self.is_loaded = False
        self.loaded_to = 0
        """Messages below this offset were known when it was loaded, or are deleted."""
        self.waiters: dict[MessageWaiter, None] = {}
        self.immediate_waiters: dict[MessageWaiter, None] = {}
        """Waiters that are called as soon as it is known whether there are messages."""
        self.journal = Journal(
            context.env, context.group_commit, journal, on_snapshot=self._snapshot_committed
        )
        self._history = JournalHistory(
            self.journal,
            context.reader,
            context.search,
            deletion_ms=context.deletion_ms,
            probe=self.probe,
        )
        receipts = Receipts(queue_id=view.queue_id, partition=journal.number, key=view.receipt_key)
        config = view.config(journal.number)
        self.core = QueuePartition(config, receipts, order_for(config))
        self.records = SourceRecords(
            context.partitions,
            context.reader,
            view.source_id,
            number=journal.number,
            needs_all=bool(config.priority_weights) or config.fair_delivery,
        )
        self._context = context
        self._clock = context.env.clock
        self._expiry = Expiry(self.core, self.records, search=context.search)
        self._expiring = trio.Lock()
        self._quarantine = Quarantine(self.core, self.probe, self.decide)
        self._empty_cache = EmptyCache()
        self._watched: Partition | None = None
        """The replica of the source records at which it waits for more."""
        self._is_reading = False
        """Whether a read from the disk is under way for this partition; one at a time."""
        self.letters = FreshLetters(self.core)
        self._ended_leases = EndedLeases(self.core, before)
        self._letters_due_ms = 0
        """Time before which dead letters are not decided, after a failure."""
        self._has_changed = trio.Event()
        self._has_loaded = trio.Event()
        journal.watchers[self] = None

    @property
    def name(self) -> str:
        """The name of the queue."""
        return self.view.name

    def now_ms(self) -> int:
        """Return the time of the queue; see `queue_layer.collections.queue_clock`."""
        return self.core.time(self._clock.now_ms())

    # -- loading and unloading ------------------------------------------------------------------

    async def load(self) -> None:
        """Replay the journal; after that the partition serves requests."""
        try:
            await self._wait_until_caught_up()
            found = await self.journal.load(self._context.reader, self.core.state.apply)
            if self.error is not None:
                return
            if not found:
                start = self.view.start_offsets[self.number]
                self.decide(self.core.seek(start, now_ms=self.now_ms()))
            self.loaded_to = self.core.state.cursor
            self.letters.skip()
            self._ended_leases.applied()
            self.core.start(self.now_ms(), leader_epoch=self.journal.epoch)
            self.decide(self.core.adopt_kept(now_ms=self.now_ms()))
        except WireFormatError as error:
            self.drop(UnexpectedServerError(f"the journal cannot be decoded: {error}"))
        except BrokerError as error:
            self.drop(self.journal.partition.passing(error))
        else:
            self._ended_leases.loaded()
            self.has_moves = self.core.state.background_work >= BackgroundWork.MOVES
            self.is_loaded = True
            self.count_ended_leases()
            self._has_loaded.set()
            self.schedule()

    async def wait_loaded(self) -> None:
        """Wait until the partition is loaded.

        Raises:
            BrokerError: This broker does not serve the partition.
        """
        await self._has_loaded.wait()
        if self.error is not None:
            raise self.error

    async def catch_up(self) -> None:
        """Read all committed records that are not known yet.

        Raises:
            BrokerError: This broker does not serve the partition, or cannot read the records.
        """
        await self.wait_loaded()
        try:
            await self.expire_due()
            await self.trim_all()
            await self.records.drive(self.records.feed(self.core, lambda: False))
        except BrokerError as error:
            # The error of a failed disk is retriable: the next leader has another disk.
            raise self.journal.partition.passing(error) from error
        self._require_undamaged()
        if not self.core.state.is_ready:
            raise LeaderNotAvailableError(
                f"the messages of partition {self.number} of the queue are not all known here yet"
            )
        await self.advance_to_now()
        while self._dead_letter_part():
            await trio.lowlevel.checkpoint()

    async def advance_to_now(self) -> None:
        """Advance time to now, however many leases have ended; other tasks run meanwhile."""
        while not self.core.state.advance_in_part(self.now_ms()):
            await trio.lowlevel.checkpoint()

    async def wait_moved(self) -> None:
        """Wait until the dead letters so far are at their target, unless that takes too long.

        Raises:
            BrokerError: This broker does not serve the partition any more.
        """
        await self.letters.wait(is_served=lambda: self.error is None)
        if self.error is not None:
            raise self.error

    def when_moved(self, waiter: AckWaiter, index: int) -> None:
        """Call `waiter` after `wait_moved`."""
        start_supervised(self._context.nursery, self, self._tell_moved, waiter, index)

    async def _tell_moved(self, waiter: AckWaiter, index: int) -> None:
        with suppress(BrokerError):  # The journal tells it to the waiter.
            await self.wait_moved()
        waiter.acknowledged(index, AckLevel.DURABLE)

    async def wait_committed(self) -> None:
        """Wait until all decisions so far are committed.

        Raises:
            BrokerError: They may never be committed.
        """
        commit = CommitWait()
        self.journal.when_committed(commit, 0)
        self.schedule()
        with trio.move_on_after(COMMIT_TIMEOUT_S):
            await commit.wait()
            return
        raise RequestTimedOutError("not committed in time; it may be done or not")

    async def _wait_until_caught_up(self) -> None:
        while not self.journal.leader.has_caught_up:
            self._has_changed = trio.Event()
            await self._has_changed.wait()

    def drop(self, error: BrokerError) -> None:
        """Stop serving the partition; waiting requests get `error`."""
        if self.error is not None:
            return
        self.error = error
        self.journal.partition.watchers.pop(self, None)
        self._watch(None)
        self._has_loaded.set()
        self._has_changed.set()
        self.letters.wake()
        self._context.remove(self)
        self.journal.fail(error)
        waiters, self.waiters = self.waiters, {}
        for waiter in waiters:
            waiter.on_failure(self, error)

    @property
    def is_idle(self) -> bool:
        """Whether the partition can be unloaded: the journal has its whole state."""
        is_busy = self._is_reading or self._expiring.locked() or self.journal.has_pending
        return self.is_loaded and not (self.waiters or is_busy)

    def unload(self) -> None:
        """Drop the state of the partition, which no request uses."""
        assert self.is_idle, "only an idle partition is unloaded"
        self.count_ended_leases()
        self.drop(LeaderNotAvailableError("this partition of the queue must be loaded again"))

    def changed(self, partition: Partition) -> None:
        """See `broker.partitions.partition.Watcher`."""
        if not self.is_loaded:
            self._has_changed.set()
        if partition.leader is not self.journal.led_as:
            self.drop(self._context.not_led_error(self))

    def schedule(self) -> None:
        """Have the server call this partition in its next tick."""
        self._context.schedule(self)

    # -- deciding -------------------------------------------------------------------------------

    def require(self) -> Partition:
        """Raise, before a decision, unless it can be written to the journal; update settings.

        Return the replica of the records.

        Raises:
            BrokerError: It cannot be written; nothing was changed.
        """
        if self.error is not None:
            raise self.error
        self.journal.require()
        if self.metadata_version != self._context.metadata_version:
            self._context.check_view(self)
        source, expiry = self.records.partition(), self._expiry
        if source.log.log_start_offset > expiry.trimmed_below or expiry.trimmed_to is not None:
            self.trim()
        return source

    def use(self, view: QueueView) -> None:
        """Apply new settings, if they have changed.

        Raises:
            LeaderNotAvailableError: The partition must be loaded again.
        """
        if view is self.view or view.is_same(self.view):
            return
        config = view.config(self.number)
        if not self.core.can_configure(config):
            # The state depends on them, and is rebuilt from the journal.
            self.drop(LeaderNotAvailableError("the queue has other settings; ask again"))
            assert self.error is not None
            raise self.error
        self.view = view
        self.core.configure(config)
        self._expiry.restart()
        self._empty_cache.invalidate()
        self.decide(self.core.adopt_kept(now_ms=self.now_ms()))
        self.letters.note()

    def decide(self, outcome: Outcome[Reply]) -> Reply:
        """Apply a decision: it is appended soon, and no request is answered before."""
        entries = outcome.entries
        if entries:
            had_moves = self.has_moves
            state = self.core.state
            is_short = len(entries) == 1  # As `frames`, which takes a call more.
            frames = [JournalFrame(outcome.now_ms, [*entries])] if is_short else outcome.frames
            for frame in frames:
                try:
                    state.apply(frame)
                except BaseException:
                    # A defect: the state in memory may be inconsistent.
                    gone = "this partition of the queue must be loaded again"
                    self.drop(UnexpectedServerError(gone))
                    raise
                background_work = state.background_work
                self.has_moves = background_work >= BackgroundWork.MOVES
                self.journal.enqueue(frame, background_work)
            if len(entries) > 1 or not isinstance(entries[0], Received):
                self._context.counts.of(self.journal.partition.queue_name).decided(entries)
            if state.ended_leases:
                self.count_ended_leases()
            if had_moves or self.has_moves:
                self.letters.note()
        self._context.schedule(self)
        return outcome.reply

    @property
    def _counts(self) -> QueueTotals:
        return self._context.counts.of(self.journal.partition.queue_name)

    def count_ended_leases(self) -> None:
        """Count the leases that have ended since the last call."""
        if ended := self._ended_leases.take():
            self._counts.expired_leases += ended

    def dead_letter_exhausted(self) -> None:
        """Make messages dead letters whose last delivery has ended; of very many only a part."""
        state, now_ms = self.core.state, self.now_ms()
        has_some = state.exhausted or state.runs.exhausted_count
        is_due = has_some and now_ms >= self._letters_due_ms
        if not is_due or not self.is_loaded or self.error is not None or self._is_reading:
            return
        state.advance_in_part(now_ms)
        try:
            self._dead_letter_part()
        except BrokerError:  # Requests that need the journal get the error.
            self._letters_due_ms = now_ms + _RETRY_MS

    def _dead_letter_part(self) -> bool:
        """Decide about some messages that had all their deliveries; return whether some are left.

        Raises:
            BrokerError: The decision cannot be written.
        """
        if self.core.state.exhausted:
            self.require()
            self.decide(self.core.dead_letter_exhausted(now_ms=self.now_ms()))
        return bool(self.core.state.exhausted)

    def serve(self) -> None:
        """Decide about last deliveries, and serve waiting receives that have messages."""
        state = self.core.state
        if state.exhausted or state.runs.exhausted_count:
            self.dead_letter_exhausted()
        while self.waiters and self.error is None and not self._is_known_empty:
            first = next(iter(self.waiters))
            first.attempt(self)
            if first in self.waiters:
                break
        if self.immediate_waiters and self.error is None:
            for waiter in list(self.immediate_waiters):
                waiter.attempt(self)

    def flush(self) -> None:
        """Append pending decisions to the journal."""
        if self.error is None:
            now_ms = self.core.state.runs.time_ms  # That of the last decision.
            try:
                is_snapshot_due = self.journal.flush(now_ms=now_ms)
                if is_snapshot_due and self.is_loaded:
                    self.journal.append_snapshot(self.core.snapshot(now_ms=now_ms), now_ms=now_ms)
            except BrokerError as error:
                self.drop(error)

    def _snapshot_committed(self, offset: int) -> None:
        """Delete the journal before a snapshot, now or when it is old enough."""
        keep_ms = self.view.history_retention_ms
        if keep_ms == 0:
            self.journal.cut(offset)
        else:
            start_supervised(self._context.nursery, self, self._history.cut, offset, keep_ms)

    @property
    def next_deadline_ms(self) -> int | None:
        """Next time with messages for waiters, or dead letters (Unix ms); `None` in a read."""
        if not self.is_loaded or self.error is not None or self._is_reading:
            return None
        state = self.core.state
        if state.exhausted:
            return self._letters_due_ms
        is_awaited = self.waiters or state.runs.exhausted_count
        return state.next_deadline_ms if is_awaited else None

    def probe(self, event: str, **fields: object) -> None:
        """Report an event of this queue partition to the operator, with its queue and number."""
        self._context.env.probe(event, queue=self.name, partition=self.number, **fields)

    def summary(self) -> QueueSummary:
        """Return the messages as of now; of very many ended leases, only some count as visible."""
        state = self.core.state
        state.advance_in_part(self.now_ms())
        self.count_ended_leases()
        if state.exhausted:
            self._context.schedule_deadline(self)
        return summary_of(state)

    def seek(self, offset: int) -> None:
        """Decide that messages from an offset on are visible again."""
        self.decide(self.core.seek(offset, now_ms=self.now_ms()))
        self._expiry.restart()

    def trim(self) -> None:
        """Remove messages whose records the log has deleted; of very many only a part."""
        outcome = self._expiry.trim(self.now_ms())
        if outcome is None:
            return
        core = self.core
        before, seen_below = core.state.counts(), core.state.records_from
        self.decide(outcome)
        after = core.state.counts()
        count = sum(before) - sum(after)
        unseen = max(0, core.state.records_from - seen_below)
        if count > 0 or unseen:
            self.probe(
                "messages_gone",
                severity="warning",
                count=max(0, count),
                delayed=max(0, before.delayed - after.delayed),
                unseen=unseen,
            )

    # -- receiving ------------------------------------------------------------------------------

    def take(
        self, waiter: MessageWaiter, command: ReceiveCommand, max_bytes: int
    ) -> Delivery | EmptyReason:
        """Receive messages, up to what the command and `max_bytes` allow.

        Raises:
            BrokerError: No messages can be received here.
        """
        if self.error is not None:
            raise self.error
        if not self.is_loaded or self._is_reading:
            return EmptyReason.NOT_KNOWN_YET
        broker_ms = self._clock.now_ms()
        if self._expiry.due_ms <= broker_ms:
            self._is_reading = True
            start_supervised(self._context.nursery, self, self._expire)
            return EmptyReason.NOT_KNOWN_YET
        is_empty = False
        if self._watched is not None and command.attempt_id is None:
            is_empty = self._is_known_empty
        if not is_empty and command.is_repetition:
            is_empty = not self.core.may_deliver(command, now_ms=self.core.time(broker_ms))
        if is_empty:
            self._context.schedule_deadline(self)
            return EmptyReason.NO_MESSAGES
        source = self.require()
        if self._expiry.trimmed_to is not None:
            self._is_reading = True
            start_supervised(self._context.nursery, self, self._trim)
            return EmptyReason.NOT_KNOWN_YET
        if self._quarantine.held:
            self._quarantine.release_repaired(self.records)
        selection = self._select(waiter, command, source, max_bytes=max_bytes, broker_ms=broker_ms)
        try:
            cold = next(selection)
        except StopIteration as stop:
            result: Delivery | EmptyReason = stop.value
            return result
        self._is_reading = True
        start_supervised(self._context.nursery, self, self._take_cold, waiter, selection, cold)
        return EmptyReason.NOT_KNOWN_YET

    def _select(
        self,
        waiter: MessageWaiter,
        command: ReceiveCommand,
        source: Partition,
        *,
        max_bytes: int,
        broker_ms: int,
    ) -> Reading[Delivery | EmptyReason]:
        """Select and lease messages while `waiter` waits; yield slices to load from the disk.

        `broker_ms` is the broker's time, which stands still until it yields for the first time.

        Raises:
            BrokerError: No messages can be received here.
        """
        core, state, records = self.core, self.core.state, self.records
        has_enough = partial(self._has_enough, command.max_messages)

        while True:
            is_behind = state.unreceived.end < source.high_watermark
            wants_more = is_behind and (records.needs_all or not has_enough())
            # Damage that was found may be gone, with the records.
            if wants_more or records.damage is not None:
                yield from records.feed(core, has_enough)
            now_ms = self.now_ms() if self._is_reading else core.time(broker_ms)
            if not state.advance_in_part(now_ms) or state.exhausted:
                now_ms = yield from self._advance_in_parts()
            if self._is_reading and not waiter.is_waiting():
                return EmptyReason.NO_MESSAGES
            if state.unreceived.end < state.cursor and not core.config.is_fifo:
                self._await_news()
                return EmptyReason.NOT_KNOWN_YET
            plan = core.plan(command, now_ms=now_ms)
            if not plan.offers:
                if (yield from self._knows_all()):
                    return EmptyReason.NO_MESSAGES
                continue
            limit = max_bytes if plan.attempt is None else WITHOUT_LIMIT_BYTES
            source = records.partition() if self._is_reading else source
            gathered = yield from records.gather(
                plan.offers,
                source,
                max_bytes=limit,
                is_older=waiter.is_older,
                passes_damage=not core.config.is_fifo,
            )
            if self._is_reading and not waiter.is_waiting():
                return EmptyReason.NO_MESSAGES
            source = records.partition() if self._is_reading else source
            delivery = self._deliver(plan, gathered, source, now_ms=now_ms, broker_ms=broker_ms)
            if delivery is not None:
                return delivery

    def _knows_all(self) -> Reading[bool]:
        """Read some more records where the known ones have no message; return whether none is left.

        Raises:
            BrokerError: There are messages that cannot be delivered.
        """
        state, source = self.core.state, self.records.partition()
        self._require_undamaged()
        if state.records_from < source.high_watermark:
            more_until = state.records_from + _MORE_RECORDS
            yield from self.records.feed(self.core, lambda: state.records_from >= more_until)
            return False
        self._quarantine.require_none(source)
        self._empty_cache.set_empty(self.core, state.records_from)
        self._await_news()
        return True

    def _advance_in_parts(self) -> Reading[int]:
        """End all leases and delays that are over, in parts; return the time.

        Raises:
            BrokerError: The end of last deliveries cannot be written.
        """
        while not self.core.state.advance_in_part(now_ms := self.now_ms()):
            yield None
        while self._dead_letter_part():
            yield None
        return now_ms

    def _has_enough(self, wanted: int) -> bool:
        """Return whether enough records are known to choose messages among them."""
        state = self.core.state
        if state.unreceived.end < state.cursor and not self.core.config.is_fifo:
            return False  # None of them can be delivered.
        return state.visible_count >= 2 * wanted

    def _deliver(
        self,
        plan: ReceivePlan,
        gathered: Gathered,
        source: Partition,
        *,
        now_ms: int,
        broker_ms: int,
    ) -> Delivery | None:
        """Lease the messages that were found; `None` if another receive leased them meanwhile.

        Also `None` if further messages must be examined.
        """
        if self._is_reading:  # Time has passed since the check in `take`.
            self.require()
            broker_ms = self._clock.now_ms()
            now_ms = self.core.time(broker_ms)
        has_gaps = gathered.destroyed or gathered.unreadable
        if has_gaps and self._quarantine.hold(plan, gathered, now_ms=now_ms):
            return None
        if gathered.damage is not None and not gathered.taken:
            raise source.passing(gathered.damage)
        size, pieces = self.records.pieces(gathered, source)
        received = self.decide(self.core.receive(plan, gathered.taken, now_ms=now_ms))
        if not received.runs:
            return None
        counts = self._context.counts.of(self.journal.partition.queue_name)
        counts.delivered(received.runs)
        source.traffic.sent(size)
        # Clients count from the broker's time, which may be behind that of the queue.
        deadline_ms = received.deadline_ms - max(0, now_ms - broker_ms)
        return Delivery(replace(received, batch_bytes=size, deadline_ms=deadline_ms), pieces)

    def _require_undamaged(self) -> None:
        """Raise if there is damage that blocks the messages behind it.

        Raises:
            BrokerError: There is damage; another replica may have the records.
        """
        if self.records.damage is not None:
            raise self.records.partition().passing(self.records.damage)

    @property
    def _is_known_empty(self) -> bool:
        """Whether there is certainly nothing to receive."""
        source = self._watched
        return source is not None and self._empty_cache.is_empty(
            self.core, source.high_watermark, self.now_ms()
        )

    def wake(self) -> None:
        """See `broker.partitions.partition.DataWaiter`: there may be more records."""
        self._watched = None
        self.schedule()

    def _watch(self, source: Partition | None) -> None:
        """Wait for more records of this replica."""
        if self._watched is not None and self._watched is not source:
            self._watched.stop_waiting(self)
        self._watched = source
        if source is not None:
            source.wait_for_data(self)

    def _await_news(self) -> None:
        """Wait for more records, and for the end of leases and delays."""
        self._watch(self.records.partition())
        self._context.schedule_deadline(self)

    async def _take_cold(
        self,
        waiter: MessageWaiter,
        selection: Reading[Delivery | EmptyReason],
        cold: Work,
    ) -> None:
        result: Delivery | EmptyReason | BrokerError
        try:
            result = await self.records.resume(selection, cold)
        except BrokerError as error:
            result = self.journal.partition.passing(error)
        finally:
            # Cleared before the waiter is called, which may start another read at once.
            self._is_reading = False
            self.schedule()
        if isinstance(result, BrokerError):
            waiter.on_failure(self, result)
        elif isinstance(result, Delivery):
            waiter.on_delivery(self, result)
        elif waiter.is_waiting():
            waiter.attempt()

    async def _trim(self) -> None:
        """Trim all messages whose records the log has deleted, before a delivery."""
        try:
            await self.trim_all()
        except BrokerError as error:
            self.probe("messages_not_trimmed", severity="warning", reason=str(error))
        finally:
            self._is_reading = False
            self.schedule()

    async def trim_all(self) -> None:
        """Remove all messages whose records the log has deleted.

        Raises:
            BrokerError: The decision cannot be written.
        """
        self.require()
        while self._expiry.trimmed_to is not None:
            await trio.lowlevel.checkpoint()
            self.require()

    async def _expire(self) -> None:
        """Expire messages that are too old, before a delivery."""
        try:
            await self.expire_due()
        except BrokerError as error:
            # The messages stay visible for a while longer.
            self.probe("messages_not_expired", severity="warning", reason=str(error))
        finally:
            self._is_reading = False
            self.schedule()

    async def expire_due(self) -> int:
        """Expire messages that are too old, as far as the log can tell, if a check is due.

        Returns:
            A time before which no further message expires, in Unix milliseconds of the broker's
            clock.

        Raises:
            BrokerError: The log cannot be read, or the decision cannot be written.
        """
        expiry, now_ms = self._expiry, self._clock.now_ms()
        async with self._expiring:
            if now_ms < expiry.due_ms:
                return expiry.expires_ms
            expiry.postpone(now_ms)
            postponed_ms = expiry.due_ms
            deletion_ms = self._context.deletion_ms()
            if deletion_ms is None:
                expiry.postpone(now_ms, has_time=False)
                return expiry.expires_ms
            try:
                wait_ms = await self._expire_before(deletion_ms)
            except trio.Cancelled:
                expiry.due_ms = 0
                raise
            if expiry.due_ms == postponed_ms:  # Otherwise the queue was moved meanwhile.
                expiry.schedule(now_ms, wait_ms)
            return expiry.expires_ms

    async def _expire_before(self, deletion_ms: int) -> int:
        """Expire messages that are too old at a time; return the time to the next expiry.

        Raises:
            BrokerError: The log cannot be read, or the decision cannot be written.
        """
        await self.trim_all()
        before = await self._expiry.too_old_below(deletion_ms)
        kept_until_ms: list[int] = []
        steps = 0
        for first, end in self._expiry.slices(before):
            self.require()
            kept = self.decide(self.core.expire(end, first=first, now_ms=self.now_ms()))
            kept_until_ms += [] if kept is None else [kept]
            steps += 1
            await trio.lowlevel.checkpoint()
        return await self._expiry.wait_ms(
            before,
            kept_until_ms=min(kept_until_ms, default=None),
            steps=steps,
            now_ms=deletion_ms,
        )
