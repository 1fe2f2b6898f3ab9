"""What the cluster's metadata means for the partitions of this broker.

Shell: owns the task that opens and removes logs. Changes of leadership take effect at once, in the
call that tells of them, so that nothing is appended under a leadership that is over; what needs the
disk follows in the task, one partition after the other, by what the metadata says then.
"""

from typing import final

import trio

from tidelog.broker.maintenance.group_commit import GroupCommit
from tidelog.broker.partitions.partition import Partition
from tidelog.broker.partitions.replica_manager import ReplicaManager
from tidelog.broker.replication.role_transitions import RoleTransitions
from tidelog.coordinator.controller.replicated_state import ReplicatedState
from tidelog.coordinator.metadata.broker_delta import BrokerDelta, Key
from tidelog.coordinator.metadata.catalog import Topic
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
_OPENED_AT_ONCE = 16
"""Logs of a topic that are made together: file systems make many names durable in one go."""


@final
class MetadataApplier:
    """Has every replica open that this broker is to have, and leads what it is to lead.

    Invariant: a partition of which the metadata knows another leader is not led here, and one that
    is not to be here is neither led nor followed.
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
        """Keep `partitions` as `metadata` says, in the roles that they have.

        `start`, then have `run` in a task.
        """
        self._env = env
        self._node_id = roles.node_id
        self._metadata = metadata
        self._partitions = partitions
        self._group_commit = group_commit
        self._roles = roles
        self._due: dict[bytes, dict[int, None]] = {}
        """Partitions to be opened, by topic."""
        self._deleted: dict[bytes, str] = {}
        """Topics whose files are to be removed, with their names."""
        self._closed: dict[bytes, list[Partition]] = {}
        """Partitions of such topics, which may still be flushed."""
        self._left: dict[Key, Partition | None] = {}
        """Replicas that others have now, whose files are to be removed."""
        self._failures: dict[Key, BrokerError] = {}
        """Partitions that could not be opened; they are tried again from time to time."""
        self._has_work = trio.Event()
        self._has_settled = trio.Event()

    async def start(self) -> None:
        """Open all replicas that this broker has by now.

        Raises:
            OSError: The disk failed.
            DataDirectoryError: A file belongs elsewhere, or to a newer version.
        """
        catalog = self._metadata.state.catalog
        self._metadata.subscribe(self._follow)
        await self._partitions.settle_left_overs(catalog)
        wanted = [
            (topic, number)
            for topic in catalog.topics
            for number, partition in enumerate(self._metadata.state.partitions(topic.topic_id))
            if self._node_id in partition.replicas
        ]
        await self._partitions.take_stock(wanted)
        for opened, (topic, number) in enumerate(wanted):
            partition = await self._partitions.open(topic, number)
            if self._opened(partition):
                self._group_commit.request(partition)
            if (opened + 1) % _OPENED_REPORTED == 0:
                self._env.probe("opening_logs", opened=opened + 1, total=len(wanted))

    async def run(self) -> None:
        """Open, close and remove what is due; until cancelled."""
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
                    await self._open_due(next(iter(self._due)))
                settled, self._has_settled = self._has_settled, trio.Event()
                settled.set()
            self._has_work = trio.Event()
            await self._has_work.wait()

    async def settle(self, topic_id: bytes) -> None:
        """Wait until what is here of a topic is as the metadata says.

        Raises:
            DiskFullError: ReplicaManager are opened as soon as there is room.
            LogOfflineError: The disk failed.
        """
        while topic_id in self._deleted or topic_id in self._due:
            await self._has_settled.wait()
        for key, error in self._failures.items():
            if key[0] == topic_id:
                raise error

    def has_failed(self, topic_id: bytes) -> bool:
        """Return whether something of a topic could not be opened."""
        return any(key[0] == topic_id for key in self._failures)

    def retry(self) -> None:
        """Try again to open what could not be opened."""
        for key in self._failures:
            self._is_due(key)
        self._failures.clear()

    def _follow(self, delta: BrokerDelta) -> None:
        for key in (*delta.lead, *delta.lead_on, *delta.follow):
            partition = self._partitions.replica(*key)
            if partition is None:
                self._is_due(key)
            else:
                self._roles.take_role(partition)
        for key in (*delta.remove, *delta.delete):
            self._due.get(key[0], {}).pop(key[1], None)
            self._failures.pop(key, None)
        for key in delta.remove:
            self._leave(key)
        for topic_id, name in delta.reshaped_topics.items():
            if self._metadata.state.catalog.was_deleted(topic_id):
                self._close(topic_id, name)
        for topic_id in delta.altered_topics:
            self._reconfigure(topic_id)
        self._roles.heard(delta)

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
                # What was only promised to be in memory is to be on disk now.
                self._group_commit.appended(partition)

    def _close(self, topic_id: bytes, name: str) -> None:
        for partition in self._partitions.all():
            if partition.topic_id == topic_id:
                self._end(partition.key, UnknownTopicIdError(f"topic {name!r} was deleted"))
                self._closed.setdefault(topic_id, []).append(partition)
        self._deleted[topic_id] = name
        self._has_work.set()

    def _leave(self, key: Key) -> None:
        """Have a replica no more: others have it now."""
        error = NotLeaderError("this broker has no replica of it any more")
        self._left[key] = self._end(key, error)
        self._has_work.set()

    def _end(self, key: Key, error: BrokerError) -> Partition | None:
        """Close a replica, with which nobody follows any more; its files are still there."""
        self._roles.leave(key)
        return self._partitions.close(key, error)

    async def _open_due(self, topic_id: bytes) -> None:
        """Open what is due of a topic, unless there are topics to be removed first."""
        due = self._due[topic_id]
        at_once = 1
        while due and not self._deleted and not self._left:
            async with trio.open_nursery() as nursery:
                for number in list(due)[:at_once]:
                    nursery.start_soon(self._open_one, topic_id, number)
            # Not before: the first one makes the directory of the topic, and its name durable.
            at_once = _OPENED_AT_ONCE
        if not due:
            del self._due[topic_id]

    async def _open_one(self, topic_id: bytes, number: int) -> None:
        await self._open(topic_id, number)
        self._due[topic_id].pop(number, None)

    async def _open(self, topic_id: bytes, number: int) -> None:
        """Open one replica, if it is still to be, and is not open: a start may have done that."""
        known = self._metadata.state.partition(topic_id, number)
        if known is None or self._node_id not in known.replicas:
            return
        if self._partitions.replica(topic_id, number) is not None:
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
        """Let a partition be what the metadata says by now; return whether it is to be at all."""
        key = (partition.topic_id, partition.number)
        topic = self._metadata.state.catalog.topic_by_id(partition.topic_id)
        if topic is None:
            self._end(key, UnknownTopicIdError("the topic was deleted while it was opened"))
            return False
        known = self._metadata.state.partition(*key)
        if known is None or self._node_id not in known.replicas:
            self._leave(key)  # While it was opened.
            return False
        partition.reconfigure(topic.config)
        self._roles.take_role(partition)
        return True

    def _topic(self, topic_id: bytes) -> Topic:
        topic = self._metadata.state.catalog.topic_by_id(topic_id)
        assert topic is not None, "it has partitions"
        return topic

    def _failure(self, topic_id: bytes, error: OSError | DataDirectoryError) -> BrokerError:
        topic = self._metadata.state.catalog.topic_by_id(topic_id)
        name = "" if topic is None else topic.name
        if isinstance(error, OSError) and error.errno in DISK_FULL_ERRNOS:
            return DiskFullError(
                f"the disk is full; topic {name!r} comes into being when there is room"
            )
        if isinstance(error, OSError) and error.errno in NO_DESCRIPTOR_ERRNOS:
            return OverloadedError(
                f"too many files are open; topic {name!r} comes into being when there are fewer"
            )
        return LogOfflineError(f"the disk failed while topic {name!r} was made: {error}")

    async def _remove_replica(self, key: Key, partition: Partition | None) -> None:
        """Remove the files of a replica, unless it has come back meanwhile."""
        if partition is not None:
            await self._stop_replica(partition, is_for_good=False)
        topic = self._metadata.state.catalog.topic_by_id(key[0])
        known = self._metadata.state.partition(*key)
        if topic is None or known is None:
            return  # All of the topic goes.
        if self._node_id in known.replicas:
            self._is_due(key)
            return
        try:
            await self._partitions.remove_replica(topic.name, *key)
        except OSError as error:
            self._env.probe(
                "files_left_over", severity="warning", topic=topic.name, reason=str(error)
            )
        else:
            self._env.probe("replica_removed", topic=topic.name, partition=key[1])

    async def _remove(self, topic_id: bytes, name: str) -> None:
        for partition in self._closed.pop(topic_id, []):
            await self._stop_replica(partition, is_for_good=True)
        try:
            await self._partitions.remove_files(name, topic_id)
        except OSError as error:
            # The topic is gone all the same.
            self._env.probe("files_left_over", severity="warning", topic=name, reason=str(error))

    async def _stop_replica(self, partition: Partition, *, is_for_good: bool) -> None:
        """Return when nobody touches the files of a replica that was closed."""
        await self._group_commit.forget(partition, is_for_good=is_for_good)
        partition.log.close()  # A repair that was under way may have opened it anew.
