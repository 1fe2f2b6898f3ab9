"""Application of the cluster's metadata to the partitions of this broker.

Shell: owns the task that opens and removes logs. A change of leadership takes effect at once, in
the call that announces it, so that no append happens under an ended leadership. Disk work follows
in the task, one partition after the other, by the metadata of that moment.
"""

from itertools import islice
from typing import final

import trio

from tidelog.broker.maintenance.group_commit import GroupCommit
from tidelog.broker.partitions.partition import Partition
from tidelog.broker.partitions.replica_manager import CREATED_AT_ONCE, ReplicaManager
from tidelog.broker.replication.role_transitions import RoleTransitions
from tidelog.coordinator.controller.replicated_state import ReplicatedState
from tidelog.coordinator.metadata.broker_delta import BrokerDelta, Key
from tidelog.coordinator.metadata.catalog import Topic
from tidelog.coordinator.metadata.log_events import NAMED_MAX, places
from tidelog.logstore.disk.disk import DISK_FULL_ERRNOS, NO_DESCRIPTOR_ERRNOS
from tidelog.wire.env.env import Env
from tidelog.wire.errors import (
    BrokerError,
    DataDirectoryError,
    DiskFullError,
    LogOfflineError,
    NotLeaderError,
    OverloadedError,
    UnknownTopicIdError,
)

_OPENED_REPORTED = 100


