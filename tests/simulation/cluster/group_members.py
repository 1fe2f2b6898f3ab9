"""Members of a consumer group, which process the records of a topic and commit their offsets.

They commit after processing, so every record is processed at least once.
"""

from collections import Counter
from collections.abc import Iterable
from random import Random
from typing import Final, final

import trio

from tests.simulation.broker.keys import Superseded
from tests.simulation.broker.readers import BACKOFF_S, values_of
from tests.simulation.broker.sometimes import Sometimes
from tests.simulation.checkers.run_history import FinalLog, Place, ViolationError
from tests.simulation.cluster.cluster_history import ClusterHistory, GroupCommit, Work
from tests.simulation.machine.broker_host import TOPIC
from tests.simulation.machine.process import Process
from tidelog.client.client import connect
from tidelog.client.consumer.consumer import Consumer
from tidelog.client.consumer.fetch.record import RecordBatch
from tidelog.coordinator.groups.state_machine import ConsumerGroups
from tidelog.wire.errors import PartitionNotOwnedError, TidelogError

GROUP: Final = "crew"
_COMMITS_AUTOMATICALLY = 0.3
_WORK_MEAN_S = 0.02
_LONG_WORK_S = 5.0
_HURRIED_S = 0.01
_WORKS_LONG = 0.03
_LOOKS = 0.05
"""Probability that a member fetches the committed offset."""


@final
class GroupMembers:
    """The combined work of all members of the group."""

    def __init__(self, topic_id: bytes) -> None:
        """Start without work."""
        self.topic_id = topic_id
        self.processed: dict[Place, bytes] = {}
        """Every record that a member received."""
        self.told: Counter[int] = Counter()
        """By partition: the committed offset in the latest reply (exclusive end)."""
        self.is_hurried = False
        """Whether processing takes almost no time any more."""

    def committed(self, groups: ConsumerGroups, partitions: Iterable[int]) -> dict[int, int]:
        """Return the committed offset of the group by partition, by committed records."""
        group = groups.groups.get(GROUP)
        found = {
            partition: None if group is None else group.committed((self.topic_id, partition))
            for partition in partitions
        }
        return {partition: 0 if at is None else at.offset for partition, at in found.items()}

    def check(self, logs: dict[int, FinalLog], superseded: Superseded) -> None:
        """Check that no record was skipped.

        A replica that compacts later than others may still have records that these lacked already.

        Raises:
            ViolationError: A record was skipped.
        """
        for partition, log in logs.items():
            for offset, value in log.values.items():
                place = (partition, offset)
                found = self.processed.get(place)
                if found != value and (found or not superseded.covers(place, value)):
                    raise ViolationError(
                        "NoneLeftOut", f"no member of {GROUP} has processed {place}"
                    )


@final
class Member:
    """One member, in one process."""

    def __init__(
        self,
        addresses: str,
        members: GroupMembers,
        random: Random,
        *,
        cluster_history: ClusterHistory,
        sometimes: Sometimes,
    ) -> None:
        """Create a member of `members`."""
        self.should_stop = False
        self._scope = trio.CancelScope()
        self._addresses = addresses
        self._members = members
        self._random = random
        self._cluster_history = cluster_history
        self._sometimes = sometimes

    def stop(self) -> None:
        """Leave the group, and end."""
        self.should_stop = True
        self._scope.cancel()

    async def run(self, process: Process) -> None:
        """Work until told to stop."""
        while not self.should_stop:
            try:
                async with connect(
                    self._addresses, env=process.env, client_id=process.name, request_timeout=4.0
                ) as client:
                    is_automatic = self._random.random() < _COMMITS_AUTOMATICALLY
                    consumer = client.consumer(
                        TOPIC,
                        group_id=GROUP,
                        auto_offset_reset="earliest",
                        enable_auto_commit=is_automatic,
                        auto_commit_interval=1.0,
                    )
                    with trio.CancelScope() as self._scope:
                        async with consumer:
                            await self._work(consumer, process.name, commits=not is_automatic)
            except TidelogError:
                await trio.sleep(BACKOFF_S)

    async def _work(self, consumer: Consumer, name: str, *, commits: bool) -> None:
        self._sometimes.reached("group joined")
        async for batch in consumer.batches():
            partition = (self._members.topic_id, batch.partition)
            self._cluster_history.worked(Work(GROUP, name, partition))
            self._note(batch)
            is_long = self._random.random() < _WORKS_LONG
            work_s = _LONG_WORK_S if is_long else self._random.expovariate(1 / _WORK_MEAN_S)
            await trio.sleep(min(work_s, _HURRIED_S) if self._members.is_hurried else work_s)
            if commits:
                await self._commit(consumer, batch.partition, batch.next_offset)
            if self._random.random() < _LOOKS:
                await self._look(consumer)

    async def _commit(self, consumer: Consumer, partition: int, offset: int) -> None:
        try:
            await consumer.commit({(TOPIC, partition): offset})
        except PartitionNotOwnedError:
            return  # Other members will process these records again.
        self._cluster_history.told_committed(
            GroupCommit(GROUP, (self._members.topic_id, partition), offset)
        )
        self._members.told[partition] = max(offset, self._members.told[partition])

    def _note(self, batch: RecordBatch) -> None:
        for offset, value in values_of(batch):
            self._members.processed[batch.partition, offset] = value

    async def _look(self, consumer: Consumer) -> None:
        """Fetch the committed offset; it is never below an earlier reply."""
        least = dict(self._members.told)
        asked = [(TOPIC, partition) for partition in sorted({0, *least})]
        found = await consumer.committed(asked)
        for at, offset in found.items():
            place = (self._members.topic_id, at.partition)
            commit = GroupCommit(GROUP, place, offset or 0)
            self._cluster_history.found_committed(commit, least.get(at.partition, 0))
