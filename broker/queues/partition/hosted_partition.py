"""One partition of a queue, served by this broker as long as it leads the journal.

Shell: owns the task that loads it, and one that reads from the disk when messages are not in
memory. All else is plain calls: nothing comes between a decision and its effect. What is handed out
is chosen in `broker.queues.partition.message_selector`.
"""

from typing import Protocol, TypeVar, final

import trio

from tidelog.broker.handlers.offsets import OffsetsHandler
from tidelog.broker.maintenance.group_commit import Flusher
from tidelog.broker.partitions.log_reader import SliceReader
from tidelog.broker.partitions.partition import Partition
from tidelog.broker.partitions.replica_manager import Partitions
from tidelog.broker.queues.partition.delivery import Nothing, Taken
from tidelog.broker.queues.partition.expiry import OutdatedMessages
from tidelog.broker.queues.partition.journal import Journal
from tidelog.broker.queues.partition.journal_retention import cut_history
from tidelog.broker.queues.partition.message_selector import Taking
from tidelog.broker.queues.partition.moving import Moving
from tidelog.broker.queues.partition.record_reader import RecordReading
from tidelog.broker.queues.partition.source_records import Reading, SourceRecords
from tidelog.broker.queues.queue_view import QueueFacts
from tidelog.broker.queues.supervision import start_supervised
from tidelog.broker.requests.commit_wait import COMMIT_TIMEOUT_S, Commit
from tidelog.logstore.segments.log_slice import LogSlice
from tidelog.queue_layer.commands.receive import ReceiveCommand
from tidelog.queue_layer.ordering.factory import order_for
from tidelog.queue_layer.outcome import Outcome
from tidelog.queue_layer.queue_partition import QueuePartition
from tidelog.queue_layer.receipts import Receipts
from tidelog.wire.env.env import Env
from tidelog.wire.errors import (
    BrokerError,
    LeaderNotAvailableError,
    RequestTimedOutError,
    UnexpectedServerError,
    WireFormatError,
)

Result = TypeVar("Result")
Reply = TypeVar("Reply")


class MessageWaiter(Protocol):
    """A receive that waits."""

    def is_waiting(self) -> bool:
        """Return whether it has no messages yet."""
        ...

    def attempt(self, news_at: "ServedPartition | None" = None) -> None:
        """There may be messages; if only one of its partitions has news, at that one."""
        ...

    def took(self, served: "ServedPartition", taken: Taken) -> None:
        """These were read from the disk for it, and are its own."""
        ...

    def failed_at(self, served: "ServedPartition", error: BrokerError) -> None:
        """There will be none here."""
        ...


class QueueSurroundings(Protocol):
    """What a partition of a queue needs of the broker that serves it."""

    env: Env
    nursery: trio.Nursery
    """For tasks that live as long as the broker."""
    partitions: Partitions
    flusher: Flusher
    offsets: OffsetsHandler
    reader: SliceReader

    def mover_of(self, served: "ServedPartition") -> Moving:
        """Return what moves dead letters of a partition."""
        ...

    def facts(self, queue_id: bytes, known: QueueFacts | None = None) -> QueueFacts:
        """Return what the metadata says of a queue: `known`, if it is still so.

        Raises:
            UnknownQueueError: It was deleted.
            UnknownTopicIdError: It is not known here, maybe not yet.
        """
        ...

    def why_not_led(self, served: "ServedPartition") -> BrokerError:
        """Return why a partition is not served here any more."""
        ...

    def touch(self, served: "ServedPartition") -> None:
        """Attend to a partition soon."""
        ...

    def plan(self, served: "ServedPartition") -> None:
        """Attend to a partition when something happens by itself."""
        ...

    def forget(self, served: "ServedPartition") -> None:
        """Have it no more."""
        ...


