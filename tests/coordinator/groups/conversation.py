"""A group with members that are driven one by one."""

from collections.abc import Sequence

import msgspec

from tests.coordinator.decoded_records import check_decodes_to_itself
from tidelog.coordinator.groups.commits import CommitResult, OffsetRange
from tidelog.coordinator.groups.group import Group, Member
from tidelog.coordinator.groups.partitions import Partition
from tidelog.coordinator.groups.records import GroupRecord
from tidelog.coordinator.groups.state_machine import ConsumerGroups
from tidelog.coordinator.groups.targets import TopicShape
from tidelog.wire.messages.groups import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    STATIC_LEAVE_EPOCH,
    CommitOffsetsReply,
    CommitOffsetsRequest,
    GroupHeartbeatReply,
    GroupHeartbeatRequest,
    PartitionCommit,
    Subscription,
    TopicPartitions,
)

GROUP = "billing"
ORDERS = b"orders".ljust(16, b".")
PAYMENTS = b"payments".ljust(16, b".")
NOW_MS = 1_000_000
BOTH = Subscription(["orders", "payments"])


class Conversation:
    """Members in front of the state machine: each acts on its last reply."""

    def __init__(self, partition_count: int = 4) -> None:
        self.state = ConsumerGroups()
        self.topics = {"orders": TopicShape(ORDERS, partition_count)}
        self.records: list[GroupRecord] = []
        """All applied records."""
        self.epochs: dict[str, int] = {}
        self.revisions: dict[str, int] = {}
        self.owned: dict[str, list[int]] = {}
        """Numbers of the partitions of `orders` that a member may read."""
        self.sequence = 0

    @property
    def group(self) -> Group:
        return self.state.group(GROUP)

    def member(self, member_id: str) -> Member:
        return self.group.members[member_id]

    def carry_out(self, records: Sequence[GroupRecord]) -> None:
        check_decodes_to_itself(records)
        for record in records:
            self.state.apply(record)
            self.records.append(record)

    def heartbeat(self, request: GroupHeartbeatRequest) -> GroupHeartbeatReply:
        """Send this very heartbeat."""
        outcome = self.state.heartbeat(request, NOW_MS)
        self.carry_out(outcome.records)
        return outcome.reply

    def request(
        self, member_id: str, *, owned: Sequence[int] | None = None, epoch: int | None = None
    ) -> GroupHeartbeatRequest:
        """Return a heartbeat of a member that acts on its last reply."""
        return GroupHeartbeatRequest(
            GROUP,
            member_id,
            self.epochs.get(member_id, JOIN_EPOCH) if epoch is None else epoch,
            self.revisions.get(member_id, 0),
            None if owned is None else [TopicPartitions(ORDERS, list(owned))],
        )

    def say(
        self, member_id: str, *, owned: Sequence[int] | None = None, epoch: int | None = None
    ) -> GroupHeartbeatReply:
        """Send a heartbeat of a member, and let it act on the reply."""
        return self.hear(
            member_id, self.heartbeat(self.request(member_id, owned=owned, epoch=epoch))
        )

    def hear(self, member_id: str, reply: GroupHeartbeatReply) -> GroupHeartbeatReply:
        self.epochs[member_id] = reply.member_epoch
        self.revisions[member_id] = reply.assignment_revision
        if reply.assignment is not None:
            self.owned[member_id] = [
                number for topic in reply.assignment for number in topic.partitions
            ]
        return reply

    def join(
        self,
        member_id: str,
        subscription: Subscription | None = None,
        *,
        instance_id: str | None = None,
        incarnation: int = 0,
        assignor: str = "uniform",
    ) -> GroupHeartbeatReply:
        request = GroupHeartbeatRequest(
            GROUP,
            member_id,
            JOIN_EPOCH,
            owned=[],
            subscription=subscription or Subscription(["orders"]),
            subscription_version=1,
            assignor=assignor,
            instance_id=instance_id,
            incarnation=incarnation,
        )
        return self.hear(member_id, self.heartbeat(request))

    def leave(self, member_id: str, *, is_restart: bool = False) -> GroupHeartbeatReply:
        epoch = STATIC_LEAVE_EPOCH if is_restart else LEAVE_EPOCH
        request = msgspec.structs.replace(
            self.request(member_id, owned=[], epoch=epoch),
            instance_id="any" if is_restart else None,
        )
        return self.heartbeat(request)

    def target(self) -> None:
        """Compute a target assignment."""
        self.carry_out(self.state.compute_target(GROUP, self.topics).records)

    def settle(self) -> None:
        """Let all members follow their replies, until nothing changes any more."""
        self.target()
        for _ in range(10):
            before = len(self.records)
            for member_id in list(self.group.members):
                self.say(member_id)
                self.say(member_id, owned=self.owned[member_id])
            if len(self.records) == before:
                return
        raise AssertionError("it does not settle")

    def commit(
        self, member_id: str, *offsets: tuple[int, int], epoch: int | None = None
    ) -> CommitResult:
        """Commit (partition, offset) pairs of `orders`, as the member's next commit."""
        self.sequence += 1
        return self.send_commit(self.commit_request(member_id, *offsets, epoch=epoch))

    def commit_request(
        self, member_id: str, *offsets: tuple[int, int], epoch: int | None = None
    ) -> CommitOffsetsRequest:
        return CommitOffsetsRequest(
            GROUP,
            member_id,
            self.epochs[member_id] if epoch is None else epoch,
            self.sequence,
            [PartitionCommit(ORDERS, partition, offset) for partition, offset in offsets],
        )

    def send_commit(self, request: CommitOffsetsRequest) -> CommitResult:
        outcome = self.state.commit_offsets([request], self.ranges(), NOW_MS)
        self.carry_out(outcome.records)
        return outcome.reply[0]

    def ranges(self) -> dict[Partition, OffsetRange]:
        return {
            (shape.topic_id, number): OffsetRange(10, 1000)
            for shape in self.topics.values()
            for number in range(shape.partition_count)
        }

    def committed(self, partition: int) -> int | None:
        found = self.group.committed((ORDERS, partition))
        return None if found is None else found.offset


def results(result: CommitResult) -> list[tuple[int | None, bool, int | None]]:
    """Return previous offset, whether it moved back, and the error code, of each."""
    assert isinstance(result, CommitOffsetsReply), result
    return [
        (one.previous_offset, one.has_moved_back, None if one.error is None else one.error.code)
        for one in result.results
    ]
