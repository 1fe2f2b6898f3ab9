"""Coordinator of groups behind the fronts of a cluster: the real core, without replication."""

from typing import cast, final

import msgspec
import trio

from tests.broker.world import START_MS
from tests.client.fake_cluster import FakeCluster
from tidelog.coordinator.groups.commits import OffsetRange
from tidelog.coordinator.groups.config import GroupConfig
from tidelog.coordinator.groups.description import describe_group, fetch_offsets, list_groups
from tidelog.coordinator.groups.group_manager import GroupManager
from tidelog.coordinator.groups.lag import LogBounds
from tidelog.coordinator.groups.partitions import Partition
from tidelog.coordinator.groups.records import GroupRecord
from tidelog.coordinator.groups.reset_offsets import ResetLog, plan_resets
from tidelog.coordinator.groups.state_machine import ConsumerGroups, GroupsSnapshot
from tidelog.coordinator.groups.targets import TopicShape
from tidelog.wire.errors import BrokerError, NotControllerError
from tidelog.wire.messages.groups import (
    AlterGroupReply,
    AlterGroupRequest,
    CommitOffsetsRequest,
    DeleteGroupReply,
    DeleteGroupRequest,
    DescribeGroupsReply,
    DescribeGroupsRequest,
    FetchOffsetsReply,
    FetchOffsetsRequest,
    GroupHeartbeatRequest,
    ListGroupsRequest,
    PartitionCommit,
    ResetOffsetsReply,
    ResetOffsetsRequest,
)
from tidelog.wire.messages.topics import DescribeTopicsReply, DescribeTopicsRequest
from tidelog.wire.protocol import api
from tidelog.wire.protocol.api import AnyApi


