"""Taking messages of a partition for who receives: which ones there are, and where they lie.

Shell without tasks: what has to come from the disk is yielded, see
`broker.queues.partition.source_records.Reading`.
"""

from collections.abc import Callable
from typing import Final, Protocol, TypeVar, final

from tidelog.broker.partitions.partition import Partition
from tidelog.broker.queues.partition.batch_cache import KnownEmpty
from tidelog.broker.queues.partition.delivery import Nothing, Taken, taken_of
from tidelog.broker.queues.partition.journal import Journal
from tidelog.broker.queues.partition.record_reader import RecordReading
from tidelog.broker.queues.partition.source_records import Gathered, Reading, SourceRecords
from tidelog.broker.queues.partition.unreadable import UnreadableMessages
from tidelog.queue_layer.commands.receive import ReceiveCommand, ReceivePlan
from tidelog.queue_layer.outcome import Outcome
from tidelog.queue_layer.queue_partition import QueuePartition

Reply = TypeVar("Reply")

_MORE_RECORDS: Final = 20_000
"""Are looked at when there was nothing to hand out among those that are known."""


class Deciding(Protocol):
    """A partition of a queue, as far as it decides."""

    core: QueuePartition
    records: SourceRecords
    reading: RecordReading
    journal: Journal

    def now_ms(self) -> int:
        """Return the time of day here."""
        ...

    def require(self) -> None:
        """Check, before anything is decided, that it can be written, and is up to date.

        Raises:
            BrokerError: It cannot; nothing has happened.
        """
        ...

    def decide(self, outcome: Outcome[Reply]) -> Reply:
        """Carry out a decision: it is appended soon, and nobody is answered before."""
        ...

    def probe(self, event: str, *, severity: str, **fields: object) -> None:
        """Tell the operator."""
        ...

    def touch(self) -> None:
        """Have it looked after soon."""
        ...


@final
class Taking:
    """What can be taken of one partition of a queue, as far as it is known."""

    def __init__(self, served: Deciding, plan: Callable[[], None], queue: str) -> None:
        """Take of `served`; `plan` has it attended to when something happens by itself."""
        self.unreadable = UnreadableMessages(served.core, queue, served.probe)
        self._served = served
        self._core = served.core
        self._plan = plan
        self._known_empty = KnownEmpty()
        self._watched: Partition | None = None
        """Whose news of records are waited for."""

    @property
    def is_known_empty(self) -> bool:
        """Whether there is nothing to be had, without a doubt."""
        source = self._watched
        return source is not None and self._known_empty.holds(
            self._core, source.high_watermark, self._served.now_ms()
        )

    def forget(self) -> None:
        """Take note that there may be something, whatever was so."""
        self._known_empty.forget()

    def require_undamaged(self) -> None:
        """Check that there is no damage behind which nobody may look.

        Raises:
            BrokerError: There is; maybe another replica has what is there.
        """
        records = self._served.records
        if records.damage is not None:
            raise records.partition().passing(records.damage)

    # -- news of records ------------------------------------------------------------------------

    def wake(self) -> None:
        """See `broker.partitions.partition.DataWaiter`: there may be more records."""
        self._watched = None
        self._served.touch()

    def watch(self, partition: Partition | None) -> None:
        """Hear of more records of this replica."""
        if self._watched is not None and self._watched is not partition:
            self._watched.stop_waiting(self)
        self._watched = partition
        if partition is not None:
            partition.wait_for_data(self)

    def _await_news(self) -> None:
        """Hear of more records, and of leases and delays that end."""
        self.watch(self._served.records.partition())
        self._plan()

    # -- taking ---------------------------------------------------------------------------------

    def take(
        self, is_waiting: Callable[[], bool], command: ReceiveCommand, bytes_max: int
    ) -> Reading[Taken | Nothing]:
        """Take messages, as many as there are and are wanted, while somebody wants them.

        Raises:
            BrokerError: There are none to be had here.
        """
        core, reading = self._core, self._served.reading

        def is_enough() -> bool:
            return self._can_offer and core.counts()[0] >= 2 * command.max_messages

        def is_much_more() -> bool:
            return core.records_from >= more_until

        while True:
            yield from reading.feed(core, is_enough)
            yield from self._reach_now()
            if not is_waiting():
                return Nothing.THERE_IS_NONE
            now_ms = self._served.now_ms()
            if not self._can_offer:
                self._await_news()
                return Nothing.NOT_KNOWN_YET
            is_worth_it = core.counts()[0] or command.attempt_id is not None
            plan = core.plan(command, now_ms=now_ms) if is_worth_it else None
            offers = [] if plan is None else list(plan)
            if plan is None or not (offers or plan.exhausted):
                records = self._served.records
                self.require_undamaged()
                if core.records_from < records.partition().high_watermark:
                    more_until = core.records_from + _MORE_RECORDS
                    yield from reading.feed(core, is_much_more)
                    continue
                self.unreadable.require_none(records.partition())
                self._known_empty.found_none(core, core.records_from)
                self._await_news()
                return Nothing.THERE_IS_NONE
            limit = bytes_max if plan.attempt is None else 1 << 62
            gathered = yield from self._served.records.gather(
                offers, bytes_max=limit, passes_damage=not core.config.is_fifo
            )
            if not is_waiting():
                return Nothing.THERE_IS_NONE
            taken = self._received(plan, gathered)
            if taken is not None:
                return taken

    def _reach_now(self) -> Reading[None]:
        """Let time pass, however many leases have ended."""
        while not self._core.advance_in_part(self._served.now_ms()):
            yield None

    def _received(self, plan: ReceivePlan, gathered: Gathered) -> Taken | None:
        """Decide what was read; `None` if somebody else was faster, or there is more to look at."""
        served = self._served
        served.require()
        if self.unreadable.hold(plan, gathered):
            return None
        if gathered.damage is not None and not gathered.taken:
            raise served.records.partition().passing(gathered.damage)
        pieces = served.reading.pieces(gathered.batches)
        outcome = self._core.receive(plan, gathered.taken, now_ms=served.now_ms())
        received = served.decide(outcome)
        return taken_of(received, pieces) if received.runs else None

    @property
    def _can_offer(self) -> bool:
        """Whether it knows enough records to hand out some."""
        return self._core.is_ready or self._core.config.is_fifo