@final
class ServedPartition:
    """A partition of a queue.

    Invariant: whoever waits here is told of whatever may give it messages: by the records when more
    are committed, by the deadlines of the server, and after every entry.
    """

    def __init__(
        self, surroundings: QueueSurroundings, facts: QueueFacts, journal: Partition
    ) -> None:
        """Serve from the journal, which is led here; `load` must run in a task."""
        self.number = journal.number
        self.key = journal.key
        self.facts = facts
        self.error: BrokerError | None = None
        """Why it is not served any more."""
        self.is_loaded = False
        self.loaded_to = 0
        """What is below was there when it was loaded, or is done."""
        self.waiters: dict[MessageWaiter, None] = {}
        self.impatient: dict[MessageWaiter, None] = {}
        """Those of them that are to be told as soon as it is known whether there is something."""
        self.journal = Journal(
            surroundings.env, surroundings.flusher, journal, on_snapshot=self._snapshot_committed
        )
        receipts = Receipts(
            queue_id=facts.queue_id, partition=journal.number, key=facts.receipt_key
        )
        config = facts.config(journal.number)
        self.core = QueuePartition(config, receipts, order_for(config))
        self.records = SourceRecords(
            surroundings.partitions, surroundings.reader, facts.source_id, number=journal.number
        )
        self.reading = RecordReading(self.records, surroundings.reader)
        self._surroundings = surroundings
        self._mover = surroundings.mover_of(self)
        self._outdated = OutdatedMessages(
            self.core, self.records, self.reading, offsets=surroundings.offsets
        )
        self._taking = Taking(self, lambda: surroundings.plan(self), facts.name)
        self._is_reading = False
        """Whether something is read from the disk for this partition; one at a time."""
        self._is_cutting = False
        """Whether somebody looks how much of the journal is old enough to go."""
        self._has_changed = trio.Event()
        self._has_loaded = trio.Event()
        journal.watchers[self] = None

    def now_ms(self) -> int:
        """Return the time of day here."""
        return self._surroundings.env.clock.now_ms()

    # -- coming and going -----------------------------------------------------------------------

    async def load(self) -> None:
        """Learn what the journal says; then it can be asked."""
        try:
            await self._wait_until_caught_up()
            found = await self.journal.load(self._surroundings.reader, self.core.apply)
            if self.error is not None:
                return
            if not found:
                start = self.facts.start_offsets[self.number]
                self.decide(self.core.seek(start, now_ms=self.now_ms()))
            self.loaded_to = self.core.cursor
            self.core.serve(self.now_ms(), leader_epoch=self.journal.epoch)
            self.decide(self.core.adopt_kept(now_ms=self.now_ms()))
        except WireFormatError as error:
            self.drop(UnexpectedServerError(f"the journal cannot be understood: {error}"))
        except BrokerError as error:
            self.drop(self.journal.partition.passing(error))
        else:
            self.is_loaded = True
            self._has_loaded.set()
            self.touch()

    async def wait_loaded(self) -> None:
        """Wait until it can be asked.

        Raises:
            BrokerError: It is not served here.
        """
        await self._has_loaded.wait()
        if self.error is not None:
            raise self.error

    async def catch_up(self) -> None:
        """Learn of all records that are committed.

        Raises:
            BrokerError: It is not served here, or they cannot be read.
        """
        await self.wait_loaded()
        try:
            await self.trim_all()
            await self.reading.drive(self.reading.feed(self.core, lambda: False))
        except BrokerError as error:
            # Of a disk that has failed here: whoever leads next has another one.
            raise self.journal.partition.passing(error) from error
        self._taking.require_undamaged()
        if not self.core.is_ready:
            raise LeaderNotAvailableError(
                f"the messages of partition {self.number} of the queue are not all known here yet"
            )
        await self.reach_now()

    async def reach_now(self) -> None:
        """Let time pass, however many leases have ended; others have their turn meanwhile."""
        while not self.core.advance_in_part(self.now_ms()):
            await trio.lowlevel.checkpoint()

    async def committed(self) -> None:
        """Wait until all is committed that was decided so far.

        Raises:
            BrokerError: It may never be.
        """
        commit = Commit()
        self.journal.when_committed(commit, 0)
        self.touch()
        with trio.move_on_after(COMMIT_TIMEOUT_S):
            await commit.wait()
            return
        raise RequestTimedOutError("not committed in time; it may be done or not")

    async def _wait_until_caught_up(self) -> None:
        while not self.journal.leader.has_caught_up:
            self._has_changed = trio.Event()
            await self._has_changed.wait()

    def drop(self, error: BrokerError) -> None:
        """Serve it no more; everybody who waits is told why."""
        if self.error is not None:
            return
        self.error = error
        self.journal.partition.watchers.pop(self, None)
        self._taking.watch(None)
        self._has_loaded.set()
        self._has_changed.set()
        self._surroundings.forget(self)
        self.journal.fail(error)
        waiters, self.waiters = self.waiters, {}
        for waiter in waiters:
            waiter.failed_at(self, error)

    @property
    def is_idle(self) -> bool:
        """Whether nobody would miss what is known here: the journal has it."""
        is_busy = self._is_reading or self.journal.has_staged or self._mover.is_moving
        return self.is_loaded and not (self.waiters or is_busy)

    def unload(self) -> None:
        """Forget what is known here, of which nobody makes use."""
        assert self.is_idle, "somebody uses it"
        self.drop(LeaderNotAvailableError("this partition of the queue must be loaded anew"))

    def changed(self, partition: Partition) -> None:
        """See `broker.partitions.partition.Watcher`."""
        del partition
        self._has_changed.set()
        if not self.journal.is_led:
            self.drop(self._surroundings.why_not_led(self))

    def touch(self) -> None:
        """Have `attend` called soon."""
        self._surroundings.touch(self)

    # -- deciding -------------------------------------------------------------------------------

    def require(self) -> None:
        """Check, before anything is decided, that it can be written, and is up to date.

        Raises:
            BrokerError: It cannot; nothing has happened.
        """
        if self.error is not None:
            raise self.error
        self.journal.require()
        facts = self._surroundings.facts(self.facts.queue_id, self.facts)
        if facts is not self.facts and not facts.is_same(self.facts):
            self._configure(facts)
        self.trim()

    def _configure(self, facts: QueueFacts) -> None:
        """Let other settings be in force from now on."""
        before, config = self.core.config, facts.config(self.number)
        if (before.lanes, before.has_fairness) != (config.lanes, config.has_fairness):
            # The order of delivery is another one, and made from the journal.
            self.drop(LeaderNotAvailableError("the queue has other settings; ask again"))
            assert self.error is not None
            raise self.error
        self.facts = facts
        self.core.configure(config)
        self._taking.forget()
        self.decide(self.core.adopt_kept(now_ms=self.now_ms()))

    def decide(self, outcome: Outcome[Reply]) -> Reply:
        """Carry out a decision: it is appended soon, and nobody is answered before."""
        for frame in outcome.frames:
            try:
                self.core.apply(frame)
            except BaseException:
                # A defect: what is known here may be anything.
                self.drop(UnexpectedServerError("this partition of the queue must be loaded anew"))
                raise
            self.journal.stage(frame, self.core.background_work)
        self.touch()
        return outcome.reply

    def attend(self) -> None:
        """Serve those who wait, as many as there are messages for."""
        while self.waiters and self.error is None and not self._taking.is_known_empty:
            first = next(iter(self.waiters))
            first.attempt(self)
            if first in self.waiters:
                break
        for waiter in list(self.impatient) if self.error is None else ():
            waiter.attempt(self)

    def flush(self) -> None:
        """Append what was decided."""
        if self.error is None and self.journal.has_staged:
            now_ms = self.now_ms()
            try:
                self.journal.flush(now_ms=now_ms)
                if self.is_loaded and self.journal.is_snapshot_due:
                    self.journal.append_snapshot(self.core.snapshot(now_ms=now_ms), now_ms=now_ms)
            except BrokerError as error:
                self.drop(error)
        if self.is_loaded and self.error is None:
            self._mover.look()

    def _snapshot_committed(self, offset: int) -> None:
        """Let go of what is before a snapshot, now or when it is old enough."""
        if self.facts.history_ms == 0:
            self.journal.cut(offset)
        elif not self._is_cutting:
            self._is_cutting = True
            start_supervised(self._surroundings.nursery, self, self._cut_history, offset)

    async def _cut_history(self, snapshot_offset: int) -> None:
        try:
            await cut_history(
                self.journal,
                self._surroundings.reader,
                self._surroundings.offsets,
                snapshot_offset=snapshot_offset,
                keep_from_ms=self.now_ms() - self.facts.history_ms,
            )
        except (BrokerError, WireFormatError) as error:
            self.probe(
                "queue_history_not_cut",
                severity="warning",
                queue=self.facts.name,
                partition=self.number,
                reason=str(error),
            )
        finally:
            self._is_cutting = False

    @property
    def next_deadline_ms(self) -> int | None:
        """When those who wait may get something by itself (Unix milliseconds): not in a read."""
        if not self.waiters or not self.is_loaded or self.error is not None or self._is_reading:
            return None
        return self.core.next_deadline_ms

    def probe(self, event: str, *, severity: str, **fields: object) -> None:
        """Tell the operator."""
        self._surroundings.env.probe(event, severity=severity, **fields)

    def trim(self) -> None:
        """Let go of what the log has lost, of very much only of a part."""
        outcome = self._outdated.trim(self.now_ms())
        if outcome is not None:
            self._taking.unreadable.gone(lambda: self.decide(outcome))

    # -- receiving ------------------------------------------------------------------------------

    def take(
        self, waiter: MessageWaiter, command: ReceiveCommand, bytes_max: int
    ) -> Taken | Nothing:
        """Take messages, as many as there are and are wanted.

        Raises:
            BrokerError: There are none to be had here.
        """
        if self.error is not None:
            raise self.error
        if not self.is_loaded or self._is_reading:
            return Nothing.NOT_KNOWN_YET
        if self._outdated.is_expiry_due(self.now_ms()):
            self._is_reading = True
            start_supervised(self._surroundings.nursery, self, self._expire)
            return Nothing.NOT_KNOWN_YET
        if command.attempt_id is None and self._taking.is_known_empty:
            self._surroundings.plan(self)
            return Nothing.THERE_IS_NONE
        self.require()
        if self._outdated.is_trimming:
            self._is_reading = True
            start_supervised(self._surroundings.nursery, self, self._trim)
            return Nothing.NOT_KNOWN_YET
        self._taking.unreadable.look_again(self.records.partition())
        taking = self._taking.take(waiter.is_waiting, command, bytes_max)
        try:
            cold = next(taking)
        except StopIteration as stop:
            result: Taken | Nothing = stop.value
            return result
        self._is_reading = True
        start_supervised(self._surroundings.nursery, self, self._take_cold, waiter, taking, cold)
        return Nothing.NOT_KNOWN_YET

    async def _trim(self) -> None:
        """Let go of all that the log has lost, before anything is handed out."""
        try:
            await self.trim_all()
        except BrokerError as error:
            self.probe("messages_not_trimmed", severity="warning", reason=str(error))
        finally:
            self._is_reading = False
            self.touch()

    async def trim_all(self) -> None:
        """Let go of what the log has lost, however much it is.

        Raises:
            BrokerError: It cannot be written.
        """
        self.require()
        while self._outdated.is_trimming:
            await trio.lowlevel.checkpoint()
            self.require()

    async def _expire(self) -> None:
        """Do away with what is too old, as far as the log can tell."""
        try:
            await self.trim_all()
            before = await self._outdated.too_old_below(self.now_ms())
            for end in self._outdated.slices(before):
                self.require()
                self.decide(self.core.expire(end, now_ms=self.now_ms()))
                await trio.lowlevel.checkpoint()
        except BrokerError as error:
            # They are handed out a while longer.
            self.probe("messages_not_expired", severity="warning", reason=str(error))
        finally:
            self._is_reading = False
            self.touch()

    async def _take_cold(
        self,
        waiter: MessageWaiter,
        taking: Reading[Taken | Nothing],
        cold: LogSlice | None,
    ) -> None:
        result: Taken | Nothing | BrokerError
        try:
            result = await self.reading.go_on(taking, cold)
        except BrokerError as error:
            result = self.journal.partition.passing(error)
        finally:
            # Not after the waiter was told: it may look for more at once, and read itself.
            self._is_reading = False
            self.touch()
        if isinstance(result, BrokerError):
            waiter.failed_at(self, result)
        elif isinstance(result, Taken):
            waiter.took(self, result)
        elif waiter.is_waiting():
            waiter.attempt()
