"""Resumption of background work by the new leader of a journal.

Shell: owns one task. When this broker begins to lead the journal of a queue, and when the settings
of a queue change, the task reads the last frame of the journal, which says whether there is work
(`wire.messages.queue_journal.BackgroundWork`). Only then is the partition loaded. So ten thousand
idle queues cost a read of some hundred bytes each, a few at a time, and no memory.
"""

from contextlib import suppress
from typing import Final, Protocol, final

import trio

from tidelog.broker.maintenance.group_commit import GroupCommit
from tidelog.broker.partitions.log_reader import SliceReader
from tidelog.broker.partitions.partition import Partition
from tidelog.broker.partitions.replica_manager import ReplicaManager
from tidelog.broker.queues.partition.hosted_partition import HostedPartition
from tidelog.broker.queues.partition.journal import Journal
from tidelog.broker.queues.queue_view import QueueView
from tidelog.broker.queues.supervisor import surviving
from tidelog.wire.env.env import Env
from tidelog.wire.errors import BrokerError, WireFormatError
from tidelog.wire.messages.queue_journal import BackgroundWork

_AT_ONCE: Final = 4
"""Maximum number of journals read at a time; more would delay requests for queues."""
_LOADING_S: Final = 5.0
"""Time in seconds for which a slow load occupies one of these places."""
_RETRY_S: Final = 5.0


class LocalQueues(Protocol):
    """The queues of this broker, as far as resumption needs them."""

    env: Env
    partitions: ReplicaManager
    group_commit: GroupCommit
    reader: SliceReader

    def view(self, queue_id: bytes) -> QueueView:
        """Return the metadata of a queue.

        Raises:
            BrokerError: The queue is not known.
        """
        ...

    def find(self, queue_id: bytes, number: int) -> HostedPartition:
        """Return a queue partition that this broker serves or loads.

        Raises:
            BrokerError: This broker does not serve it.
        """
        ...

    def loaded(self, queue_id: bytes, number: int) -> HostedPartition | None:
        """Return a partition of a queue if it is in memory."""
        ...


@final
class Resumer:
    """Loads the partitions of queues that have background work.

    Invariant: every journal that is led here and not loaded is due, or had no work at its last
    check and no writes since.
    """

    def __init__(self, queues: LocalQueues) -> None:
        """Start without partitions; `run` must run in a task."""
        self._queues = queues
        self._due: dict[Partition, None] = {}
        self._altered: set[Partition] = set()
        """Due partitions of queues with new settings, which may make dead letters."""
        self._later: dict[Partition, float] = {}
        """Partitions whose check failed, with the time of the next one; seconds of trio's clock,
        ascending."""
        self._has_changed = trio.Event()

    @property
    def is_idle(self) -> bool:
        """Whether no check is due or scheduled."""
        return not (self._due or self._later)

    def is_due(self, partition: Partition) -> bool:
        """Return whether a check of a partition is due or scheduled."""
        return partition in self._due or partition in self._later

    def check_soon(self, partition: Partition, *, has_new_settings: bool = False) -> None:
        """Schedule a check for work, if the partition is the journal of a queue."""
        if partition.queue_name:
            if has_new_settings:
                self._altered.add(partition)
            self._due[partition] = None
            self._has_changed.set()

    def retry_later(self, partition: Partition) -> None:
        """Schedule a later check for work, after a failure."""
        self._later.setdefault(partition, trio.current_time() + _RETRY_S)
        self._has_changed.set()

    async def run(self) -> None:
        """Check due partitions, until cancelled."""
        while True:
            with trio.move_on_at(next(iter(self._later.values()), float("inf"))):
                await self._has_changed.wait()
            self._has_changed = trio.Event()
            now = trio.current_time()
            for partition in [each for each, due_at in self._later.items() if due_at <= now]:
                del self._later[partition]
                self._due[partition] = None
            async with trio.open_nursery() as nursery:
                for _ in range(min(_AT_ONCE, len(self._due))):
                    nursery.start_soon(self._work)

    async def _work(self) -> None:
        while self._due:
            partition = next(iter(self._due))
            del self._due[partition]
            if partition.leader is None:
                self._altered.discard(partition)
                continue
            is_looked_at = False
            with surviving(f"checking queue {partition.queue_name!r} for background work"):
                is_looked_at = await self._try_resume(partition)
            if is_looked_at:
                self._altered.discard(partition)
            else:
                self.retry_later(partition)

    async def _try_resume(self, partition: Partition) -> bool:
        """Load a partition if it has work; return whether that could be determined."""
        try:
            await self._resume(partition)
        except (BrokerError, WireFormatError) as error:
            self._queues.env.probe(
                "queue_not_resumed",
                severity="warning",
                queue=partition.queue_name,
                partition=partition.number,
                reason=str(error),
            )
            return False
        return True

    async def _resume(self, partition: Partition) -> None:
        """Load a partition if it has background work.

        Raises:
            BrokerError: That cannot be determined at the moment.
            WireFormatError: A newer version wrote the journal.
        """
        queues = self._queues
        hosted = queues.loaded(*partition.key)
        if hosted is not None:
            await self._require(hosted)
        if hosted is None or hosted.error is not None:
            # New settings may have unloaded it.
            journal = Journal(queues.env, queues.group_commit, partition)
            try:
                last = await journal.read_last(queues.reader)
            except BrokerError:
                if journal.is_led:
                    raise
                return  # Another broker leads the journal now, and checks it.
            if last is None or not self._has_work(partition, last.background_work):
                return
            await self._require(queues.find(*partition.key))

    async def _require(self, hosted: HostedPartition) -> None:
        """Have a partition load and apply new settings."""
        with trio.move_on_after(_LOADING_S), suppress(BrokerError):
            # A failed load removes the partition, which schedules another check.
            await hosted.wait_loaded()
            hosted.require()

    def _has_work(self, partition: Partition, work: int | None) -> bool:
        """Return whether a partition is to be loaded, by the work that its last frame names."""
        has_place = self._queues.view(partition.topic_id).dead_letters is not None
        if has_place and partition in self._altered:
            return True  # Messages may have had all their deliveries under the new limit.
        return work != BackgroundWork.NOTHING and (has_place or work != BackgroundWork.KEPT)