@final
class MetadataApplier:
    """Opens every replica assigned to this broker, and takes its role in each.

    Invariant: this broker does not lead a partition that has another leader in the metadata. It
    neither leads nor follows a partition that is not assigned to it.
    """

    def __init__(
        self,
        env: Env,
        metadata: ReplicatedState,
        partitions: ReplicaManager,
        *,
        group_commit: GroupCommit,
        roles: RoleTransitions,
    ) -> None:
        """Keep `partitions` and their roles in step with `metadata`.

        Call `start`, then run `run` in a task.
        """
        self._env = env
        self._node_id = roles.node_id
        self._metadata = metadata
        self._partitions = partitions
        self._group_commit = group_commit
        self._roles = roles
        self._due: dict[bytes, dict[int, None]] = {}
        """Partitions to open, by topic."""
        self._begun: set[bytes] = set()
        """Topics in `_due` of which a partition was opened."""
        self._deleted: dict[bytes, str] = {}
        """Names of deleted topics whose files are to be removed, by topic id."""
        self._closed: dict[bytes, list[Partition]] = {}
        """Closed partitions of deleted topics, which may still be flushed."""
        self._left: dict[Key, Partition | None] = {}
        """Replicas reassigned to other brokers, whose files are to be removed."""
        self._failures: dict[Key, BrokerError] = {}
        """Errors of partitions that could not be opened; `retry` opens them again."""
        self._has_work = trio.Event()
        self._has_settled = trio.Event()

    async def start(self) -> None:
        """Open all replicas that the metadata assigns to this broker now.

        Raises:
            OSError: The disk failed.
            DataDirectoryError: A file belongs to another broker, or to a newer version.
        """
        catalog = self._metadata.state.catalog
        self._metadata.subscribe(self._follow, hears_transactions=False)
        await self._partitions.settle_left_overs(catalog)
        wanted = [
            (topic, number)
            for topic in catalog.topics
            for number, partition in enumerate(self._metadata.state.partitions(topic.topic_id))
            if self._node_id in partition.replicas
        ]
        partitions = self._partitions
        partitions.on_open, partitions.open_soon = self._opened, self._is_due
        await partitions.take_stock(wanted)
        if partitions.idle:
            self._env.probe("logs_stay_closed", count=len(partitions.idle), total=len(wanted))
        wanted = [
            (topic, number)
            for topic, number in wanted
            if (topic.topic_id, number) not in partitions.idle
        ]
        for opened, (topic, number) in enumerate(wanted):
            partition = await partitions.open(topic, number)
            if self._opened(partition):
                self._group_commit.request(partition)
            if (opened + 1) % _OPENED_REPORTED == 0:
                self._env.probe("opening_logs", opened=opened + 1, total=len(wanted))

    async def run(self) -> None:
        """Open, close and remove replicas as the metadata changes; until cancelled."""
        while True:
            while self._due or self._deleted or self._left:
                if self._deleted:
                    topic_id = next(iter(self._deleted))
                    await self._remove(topic_id, self._deleted[topic_id])
                    del self._deleted[topic_id]
                elif self._left:
                    key = next(iter(self._left))
                    await self._remove_replica(key, self._left.pop(key))
                else:
                    await self._open_due()
                settled, self._has_settled = self._has_settled, trio.Event()
                settled.set()
            self._has_work = trio.Event()
            await self._has_work.wait()

    async def settle(self, topic_id: bytes) -> None:
        """Wait until this broker's replicas of a topic match the metadata.

        Blank replicas stay so.

        Raises:
            DiskFullError: The disk is full; the replicas are opened as soon as there is room.
            LogOfflineError: The disk failed.
        """
        while topic_id in self._deleted or topic_id in self._due:
            await self._has_settled.wait()
        for key, error in self._failures.items():
            if key[0] == topic_id:
                raise error

    async def open_all(self, topic_id: bytes) -> None:
        """Have the blank replicas of a topic created, and settle; errors as in `settle`."""
        for number in range(len(self._metadata.state.partitions(topic_id))):
            self._partitions.create_soon(topic_id, number)
        await self.settle(topic_id)

    def has_failed(self, topic_id: bytes) -> bool:
        """Return whether a replica of a topic could not be opened."""
        return any(key[0] == topic_id for key in self._failures)

    def retry(self) -> None:
        """Open again the replicas that could not be opened."""
        for key in self._failures:
            self._is_due(key)
        self._failures.clear()

    def _follow(self, delta: BrokerDelta) -> None:
        self._tell_of_leaders(delta)
        new = delta.lead if self._partitions.are_many(len(delta.lead)) else ()
        for key in (*delta.lead, *delta.lead_on, *delta.follow):
            if self._stays_idle(key) or (key in new and self._stays_blank(key)):
                continue  # It takes its role when it is opened.
            partition = self._partitions.replica(*key)
            if partition is None:
                self._is_due(key)
            else:
                self._roles.take_role(partition)
        for key in (*delta.remove, *delta.delete):
            self._due.get(key[0], {}).pop(key[1], None)
            self._failures.pop(key, None)
            self._partitions.forget_closed(key)
        for key in delta.remove:
            self._leave(key)
        for topic_id, name in delta.reshaped_topics.items():
            if self._metadata.state.catalog.was_deleted(topic_id):
                self._close(topic_id, name)
        for topic_id in delta.altered_topics:
            self._reconfigure(topic_id)
        self._roles.heard(delta)

    def _tell_of_leaders(self, delta: BrokerDelta) -> None:
        """Report the leaderships that this broker gets and loses, each kind in one line."""
        if delta.lead:
            led = [(self._topic(key[0]).name, key[1]) for key in islice(delta.lead, NAMED_MAX)]
            self._env.probe("became_leader", **places(led, len(delta.lead)))
        lost: dict[int | None, list[tuple[str, int]]] = {}
        for key, known in delta.follow.items():
            partition = None if self._stays_idle(key) else self._partitions.replica(*key)
            if partition is not None and partition.leader is not None:
                lost.setdefault(known.leader, []).append((partition.topic, partition.number))
        for leader_id, partitions in lost.items():
            self._env.probe("became_follower", leader_id=leader_id, **places(partitions))

    def _stays_idle(self, key: Key) -> bool:
        if key not in self._partitions.idle:
            return False
        topic = self._metadata.state.catalog.topic_by_id(key[0])
        return topic is not None and self._partitions.may_be_idle(topic, key[1])

    def _stays_blank(self, key: Key) -> bool:
        is_due = key[1] in self._due.get(key[0], ())
        return not is_due and self._partitions.leave_blank(self._topic(key[0]), key[1])

    def _is_due(self, key: Key) -> None:
        self._due.setdefault(key[0], {})[key[1]] = None
        self._has_work.set()

    def _reconfigure(self, topic_id: bytes) -> None:
        topic = self._topic(topic_id)
        for number in range(topic.partition_count):
            partition = self._partitions.replica(topic_id, number)
            if partition is not None:
                partition.reconfigure(topic.config)
                self._roles.take_role(partition)
                # Records acknowledged from memory may have to be synced now, if the durability was
                # changed.
                self._group_commit.appended(partition)

    def _close(self, topic_id: bytes, name: str) -> None:
        for partition in self._partitions.all():
            if partition.topic_id == topic_id:
                self._end(partition.key, UnknownTopicIdError(f"topic {name!r} was deleted"))
                self._closed.setdefault(topic_id, []).append(partition)
        self._deleted[topic_id] = name
        self._has_work.set()

    def _leave(self, key: Key) -> None:
        """Close a replica that is no longer assigned to this broker."""
        error = NotLeaderError("this broker no longer has a replica of the partition")
        self._left[key] = self._end(key, error)
        self._has_work.set()

    def _end(self, key: Key, error: BrokerError) -> Partition | None:
        """Stop replication of a replica and close its log. Files stay on disk."""
        self._roles.leave(key)
        return self._partitions.close(key, error)

    async def _open_due(self) -> None:
        """Open due replicas, many together."""
        async with trio.open_nursery() as nursery:
            for key in self._next_due():
                nursery.start_soon(self._open_one, *key)

    def _next_due(self) -> list[Key]:
        """Return the replicas to open next, only one of each topic of which none was opened.

        The first replica of a topic creates its directory, and makes the name durable.
        """
        found: list[Key] = []
        done: list[bytes] = []
        for topic_id, numbers in self._due.items():
            room = CREATED_AT_ONCE - len(found) if topic_id in self._begun else 1
            found += [(topic_id, number) for number in islice(numbers, room)]
            if not numbers:
                done.append(topic_id)  # Its replicas have left meanwhile.
            if len(found) >= CREATED_AT_ONCE:
                break
        for topic_id in done:
            self._no_more_due(topic_id)
        return found

    async def _open_one(self, topic_id: bytes, number: int) -> None:
        await self._open(topic_id, number)
        numbers = self._due.get(topic_id)
        if numbers is None:
            return  # The topic was deleted meanwhile.
        self._begun.add(topic_id)
        numbers.pop(number, None)
        if not numbers:
            self._no_more_due(topic_id)

    def _no_more_due(self, topic_id: bytes) -> None:
        del self._due[topic_id]
        self._begun.discard(topic_id)

    async def _open(self, topic_id: bytes, number: int) -> None:
        """Open a replica if it is still assigned and not open yet: a start may have opened it."""
        known = self._metadata.state.partition(topic_id, number)
        if known is None or self._node_id not in known.replicas:
            return
        key = (topic_id, number)
        if self._stays_idle(key) or self._partitions.replica(*key) is not None:
            return
        try:
            partition = await self._partitions.open(self._topic(topic_id), number)
        except (OSError, DataDirectoryError) as error:
            failure = self._failure(topic_id, error)
            self._failures[topic_id, number] = failure
            self._roles.failed_replicas.not_opened((topic_id, number), failure)
        else:
            self._failures.pop((topic_id, number), None)
            self._opened(partition)

    def _opened(self, partition: Partition) -> bool:
        """Apply the current metadata to an opened partition; return whether it is assigned."""
        key = (partition.topic_id, partition.number)
        topic = self._metadata.state.catalog.topic_by_id(partition.topic_id)
        if topic is None:
            self._end(key, UnknownTopicIdError("the topic was deleted while its log was opened"))
            return False
        known = self._metadata.state.partition(*key)
        if known is None or self._node_id not in known.replicas:
            self._leave(key)  # The partition was reassigned while its log was opened.
            return False
        partition.reconfigure(topic.config)
        self._roles.take_role(partition)
        return True

    def _topic(self, topic_id: bytes) -> Topic:
        topic = self._metadata.state.catalog.topic_by_id(topic_id)
        assert topic is not None, "a topic with partitions is in the catalog"
        return topic

    def _failure(self, topic_id: bytes, error: OSError | DataDirectoryError) -> BrokerError:
        topic = self._metadata.state.catalog.topic_by_id(topic_id)
        name = "" if topic is None else topic.name
        if isinstance(error, OSError) and error.errno in DISK_FULL_ERRNOS:
            return DiskFullError(
                f"the disk is full; topic {name!r} is opened as soon as there is room"
            )
        if isinstance(error, OSError) and error.errno in NO_DESCRIPTOR_ERRNOS:
            return OverloadedError(
                f"too many files are open; topic {name!r} is opened as soon as file descriptors"
                " are free; raise the broker's limit of open files (ulimit -n)"
            )
        return LogOfflineError(f"the disk failed while topic {name!r} was opened: {error}")

    async def _remove_replica(self, key: Key, partition: Partition | None) -> None:
        """Remove the files of a replica, unless the replica was assigned to this broker again."""
        if partition is not None:
            await self._stop_replica(partition, is_for_good=False)
        topic = self._metadata.state.catalog.topic_by_id(key[0])
        known = self._metadata.state.partition(*key)
        if topic is None or known is None:
            return  # Removing the topic removes the replica.
        if self._node_id in known.replicas:
            self._is_due(key)
            return
        try:
            await self._partitions.remove_replica(topic.name, *key)
        except OSError as error:
            self._env.probe(
                "files_left_over",
                severity="warning",
                topic=topic.name,
                partition=key[1],
                reason=str(error),
            )
        else:
            self._env.probe("replica_removed", topic=topic.name, partition=key[1])

    async def _remove(self, topic_id: bytes, name: str) -> None:
        for partition in self._closed.pop(topic_id, []):
            await self._stop_replica(partition, is_for_good=True)
        try:
            await self._partitions.remove_files(name, topic_id)
        except OSError as error:
            # The topic stays deleted in the metadata; the next start removes its files.
            self._env.probe("files_left_over", severity="warning", topic=name, reason=str(error))

    async def _stop_replica(self, partition: Partition, *, is_for_good: bool) -> None:
        """Wait until no task uses the files of a closed replica."""
        await self._group_commit.forget(partition, is_for_good=is_for_good)
        partition.log.close()  # A repair under way may have opened it again.
