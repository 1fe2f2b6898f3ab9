"""Administration of consumer groups: list, describe, alter, reset, delete, expire.

Shell: requests log bounds of partitions, and commits decisions of `coordinator.groups`.
"""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol, final

import trio

from tidelog.coordinator.controller.replicated_state import ReplicatedState
from tidelog.coordinator.group_coordinator.leadership import GroupLeadership, now_ms
from tidelog.coordinator.groups.commits import OffsetRange
from tidelog.coordinator.groups.config import GroupConfig
from tidelog.coordinator.groups.description import describe_group, list_groups, partitions_of
from tidelog.coordinator.groups.expiry import GroupExpiry
from tidelog.coordinator.groups.group import Group
from tidelog.coordinator.groups.group_manager import GroupManager
from tidelog.coordinator.groups.lag import Lag, LogBounds, group_lag, partition_lag
from tidelog.coordinator.groups.partitions import Partition
from tidelog.coordinator.groups.reset_offsets import ResetLog, plan_resets
from tidelog.wire.env.env import Env
from tidelog.wire.errors import BrokerError, NotControllerError, UnknownTopicIdError, from_wire
from tidelog.wire.messages.groups import (
    AlterGroupReply,
    AlterGroupRequest,
    DeleteGroupReply,
    DeleteGroupRequest,
    DescribedGroup,
    DescribeGroupsReply,
    DescribeGroupsRequest,
    ListGroupsReply,
    ListGroupsRequest,
    PartitionCommit,
    PartitionReset,
    PartitionWasReset,
    ResetOffsetsReply,
    ResetOffsetsRequest,
    ResetTo,
)
from tidelog.wire.messages.offset_ranges import OffsetQuery, PartitionOffsets

_EXPIRY_LOOK_S: Final = 600.0
_RESETS_AT_ONCE: Final = 500
"""Partitions to be reset that are looked up before other tasks run."""
_GROUPS_AT_ONCE: Final = 100
"""Groups that are described before other tasks run."""
_LAGS_AT_ONCE: Final = 500
"""Partitions whose lag is computed before other tasks run."""


class LogQuestions(Protocol):
    """Queries for the logs of partitions, on whichever broker leads them."""

    async def ask(self, questions: Sequence[OffsetQuery]) -> list[PartitionOffsets]:
        """Return the answers in the order of the questions, errors among them."""
        ...


class GroupLags(NamedTuple):
    """The progress of one group."""

    group_id: str
    epoch: int
    member_count: int
    lag_of: dict[bytes, Lag]
    """By topic id; topics whose leaders cannot be reached are missing."""
    has_settings: bool = False
    """Whether its owner has set any."""


