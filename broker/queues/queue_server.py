"""Server of the queue partitions whose journals this broker leads.

Shell: owns the one task that serves changed partitions. All events of one tick are served at once,
and their decisions become one batch of each journal. A tick comes at the end of a connection's
turn, as long as one connection is busy at a time; else in the task, for the requests of all
connections.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, Protocol, final
from weakref import WeakKeyDictionary

import trio

from tidelog.broker.maintenance.group_commit import GroupCommit
from tidelog.broker.metrics.object_counts import ObjectCounts
from tidelog.broker.metrics.queue_totals import QueueTotals
from tidelog.broker.partitions.log_reader import SliceReader
from tidelog.broker.partitions.offset_search import OffsetSearch
from tidelog.broker.partitions.partition import Partition
from tidelog.broker.partitions.replica_manager import ReplicaManager
from tidelog.broker.queues.dead_letters.mover import DeadLetterMover
from tidelog.broker.queues.dead_letters.resume import Resumer
from tidelog.broker.queues.dead_letters.topic_producer import TopicProducer
from tidelog.broker.queues.held_clock import HeldClock
from tidelog.broker.queues.partition.context import MessageWaiter
from tidelog.broker.queues.partition.hosted_partition import HostedPartition
from tidelog.broker.queues.partition.queue_summary import QueueSummary
from tidelog.broker.queues.queue_view import QueueView, is_current, view_of
from tidelog.broker.queues.supervisor import drop_for, start_supervised
from tidelog.broker.queues.turns import Turns
from tidelog.broker.requests.deadlines import Deadlines
from tidelog.coordinator.metadata.broker_delta import BrokerDelta, Key
from tidelog.coordinator.metadata.catalog import Topic
from tidelog.coordinator.node import ClusterNode
from tidelog.isr.leader import PartitionLeader
from tidelog.wire.env.env import Env
from tidelog.wire.errors import (
    BrokerError,
    ConnectionLostError,
    InvalidRequestError,
    LeaderNotAvailableError,
    NotLeaderError,
    UnknownQueueError,
    UnknownTopicIdError,
)
from tidelog.wire.messages.queues import GetPurgeOffsetRequest
from tidelog.wire.protocol import api

_CLOCK_LOOK_S: Final = 10.0
"""Maximum wait in seconds: deadlines are times of day, and the clock may jump."""
_ANSWER_S: Final = 5.0
_IDLE_S: Final = 600.0
"""Time in seconds without requests after which a partition is unloaded; the journal has it."""
_GLANCE_S: Final = 5.0
"""The same for a partition that was only loaded to be counted."""


class NewRequest(Protocol):
    """A request that has not waited for anything yet."""

    @property
    def is_done(self) -> bool:
        """Whether it is answered."""
        ...

    def park(self) -> None:
        """Wait for the commit of decisions, for messages, or for the end of its time."""
        ...


class NewReceive(MessageWaiter, NewRequest, Protocol):
    """A receive that has not looked for messages yet."""


class InTurn(Protocol):
    """Connections that call `QueueServer.end_turn` after the requests of a turn."""

    is_in_turn: bool
    """Whether that call follows before other tasks run."""


@final
class _NoConnections:
    is_in_turn = False


@final
class QueueServer:
    """Finds queue partitions, and serves their events."""

    connections: InTurn = _NoConnections()
    """The connections that call `end_turn`."""

    def __init__(
        self,
        env: Env,
        nursery: trio.Nursery,
        cluster: ClusterNode,
        *,
        partitions: ReplicaManager,
        group_commit: GroupCommit,
        search: OffsetSearch,
        deletion_ms: Callable[[], int | None] | None = None,
    ) -> None:
        """Serve the queue partitions of `cluster` that are led here; `run` must run in a task.

        The clock of `env` is the time of queues. `deletion_ms` returns the time that decides about
        deletion by time, `None` while nothing is deleted by time; that clock by default.
        """
        self.deletion_ms = env.clock.now_ms if deletion_ms is None else deletion_ms
        self.clock = HeldClock(env.clock)
        """The time of queues."""
        self.env = replace(env, clock=self.clock)
        self.nursery = nursery
        self.partitions = partitions
        self.group_commit = group_commit
        self.search = search
        self.reader = SliceReader(env)
        self.counts = ObjectCounts(QueueTotals)
        """What happened to messages, by name of the queue."""
        self._cluster = cluster
        self._producer = TopicProducer(cluster)
        self._hosted: dict[Key, HostedPartition] = {}
        self._movers: dict[HostedPartition, DeadLetterMover] = {}
        """Movers of the partitions in `_hosted`."""
        self._new_receives: list[NewReceive] = []
        self._new_decisions: list[NewRequest] = []
        """Requests whose decisions are made, and not in the journal."""
        self._touched: dict[HostedPartition, None] = {}
        self._to_plan: dict[HostedPartition, None] = {}
        self._deadlines: Deadlines[HostedPartition] = Deadlines()
        self.idle: WeakKeyDictionary[PartitionLeader, QueueSummary] = WeakKeyDictionary()
        """Messages of unloaded partitions, by the leader of the journal."""
        self._has_work = trio.Event()
        self._is_due = False
        """Whether a turn has set `_has_work`, so that others need not."""
        self._is_busy = False
        """Whether a tick is under way, or `end_turn` follows before other tasks run."""
        self._turns = Turns()
        self.metadata_version = 0
        """Grows with each change of the metadata."""
        self._until_deadline = trio.CancelScope()
        """Wait for the earliest deadline, which may move forward."""
        self.resumer = Resumer(self)
        for partition in partitions.all():
            self.resumer.check_soon(partition)
        partitions.listeners.append(self.resumer.check_soon)
        cluster.metadata.subscribe(self._on_metadata, hears_transactions=False)

    def __len__(self) -> int:
        """Return the number of partitions that are loaded or being loaded."""
        return len(self._hosted)

    def view(self, queue_id: bytes, cached: QueueView | None = None) -> QueueView:
        """Return the metadata of a queue: `cached`, if that is current.

        Raises:
            UnknownQueueError: The queue was deleted.
            UnknownTopicIdError: The queue is not known here, maybe not yet.
        """
        catalog = self._cluster.metadata.state.catalog
        if cached is not None and is_current(catalog, cached):
            return cached
        if not catalog.knows(queue_id):
            raise UnknownTopicIdError(f"no queue has the id {queue_id.hex()} here, maybe not yet")
        return view_of(catalog, queue_id)

    def check_view(self, hosted: HostedPartition) -> None:
        """Update the settings of a partition, after a change of the metadata.

        Raises:
            BrokerError: The queue was deleted, or must be loaded again.
        """
        version = self.metadata_version
        hosted.use(self.view(hosted.view.queue_id, hosted.view))
        hosted.metadata_version = version

    def has_queue(self, name: str) -> bool:
        """Return whether there is a queue with a name."""
        return self._cluster.metadata.state.catalog.has_queue(name)

    def queues_on(self, topic_id: bytes) -> list[Topic]:
        """Return the journals of the queues that stand on a topic."""
        return self._cluster.metadata.state.catalog.journals_of(topic_id)

    def find(self, queue_id: bytes, number: int) -> HostedPartition:
        """Return a queue partition that this broker serves or loads.

        Raises:
            UnknownQueueError: The queue does not exist.
            UnknownPartitionError: The queue has fewer partitions.
            NotLeaderError: Another broker serves it.
            LeaderNotAvailableError: No broker serves it at the moment.
        """
        hosted = self._hosted.get((queue_id, number))
        if hosted is None or hosted.metadata_version != self.metadata_version:
            view = self.view(queue_id, None if hosted is None else hosted.view)
        else:
            view = hosted.view
        journal = self.partitions.led(queue_id, number)
        if hosted is None or hosted.journal.led_as is not journal.leader:
            if hosted is not None:
                hosted.drop(self.not_led_error(hosted))
            assert journal.leader is not None, "the journal is led here"
            before = self.idle.pop(journal.leader, None)
            hosted = HostedPartition(self, view, journal, before=before)
            self._hosted[hosted.key] = hosted
            self._movers[hosted] = DeadLetterMover(self.nursery, self._producer, hosted)
            start_supervised(self.nursery, hosted, hosted.load)
        hosted.used_ms = self.clock.now_ms()
        return hosted

    def check_partition_count(self, queue_id: bytes, numbers: Sequence[int]) -> None:
        """Raise if a request names more partitions than a queue has.

        Raises:
            InvalidRequestError: It names more.
            UnknownQueueError: The queue does not exist.
        """
        hosted = self._hosted.get((queue_id, numbers[0])) if numbers else None
        if hosted is not None and hosted.metadata_version == self.metadata_version:
            view = hosted.view
        else:
            try:
                view = self.view(queue_id)
            except UnknownTopicIdError:
                return  # Each partition gets this error later.
        count = len(view.start_offsets)
        if len(numbers) > count:
            raise InvalidRequestError(
                f"the queue has {count} partitions, and the request names {len(numbers)}"
            )

    async def purged_below(self, queue_id: bytes, number: int) -> tuple[int, int | None]:
        """Return the committed end of the last purge of a partition.

        Also return the leader epoch of the journal, if it is led here.

        Raises:
            BrokerError: No broker serves the partition, or its broker does not answer.
        """
        journal = self.partitions.replica(queue_id, number)
        if journal is not None and journal.leader is not None:
            hosted = self.find(queue_id, number)
            await hosted.wait_loaded()
            below = hosted.core.state.purged_below
            await hosted.wait_committed()
            return below, hosted.journal.epoch
        known = self._cluster.metadata.state.partition(queue_id, number)
        if known is None or known.leader is None:
            raise LeaderNotAvailableError(f"partition {number} of the queue has no leader now")
        request = GetPurgeOffsetRequest(queue_id, number)
        try:
            reply = await self._cluster.peers.ask(
                known.leader, api.GET_PURGE_OFFSET, request, timeout_s=_ANSWER_S
            )
        except ConnectionLostError as error:
            raise LeaderNotAvailableError(
                f"broker {known.leader}, which serves partition {number} of the queue, does not"
                f" answer: {error}"
            ) from error
        return reply.below_offset, None

    def loaded(self, queue_id: bytes, number: int) -> HostedPartition | None:
        """Return a partition of a queue if it is in memory."""
        hosted = self._hosted.get((queue_id, number))
        return hosted if hosted is not None and hosted.journal.is_led else None

    def drained_end(self, queue_id: bytes, number: int) -> int | None:
        """Return the end of the records of a closed queue partition that has no messages.

        `None` for all others, and while this broker does not serve it.

        Raises:
            BrokerError: The queue does not exist.
        """
        partitions, view = self.partitions, self.view(queue_id)
        idle = partitions.idle.get((queue_id, number))
        is_served = partitions.may_lead and partitions.is_led(queue_id, number)
        if idle is None or not (idle.is_drained and is_served):
            return None
        bounds = partitions.bounds(view.source_id, number)
        return None if bounds is None else bounds[1]

    def is_at_rest(self, journal: Partition) -> bool:
        """Return whether a partition has no work before a request or a new message."""
        hosted = self._hosted.get(journal.key)
        if hosted is None:
            return not self.resumer.is_due(journal)
        is_busy = self._movers[hosted].is_moving or hosted.next_deadline_ms is not None
        return hosted.error is None and hosted.is_idle and not is_busy

    def is_drained(self, journal: Partition) -> bool:
        """Return whether a partition is known to have no messages; it is at rest."""
        hosted, leader = self._hosted.get(journal.key), journal.leader
        summary = None if leader is None else self.idle.get(leader)
        if hosted is not None and hosted.is_loaded:
            summary = hosted.summary()
        bounds = self.partitions.bounds(self.view(journal.topic_id).source_id, journal.number)
        if bounds is None:
            return False
        start, end = bounds
        if summary is None:
            return start == end
        is_empty = not (summary.visible or summary.in_flight or summary.delayed or summary.dead)
        return is_empty and summary.records_end == end

    def unload_soon(self, hosted: HostedPartition) -> None:
        """Unload a partition soon unless it is used: counting all queues does not use them."""
        if self._hosted.get(hosted.key) is hosted:
            hosted.used_ms = self.clock.now_ms() - round((_IDLE_S - _GLANCE_S) * 1000)
            self.schedule_deadline(hosted)

    def begin_turn(self) -> None:
        """Begin to serve requests, all of one moment: a connection calls `end_turn` after them."""
        self._is_busy = True
        self.clock.is_held = True

    def end_turn(self) -> None:
        """Serve the requests since `begin_turn`, now or together with those of other turns."""
        if not self._is_busy:
            return
        if self._turns.is_served_now():
            self._tick()
        else:
            self._is_busy = False
            self.clock.release()
            if not self._is_due:
                self._is_due = True
                self._has_work.set()

    def receive(self, receive: NewReceive) -> None:
        """Have a receive look for messages, together with the others of this tick."""
        self._new_receives.append(receive)
        if not self._is_busy:
            self._has_work.set()

    def decided(self, request: NewRequest) -> None:
        """Park a request after this tick, unless it is answered in it."""
        self._new_decisions.append(request)
        if not self._is_busy:
            self._has_work.set()

    def not_led_error(self, hosted: HostedPartition) -> BrokerError:
        """Return the error of a partition that is no longer served here."""
        try:
            self.view(hosted.view.queue_id)
        except UnknownQueueError:
            return UnknownQueueError(f"queue {hosted.name!r} was deleted")
        except UnknownTopicIdError as error:
            return error
        return NotLeaderError(
            f"another broker serves partition {hosted.number} of queue {hosted.name!r} now"
        )

    def schedule(self, hosted: HostedPartition) -> None:
        """Schedule a tick for a partition."""
        self._touched[hosted] = None
        if self._is_busy:
            return
        if self.connections.is_in_turn:
            self.begin_turn()  # A record that arrives is received at the end of its turn.
        else:
            self._has_work.set()

    def schedule_deadline(self, hosted: HostedPartition) -> None:
        """Schedule a tick for a partition's next deadline."""
        self._to_plan[hosted] = None
        if not self._is_busy:
            self._has_work.set()

    def remove(self, hosted: HostedPartition) -> None:
        """Remove a partition after a failure."""
        if self._remove(hosted) and hosted.journal.is_led:
            # After a failure, its background work resumes when it is loaded again.
            self.resumer.retry_later(hosted.journal.partition)

    def _remove(self, hosted: HostedPartition) -> bool:
        """Return whether the partition was hosted."""
        self._deadlines.discard(hosted)
        if self._hosted.get(hosted.key) is not hosted:
            return False
        del self._hosted[hosted.key], self._movers[hosted]
        return True

    def _on_metadata(self, delta: BrokerDelta) -> None:
        self.metadata_version += 1
        for topic_id in delta.altered_topics:
            topic = self._cluster.metadata.state.catalog.topic_by_id(topic_id)
            count = 0 if topic is None or topic.queue is None else topic.partition_count
            for number in range(count):
                partition = self.partitions.replica(topic_id, number)
                if partition is not None:
                    self.resumer.check_soon(partition, has_new_settings=True)

    async def run(self) -> None:
        """Serve events, until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.resumer.run)
            nursery.start_soon(self._run_deadlines)
            await self._run_ticks()

    async def _run_deadlines(self) -> None:
        while True:
            deadline = self._deadlines.next_deadline
            with trio.CancelScope(deadline=math.inf if deadline is None else deadline) as scope:
                self._until_deadline = scope
                await trio.sleep_forever()
            for hosted in self._deadlines.take_expired(trio.current_time()):
                hosted.tick_at = None
                self._touched[hosted] = None
            self.clock.is_held = True
            self._tick()

    async def _run_ticks(self) -> None:
        while True:
            await self._has_work.wait()
            self._has_work = trio.Event()
            self._is_due = False
            self._turns.ticked()
            self.clock.is_held = True
            self._tick()

    def _tick(self) -> None:
        """Serve all events; the clock is held."""
        self._is_busy = True
        try:
            receives, self._new_receives = self._new_receives, []
            for receive in receives:
                receive.attempt()
            touched, self._touched = self._touched, {}
            self._serve(touched)
            decisions, self._new_decisions = self._new_decisions, []
            for request in (*receives, *decisions):
                if not request.is_done:
                    request.park()
            planned, self._to_plan = self._to_plan, {}
            for hosted in touched:
                state = hosted.core.state
                is_awaited = hosted.waiters or state.exhausted or state.runs.exhausted_count
                if is_awaited or hosted.tick_at is None:
                    planned[hosted] = None
            for hosted in planned:
                try:
                    self._set_deadline(hosted)
                except Exception as error:  # noqa: BLE001  (the supervisor)
                    drop_for(hosted, error)
        finally:
            self._is_busy = False
            self.clock.release()
        if self._touched or self._to_plan or self._new_receives or self._new_decisions:
            self._has_work.set()  # Requests that ended have made decisions.

    def _serve(self, touched: dict[HostedPartition, None]) -> None:
        """Serve partitions and append their decisions; add those that get decisions meanwhile."""
        for hosted in touched:
            state = hosted.core.state
            if not (hosted.waiters or state.exhausted or state.runs.exhausted_count):
                continue
            try:
                hosted.serve()
            except Exception as error:  # noqa: BLE001  (the supervisor)
                drop_for(hosted, error)
        if self._touched:
            # Serving one partition may have made decisions at another.
            touched |= self._touched
            self._touched = {}
        for hosted in touched:
            try:
                hosted.flush()
                if hosted.has_moves and hosted.is_loaded and hosted.error is None:
                    self._movers[hosted].start_due()
            except Exception as error:  # noqa: BLE001  (the supervisor)
                drop_for(hosted, error)

    def _set_deadline(self, hosted: HostedPartition) -> None:
        """Set the time at which a partition gets a tick without an event, if that is earlier.

        A tick that comes too early sets the next one.
        """
        if hosted.error is not None:
            return
        deadline_ms = hosted.next_deadline_ms
        now_ms = self.clock.now_ms()
        if deadline_ms is None:
            if not hosted.is_idle or self._movers[hosted].is_moving:
                # The event that ends this work touches it, and sets the next deadline.
                self._deadlines.discard(hosted)
                hosted.tick_at = None
                return
            in_s = (hosted.used_ms - now_ms) / 1000 + _IDLE_S
            if in_s <= 0:
                # Removed first: there was no failure, and no work is to be resumed.
                self._remove(hosted)
                if hosted.journal.is_led:
                    self.idle[hosted.journal.leader] = hosted.summary()
                hosted.unload()
                return
        else:
            in_s = min(max((deadline_ms - hosted.now_ms()) / 1000, 0), _CLOCK_LOOK_S)
        deadline = trio.current_time() + in_s
        if hosted.tick_at is not None:
            if hosted.tick_at <= deadline:
                return
            self._deadlines.discard(hosted)
        hosted.tick_at = deadline
        if self._deadlines.add(hosted, deadline):
            self._until_deadline.deadline = deadline