@final
class GroupService:
    """Answers requests of members and administrators, at the controller node."""

    def __init__(self, cluster: FakeCluster, config: GroupConfig | None = None) -> None:
        self._cluster = cluster
        self._config = config or GroupConfig()
        self.leading = GroupManager(ConsumerGroups(self._config), self._now_ms())
        self.fenced: list[str] = []
        """Reasons of fencing, in order."""
        self.moved_back_count = 0
        """Commits that moved a group back."""
        self.heartbeats: list[GroupHeartbeatRequest] = []
        for asked in (
            api.GROUP_HEARTBEAT,
            api.COMMIT_OFFSETS,
            api.FETCH_OFFSETS,
            api.LIST_GROUPS,
            api.DESCRIBE_GROUPS,
            api.RESET_OFFSETS,
            api.ALTER_GROUP,
            api.DELETE_GROUP,
        ):
            cluster.answers[cast("AnyApi", asked)] = self._answer

    @property
    def groups(self) -> ConsumerGroups:
        return self.leading.state

    def committed(self, partition: int, group_id: str = "billing") -> int | None:
        """Return the committed offset of a partition of the only topic."""
        group = self.groups.groups.get(group_id)
        found = fetch_offsets(group, None)
        return next((each.offset for each in found if each.partition == partition), None)

    def owners(self, group_id: str = "billing") -> dict[str, list[int]]:
        """Return the numbers of the partitions of each member."""
        found: dict[str, list[int]] = {}
        for (_, number), member in sorted(
            self.groups.group(group_id).owner.items(), key=lambda owned: owned[0]
        ):
            found.setdefault(member.member_id, []).append(number)
        return found

    def fail_over(self, node_id: int) -> None:
        """Move the controller to another node, with the committed state."""
        saved = msgspec.msgpack.encode(self.groups.snapshot())
        snapshot = msgspec.msgpack.decode(saved, type=GroupsSnapshot)
        self.leading = GroupManager(ConsumerGroups.restore(snapshot, self._config), self._now_ms())
        self._cluster.controller_id = node_id

    async def run(self) -> None:
        """Do what is due, without end."""
        while True:
            await trio.sleep(0.1)
            due_ms = self.leading.next_deadline_ms
            is_there = self._cluster.controller_id is not None
            if is_there and due_ms is not None and due_ms <= self._now_ms():
                topics = {
                    topic.name: TopicShape(topic.topic_id, len(topic.partitions))
                    for topic in (await self._describe()).topics
                }
                outcome = self.leading.tick(topics, wall_ms=self._wall_ms(), now_ms=self._now_ms())
                self.fenced += [one.reason for one in outcome.reply]

    async def topics_changed(self, *names: str) -> None:
        """Apply created and deleted topics."""
        await trio.lowlevel.checkpoint()
        self._apply(list(self.groups.topics_changed(names).records))

    async def _answer(self, node_id: int, message: object) -> object:
        ranges = await self._ranges()
        if node_id != self._cluster.controller_id:
            raise NotControllerError(f"node {node_id} does not decide")
        match message:
            case GroupHeartbeatRequest():
                self.heartbeats.append(message)
                return self.leading.heartbeat(
                    message, wall_ms=self._wall_ms(), now_ms=self._now_ms()
                ).reply
            case CommitOffsetsRequest():
                return self._commit(message, ranges)
            case FetchOffsetsRequest():
                group = self.groups.groups.get(message.group_id)
                return FetchOffsetsReply(list(fetch_offsets(group, message.partitions)))
            case _:
                return await self._answer_administrator(message, ranges)

    async def _answer_administrator(
        self, message: object, ranges: dict[Partition, OffsetRange]
    ) -> object:
        match message:
            case ListGroupsRequest():
                return list_groups(self.groups.groups, message.states)
            case DescribeGroupsRequest():
                logs = {
                    at: LogBounds(known.log_start_offset, known.log_end_offset)
                    for at, known in ranges.items()
                }
                found = self.groups.groups
                return DescribeGroupsReply(
                    [
                        describe_group(found, one, logs, now_ms=self._wall_ms())
                        for one in message.group_ids
                    ]
                )
            case ResetOffsetsRequest():
                return await self._reset(message, ranges)
            case AlterGroupRequest():
                altered = self.groups.alter_group(
                    message.group_id,
                    message.set_config,
                    message.reset_config,
                    now_ms=self._wall_ms(),
                )
                self._apply(list(altered.records))
                return AlterGroupReply(altered.reply)
            case DeleteGroupRequest():
                outcome = self.groups.delete_group(message.group_id)
                self._apply(list(outcome.records))
                return DeleteGroupReply(outcome.reply)
            case _:
                raise AssertionError(message)

    def _commit(
        self, message: CommitOffsetsRequest, ranges: dict[Partition, OffsetRange]
    ) -> object:
        outcome = self.groups.commit_offsets([message], ranges, self._wall_ms())
        self._apply(list(outcome.records))
        (result,) = outcome.reply
        if isinstance(result, BrokerError):
            raise result
        self.moved_back_count += sum(each.has_moved_back for each in result.results)
        return result

    async def _reset(
        self, message: ResetOffsetsRequest, ranges: dict[Partition, OffsetRange]
    ) -> ResetOffsetsReply:
        names = {topic.topic_id: topic.name for topic in (await self._describe()).topics}
        group = self.groups.groups.get(message.group_id)
        logs = {at: ResetLog(known) for at, known in ranges.items()}
        planned = plan_resets(group, message.partitions, dict(logs))
        if message.validate_only or any(each.error is not None for each in planned):
            return ResetOffsetsReply(planned)
        offsets = [
            (names[each.topic_id], PartitionCommit(each.topic_id, each.partition, was.offset or 0))
            for each, was in zip(message.partitions, planned, strict=True)
        ]
        outcome = self.groups.reset_offsets(
            message.group_id, offsets, ranges, now_ms=self._wall_ms()
        )
        self._apply(list(outcome.records))
        return ResetOffsetsReply(outcome.reply)

    def _apply(self, records: list[GroupRecord]) -> None:
        self.leading.apply(records, self._now_ms())

    async def _describe(self) -> DescribeTopicsReply:
        reply, _ = await self._cluster.pass_on(
            cast("AnyApi", api.DESCRIBE_TOPICS), DescribeTopicsRequest(None), b""
        )
        assert isinstance(reply, DescribeTopicsReply)
        return reply

    async def _ranges(self) -> dict[Partition, OffsetRange]:
        return {
            (topic.topic_id, each.partition): OffsetRange(
                each.log_start_offset, each.high_watermark
            )
            for topic in (await self._describe()).topics
            for each in topic.partitions
        }

    @staticmethod
    def _now_ms() -> int:
        return int(trio.current_time() * 1000)

    @staticmethod
    def _wall_ms() -> int:
        return START_MS + int(trio.current_time() * 1000)