@final
class GroupAdministration:
    """Serves administrators of groups while this node leads, and expires unused groups."""

    def __init__(
        self,
        env: Env,
        metadata: ReplicatedState,
        leadership: GroupLeadership,
        *,
        logs: LogQuestions,
        config: GroupConfig,
        may_delete: Callable[[], bool] = lambda: True,
    ) -> None:
        """Decide by `leadership`.

        Args:
            env: The clock.
            metadata: The topics.
            leadership: The groups, while this node leads.
            logs: Returns the bounds of partitions.
            config: Settings of groups.
            may_delete: Returns whether groups may be deleted by time now.
        """
        self._may_delete = may_delete
        self._env = env
        self._metadata = metadata
        self._leadership = leadership
        self._logs = logs
        self._config = config
        self.asked_count = 0
        """Number of partitions that the last `progress` asked about."""

    async def list_groups(self, request: ListGroupsRequest) -> ListGroupsReply:
        """Return all groups; errors as in `current_groups`."""
        return list_groups(await self._leadership.current_groups(), request.states)

    async def describe_groups(self, request: DescribeGroupsRequest) -> DescribeGroupsReply:
        """Return members, partitions and lag of groups; errors as in `current_groups`."""
        groups = await self._leadership.current_groups()
        questions: dict[tuple[str, Partition], OffsetQuery] = {}
        for group_id in request.group_ids:
            group = groups.get(group_id)
            for partition in () if group is None else partitions_of(group):
                assert group is not None
                questions[group_id, partition] = _question(group, partition)
        found = await self._logs.ask(list(questions.values()))
        logs: dict[str, dict[Partition, LogBounds]] = {}
        for (group_id, partition), log in zip(questions, found, strict=True):
            if log.error is None:
                logs.setdefault(group_id, {})[partition] = _log(log)
        wall_ms = self._env.clock.now_ms()
        described: list[DescribedGroup] = []
        for group_id in request.group_ids:
            described.append(
                describe_group(groups, group_id, logs.get(group_id, {}), now_ms=wall_ms)
            )
            if len(described) % _GROUPS_AT_ONCE == 0:
                await trio.lowlevel.checkpoint()
        return DescribeGroupsReply(described)

    async def progress(self) -> list[GroupLags]:
        """Return the progress of all groups, as far as this node knows their commits.

        On cancellation, nothing has changed.
        """
        groups = self._metadata.groups.groups
        questions: dict[tuple[str, Partition], OffsetQuery] = {}
        for number, (group_id, group) in enumerate(list(groups.items())):
            if number % _GROUPS_AT_ONCE == 0:
                await trio.lowlevel.checkpoint()
            for partition in partitions_of(group):
                questions[group_id, partition] = _question(group, partition)
        self.asked_count = len(questions)
        found = await self._logs.ask(list(questions.values()))
        now_ms, lags = self._env.clock.now_ms(), dict[str, dict[bytes, list[Lag]]]()
        for number, ((group_id, partition), log) in enumerate(zip(questions, found, strict=True)):
            if number % _LAGS_AT_ONCE == 0:
                await trio.lowlevel.checkpoint()
            if log.error is None:
                lag = partition_lag(questions[group_id, partition].at_offset, _log(log), now_ms)
                lags.setdefault(group_id, {}).setdefault(partition[0], []).append(lag)
        progress: list[GroupLags] = []
        for number, (group_id, group) in enumerate(list(groups.items())):
            if number % _GROUPS_AT_ONCE == 0:
                await trio.lowlevel.checkpoint()
            of_topics = lags.get(group_id, {})
            progress.append(
                GroupLags(
                    group_id,
                    group.group_epoch,
                    len(group.members),
                    {topic: group_lag(some) for topic, some in of_topics.items()},
                    bool(group.overrides),
                )
            )
        return progress

    async def reset_offsets(self, request: ResetOffsetsRequest) -> ResetOffsetsReply:
        """Reset a group to other offsets, in all named partitions or in none.

        Raises:
            NotControllerError: Another node leads.
            GroupNotEmptyError: Members read one of these topics now.
            UnknownTopicIdError: A topic was deleted meanwhile.
            InvalidRequestError: The request is invalid; the text says why.
            RequestTimedOutError: The reset may be applied, or not.
        """
        self._metadata.check_active_controller()
        logs = await self._reset_logs(request.partitions)
        # No await from here on, until it is proposed.
        leading = self._leadership.leading()
        planned = plan_resets(leading.state.groups.get(request.group_id), request.partitions, logs)
        if all(one.error is None for one in planned):
            offsets = self._named(request.partitions, planned)
            ranges = {
                partition: log.offset_range
                for partition, log in logs.items()
                if isinstance(log, ResetLog)
            }
            outcome = leading.state.reset_offsets(
                request.group_id, offsets, ranges, now_ms=self._env.clock.now_ms()
            )
            if not request.validate_only:
                self._leadership.carry_out(outcome.records)
        await self._leadership.settled()
        return ResetOffsetsReply(planned)

    async def alter_group(self, request: AlterGroupRequest) -> AlterGroupReply:
        """Change settings of a group; an unknown group is created without members.

        Raises:
            NotControllerError: Another node leads.
            InvalidConfigError: A setting is unknown, not legal, or set and reset.
            InvalidRequestError: The id is invalid, or the feature level of the cluster too low.
            BrokerNotReadyError: The cluster is new, and has no feature level yet.
            RequestTimedOutError: The change may be applied, or not.
        """
        outcome = self._leadership.leading().state.alter_group(
            request.group_id,
            request.set_config,
            request.reset_config,
            now_ms=self._env.clock.now_ms(),
        )
        self._leadership.carry_out(outcome.records)
        await self._leadership.settled()
        return AlterGroupReply(outcome.reply)

    async def delete_group(self, request: DeleteGroupRequest) -> DeleteGroupReply:
        """Delete a group without members, and all its offsets.

        Raises:
            NotControllerError: Another node leads.
            GroupNotEmptyError: The group has members.
            RequestTimedOutError: The deletion may be applied, or not.
        """
        outcome = self._leadership.leading().state.delete_group(request.group_id)
        self._leadership.carry_out(outcome.records)
        await self._leadership.settled()
        return DeleteGroupReply(outcome.reply)

    async def _reset_logs(
        self, resets: Sequence[PartitionReset]
    ) -> dict[Partition, ResetLog | BrokerError]:
        logs: dict[Partition, ResetLog | BrokerError] = {}
        questions: list[OffsetQuery] = []
        for place, reset in enumerate(resets, 1):
            partition = (reset.topic_id, reset.partition)
            if self._metadata.state.partition(*partition) is not None:
                at_ms = reset.value if reset.to == ResetTo.TIMESTAMP else None
                questions.append(OffsetQuery(*partition, at_timestamp_ms=at_ms))
            else:
                logs[partition] = UnknownTopicIdError(
                    f"partition {reset.partition} of this topic id is not known here"
                )
            if place % _RESETS_AT_ONCE == 0:
                await trio.lowlevel.checkpoint()
        found = await self._logs.ask(questions)
        for question, log in zip(questions, found, strict=True):
            logs[question.topic_id, question.partition] = (
                ResetLog(OffsetRange(log.log_start_offset, log.high_watermark), log.offset)
                if log.error is None
                else from_wire(log.error)
            )
        return logs

    def _named(
        self, resets: Sequence[PartitionReset], planned: Sequence[PartitionWasReset]
    ) -> list[tuple[str, PartitionCommit]]:
        """Return the commits of a reset, with the names of the topics.

        Raises:
            UnknownTopicIdError: A topic was deleted since the request.
        """
        named: list[tuple[str, PartitionCommit]] = []
        for reset, to in zip(resets, planned, strict=True):
            topic = self._metadata.state.catalog.topic_by_id(reset.topic_id)
            if topic is None:
                raise UnknownTopicIdError("a topic was deleted meanwhile; nothing was moved")
            assert to.offset is not None
            named.append((topic.name, PartitionCommit(reset.topic_id, reset.partition, to.offset)))
        return named

    async def run(self) -> None:
        """Expire unused groups while this node leads; until cancelled."""
        known: GroupManager | None = None
        expiry = GroupExpiry(self._config)
        while True:
            await trio.sleep(_EXPIRY_LOOK_S)
            if not self._may_delete():
                known = None  # Groups must look due for another hour.
                continue
            try:
                leading = self._leadership.leading()
                if leading is not known:
                    known, expiry = leading, GroupExpiry(self._config)
                for group_id in list(leading.state.groups):
                    await self._expire_group(group_id, expiry)
            except NotControllerError:
                continue

    async def _expire_group(self, group_id: str, expiry: GroupExpiry) -> None:
        group = self._leadership.leading().state.groups.get(group_id)
        if group is None:
            return
        is_idle = expiry.is_idle(group, self._env.clock.now_ms())
        lag_records = await self._lag_records(group) if is_idle else None
        state = self._leadership.leading().state
        # The group may be a new one: its state before the await does not count.
        is_over = state.groups.get(group_id) is group and expiry.is_over(
            group, lag_records=lag_records, wall_ms=self._env.clock.now_ms(), now_ms=now_ms()
        )
        if is_over:
            self._leadership.carry_out(state.delete_group(group_id).records)
            self._env.probe("group_expired", severity="info", group=group_id)

    async def _lag_records(self, group: Group) -> int | None:
        """Return the lag of a group in records; `None` if a partition's lag is unknown."""
        questions = [_question(group, partition) for partition in partitions_of(group)]
        found = await self._logs.ask(questions)
        if any(log.error is not None for log in found):
            return None
        lags = [
            partition_lag(question.at_offset, _log(log), self._env.clock.now_ms())
            for question, log in zip(questions, found, strict=True)
        ]
        return group_lag(lags).records


def _question(group: Group, partition: Partition) -> OffsetQuery:
    """Return the query for a group's lag in a partition."""
    at = group.committed(partition)
    return OffsetQuery(*partition, None if at is None else at.offset)


def _log(offsets: PartitionOffsets) -> LogBounds:
    return LogBounds(offsets.log_start_offset, offsets.high_watermark, offsets.timestamp_ms)
