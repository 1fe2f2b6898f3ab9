"""What was under way goes on by itself, whoever leads the journal now.

Shell: owns one task. When this broker begins to lead the journal of a queue, and when a queue has
other settings, the last frame of the journal is read: it says whether there is anything to do
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
"""Journals that are looked at together; more would keep those waiting who ask for queues."""
_LOADING_S: Final = 5.0
"""How long one of these places is kept for a partition that takes its time to be loaded."""
_RETRY_S: Final = 5.0


class LocalQueues(Protocol):
    """What it needs of the queues of this broker."""

    env: Env
    partitions: ReplicaManager
    group_commit: GroupCommit
    reader: SliceReader

    def view(self, queue_id: bytes) -> QueueView:
        """Return what the metadata says of a queue.

        Raises:
            BrokerError: It is not known.
        """
        ...

    def find(self, queue_id: bytes, number: int) -> HostedPartition:
        """Return a partition of a queue that is served here, or is being loaded.

        Raises:
            BrokerError: It is not served here.
        """
        ...

    def loaded(self, queue_id: bytes, number: int) -> HostedPartition | None:
        """Return a partition of a queue if it is in memory."""
        ...


@final
class Resumer:
    """Has partitions of queues loaded that have something to do.

    Invariant: every journal that is led here and not loaded is due, or had nothing to do when it
    was looked at, and nothing was written to it since.
    """

    def __init__(self, queues: LocalQueues) -> None:
        """Look at nothing yet; `run` must run in a task."""
        self._queues = queues
        self._due: dict[Partition, None] = {}
        self._later: dict[Partition, float] = {}
        """Those that could not be looked at, and when they are due; seconds of trio's clock,
        ascending."""
        self._has_changed = trio.Event()

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to look at."""
        return not (self._due or self._later)

    def check_soon(self, partition: Partition) -> None:
        """See soon whether there is something to do, if it is the journal of a queue."""
        if partition.queue_name:
            self._due[partition] = None
            self._has_changed.set()

    def retry_later(self, partition: Partition) -> None:
        """See in a while whether there is something to do: something has failed."""
        self._later.setdefault(partition, trio.current_time() + _RETRY_S)
        self._has_changed.set()

    async def run(self) -> None:
        """Look at what is due, until cancelled."""
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
                continue
            is_looked_at = False
            with surviving(f"looking for what is to be done in {partition.queue_name!r}"):
                is_looked_at = await self._try_resume(partition)
            if not is_looked_at:
                self.retry_later(partition)

    async def _try_resume(self, partition: Partition) -> bool:
        """Load a partition if it has something to do; return whether anybody knows that."""
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
        """Load a partition if it has something to do.

        Raises:
            BrokerError: Nobody knows at the moment.
            WireFormatError: A newer version wrote the journal.
        """
        queues = self._queues
        hosted = queues.loaded(*partition.key)
        if hosted is None:
            journal = Journal(queues.env, queues.group_commit, partition)
            try:
                last = await journal.read_last(queues.reader)
            except BrokerError:
                if journal.is_led:
                    raise
                return  # Whoever leads it now looks at it.
            work = BackgroundWork.NOTHING if last is None else last.background_work
            has_place = queues.view(partition.topic_id).dead_letters is not None
            if work == BackgroundWork.NOTHING or (work == BackgroundWork.KEPT and not has_place):
                return
            hosted = queues.find(*partition.key)
        with trio.move_on_after(_LOADING_S), suppress(BrokerError):
            # If it fails it is forgotten, and looked at again for that.
            await hosted.wait_loaded()
            hosted.require()
