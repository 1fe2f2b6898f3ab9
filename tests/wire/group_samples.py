"""One instance of every message of consumer groups, with every field different from its default."""

from msgspec.structs import replace

from tidelog.wire.errors import OffsetOutOfRangeError, PartitionNotOwnedError, UnknownGroupError
from tidelog.wire.messages.groups import (
    AlterGroupReply,
    AlterGroupRequest,
    AssignedTopic,
    CommitOffsetsReply,
    CommitOffsetsRequest,
    DeleteGroupReply,
    DeleteGroupRequest,
    DescribedGroup,
    DescribedMember,
    DescribeGroupsReply,
    DescribeGroupsRequest,
    FetchOffsetsReply,
    FetchOffsetsRequest,
    GroupHeartbeatReply,
    GroupHeartbeatRequest,
    GroupListing,
    ListGroupsReply,
    ListGroupsRequest,
    PartitionCommit,
    PartitionCommitted,
    PartitionCommittedOffset,
    PartitionProgress,
    PartitionReset,
    PartitionWasReset,
    ResetOffsetsReply,
    ResetOffsetsRequest,
    ResetTo,
    Subscription,
    TopicPartitions,
)

TOPIC_ID = bytes(range(16))
OTHER_TOPIC_ID = bytes(range(16, 32))

BROKER_HEARTBEAT = (
    GroupHeartbeatRequest(
        group_id="billing",
        member_id="c41d",
        member_epoch=9,
        assignment_revision=2,
        owned=[TopicPartitions(topic_id=TOPIC_ID, partitions=[0, 3])],
        subscription=Subscription(topics=["orders"], pattern="orders.*"),
        subscription_version=1,
        assignor="range",
        rebalance_timeout_ms=60_000,
        busy_for_ms=20_000,
        instance_id="billing-1",
        incarnation=1_700_000_000_000,
        client_id="example",
    ),
    GroupHeartbeatReply(
        member_epoch=10,
        assignment_revision=3,
        heartbeat_interval_ms=5_000,
        lease_ms=40_000,
        assignment=[AssignedTopic(topic="orders", topic_id=TOPIC_ID, partitions=[0])],
    ),
)

COMMIT = (
    CommitOffsetsRequest(
        group_id="billing",
        member_id="c41d",
        member_epoch=9,
        sequence=17,
        offsets=[
            PartitionCommit(
                topic_id=TOPIC_ID, partition=3, offset=1003, leader_epoch=7, metadata="half"
            )
        ],
    ),
    CommitOffsetsReply(
        results=[
            PartitionCommitted(previous_offset=1005, has_moved_back=True),
            PartitionCommitted(
                previous_offset=None,
                error=PartitionNotOwnedError(
                    "member c41d does not hold partition 4, so it cannot commit there"
                ).to_wire(),
            ),
        ]
    ),
)

FETCH_OFFSETS = (
    FetchOffsetsRequest(
        group_id="billing", partitions=[TopicPartitions(topic_id=TOPIC_ID, partitions=[0, 3])]
    ),
    FetchOffsetsReply(
        offsets=[
            PartitionCommittedOffset(topic_id=TOPIC_ID, partition=0, offset=None),
            PartitionCommittedOffset(
                topic_id=TOPIC_ID,
                partition=3,
                offset=1003,
                leader_epoch=7,
                metadata="half",
                commit_time_ms=1_700_000_000_000,
            ),
        ]
    ),
)

LIST = (
    ListGroupsRequest(states=["stable", "empty"]),
    ListGroupsReply(
        groups=[
            GroupListing(
                group_id="billing",
                state="stable",
                member_count=2,
                assignor="range",
                overrides={"alert_lag_ms": "5min", "owner": "billing"},
            )
        ]
    ),
)

DESCRIBE = (
    DescribeGroupsRequest(group_ids=["billing", "gone"]),
    DescribeGroupsReply(
        groups=[
            DescribedGroup(
                group_id="billing",
                state="reconciling",
                assignor="range",
                group_epoch=10,
                target_epoch=9,
                members=[
                    DescribedMember(
                        member_id="c41d",
                        client_id="example",
                        instance_id="billing-1",
                        incarnation=1_700_000_000_000,
                        member_epoch=8,
                        state="unrevoked",
                        subscription=Subscription(topics=["orders"], pattern="orders.*"),
                        assigned=[TopicPartitions(topic_id=TOPIC_ID, partitions=[0])],
                        revoking=[TopicPartitions(topic_id=TOPIC_ID, partitions=[3])],
                        target=[TopicPartitions(topic_id=TOPIC_ID, partitions=[0])],
                    )
                ],
                partitions=[
                    PartitionProgress(
                        topic_id=TOPIC_ID,
                        partition=3,
                        member_id="c41d",
                        offset=1003,
                        log_start_offset=10,
                        high_watermark=1019,
                        lag_records=16,
                        lag_ms=2_000,
                        commit_time_ms=1_700_000_000_000,
                        metadata="half",
                    )
                ],
                config={"alert_lag_ms": "5min", "alert_lag_records": "none", "owner": "billing"},
                config_overrides=["alert_lag_ms", "owner"],
            ),
            DescribedGroup(
                group_id="gone",
                state="",
                assignor="",
                group_epoch=0,
                target_epoch=0,
                members=[],
                partitions=[],
                error=UnknownGroupError("there is no group 'gone'").to_wire(),
            ),
        ]
    ),
)

RESET = (
    ResetOffsetsRequest(
        group_id="billing",
        partitions=[
            PartitionReset(topic_id=TOPIC_ID, partition=3, to=ResetTo.SHIFT, value=-5),
            PartitionReset(topic_id=OTHER_TOPIC_ID, partition=0, to=ResetTo.OFFSET, value=2),
        ],
        validate_only=True,
    ),
    ResetOffsetsReply(
        results=[
            PartitionWasReset(previous_offset=1003, offset=998),
            PartitionWasReset(
                previous_offset=None,
                offset=None,
                error=OffsetOutOfRangeError(
                    "offset 2 is not in partition 0, which has 10 to 20",
                    log_start_offset=10,
                    log_end_offset=20,
                ).to_wire(),
            ),
        ]
    ),
)

ALTER = (
    AlterGroupRequest(
        group_id="billing",
        set_config={"alert_lag_ms": "5min", "owner": "billing"},
        reset_config=["alert_lag_records"],
    ),
    AlterGroupReply(
        config={"alert_lag_ms": "5min", "alert_lag_records": "none", "owner": "billing"}
    ),
)

DELETE = (DeleteGroupRequest(group_id="billing"), DeleteGroupReply(was_there=True))

IN_OLDER_VERSIONS: dict[str, object] = {
    "list_groups_reply_v1": ListGroupsReply(
        groups=[replace(each, overrides={}) for each in LIST[1].groups]
    ),
    "describe_groups_reply_v1": DescribeGroupsReply(
        groups=[replace(each, config={}, config_overrides=[]) for each in DESCRIBE[1].groups]
    ),
}
