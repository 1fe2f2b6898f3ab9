"""Samples of messages about topics."""

from msgspec.structs import replace

from tests.wire.cluster_samples import EVENT
from tests.wire.group_samples import TOPIC_ID
from tidelog.wire.errors import ErrorCode, ErrorDetail
from tidelog.wire.messages.hot_keys import (
    HotGroup,
    HotKey,
    HotKeysReply,
    HotKeysRequest,
    PartitionHotKeys,
)
from tidelog.wire.messages.names import ListNamesReply, ListNamesRequest
from tidelog.wire.messages.topic_usage import (
    PartitionUsage,
    TopicUsage,
    TopicUsageReply,
    TopicUsageRequest,
)
from tidelog.wire.messages.topics import (
    AddPartitionsReply,
    AddPartitionsRequest,
    AlterTopicReply,
    AlterTopicRequest,
    CreateTopicReply,
    CreateTopicRequest,
    DeleteRecordsReply,
    DeleteRecordsRequest,
    DeleteTopicReply,
    DeleteTopicRequest,
    DescribeTopicsReply,
    DescribeTopicsRequest,
    PartitionDescription,
    RefusedRecords,
    TopicDescription,
)

CREATE = (
    CreateTopicRequest(
        name="orders",
        partition_count=6,
        config={"retention_ms": "3600000"},
        validate_only=True,
        replication_factor=3,
        labels={"team": "billing"},
    ),
    CreateTopicReply(topic_id=TOPIC_ID, partition_count=6, config={"durability": "fsync"}),
)
_DESCRIBED_V4 = DescribeTopicsReply(
    topics=[
        TopicDescription(
            name="orders",
            topic_id=TOPIC_ID,
            config={"durability": "fsync"},
            config_overrides=["durability"],
            partitions=[
                PartitionDescription(
                    partition=0,
                    leader_id=None,
                    leader_epoch=7,
                    log_start_offset=10,
                    high_watermark=19,
                    log_end_offset=20,
                    size_bytes=4096,
                    status="offline",
                    replicas=[1, 2, 3],
                    in_sync_replicas=[2, 3],
                    refused_records=[RefusedRecords(1, 555, 600)],
                )
            ],
            config_of_cluster=["min_insync_replicas"],
        )
    ]
)
_REASON = "no replica with all committed records is alive: broker 2 is fenced; start broker 2"
_DESCRIBED_V5 = DescribeTopicsReply(
    topics=[
        replace(
            topic,
            partitions=[replace(each, leaderless_reason=_REASON) for each in topic.partitions],
            events=[EVENT],
        )
        for topic in _DESCRIBED_V4.topics
    ]
)
DESCRIBE = (
    DescribeTopicsRequest(topics=None, is_local=True),
    DescribeTopicsReply(
        topics=[replace(topic, labels={"team": "billing"}) for topic in _DESCRIBED_V5.topics]
    ),
)
LIST = (
    ListNamesRequest(prefix="ord", after="order", limit=100),
    ListNamesReply(names=["orders"], has_more=True),
)
ALTER = (
    AlterTopicRequest(
        name="orders",
        set_config={"retention_ms": "1000"},
        reset_config=["durability"],
        set_labels={"team": "billing"},
        remove_labels=["owner"],
    ),
    AlterTopicReply(config={"durability": "fsync", "retention_ms": "1000"}),
)
DELETE = (
    DeleteTopicRequest(name="orders"),
    DeleteTopicReply(topic_id=TOPIC_ID),
)
DELETE_RECORDS = (
    DeleteRecordsRequest(topic_id=TOPIC_ID, partition=3, before_offset=15),
    DeleteRecordsReply(log_start_offset=15),
)

ADD_PARTITIONS = (
    AddPartitionsRequest(name="orders", partition_count=6, validate_only=True),
    AddPartitionsReply(topic_id=TOPIC_ID, partition_count=6, added=2, queues=["billing"]),
)
USAGE = (
    TopicUsageRequest(topics=["orders"], is_local=True),
    TopicUsageReply(
        topics=[
            TopicUsage(
                name="orders",
                topic_id=TOPIC_ID,
                partition_count=2,
                replication_factor=3,
                partitions=[
                    PartitionUsage(
                        partition=0,
                        leader_id=1,
                        size_bytes=1 << 30,
                        segment_count=5,
                        log_start_offset=10,
                        high_watermark=1019,
                        oldest_ms=1_700_000_000_000,
                        ingest_bytes_per_day=1 << 28,
                        ingest_offsets_per_day=500,
                        dirty_ratio=0.25,
                    )
                ],
            )
        ]
    ),
)

HOT_KEYS = (
    HotKeysRequest(topic_id=TOPIC_ID, partitions=[0, 3], limit=20),
    HotKeysReply(
        partitions=[
            PartitionHotKeys(
                partition=3,
                received_bytes_per_s=2_000_000.5,
                received_records_per_s=9_000.25,
                sent_bytes_per_s=4_000_001.0,
                is_hot=True,
                is_sampled=True,
                keyless_share=0.125,
                keys=[HotKey(key=b"user-1", key_bytes=6, share=0.25, error_bound=0.015625)],
                groups=[
                    HotGroup(key=b"group-1", key_bytes=7, message_count=90, not_visible_count=5)
                ],
                error=ErrorDetail(ErrorCode.NOT_LEADER, "broker 2 leads the partition now"),
            )
        ]
    ),
)

_DESCRIBED_V3 = replace(
    _DESCRIBED_V4.topics[0],
    partitions=[replace(each, refused_records=[]) for each in _DESCRIBED_V4.topics[0].partitions],
)

IN_OLDER_VERSIONS: dict[str, object] = {
    "create_topic_request_v1": CreateTopicRequest(
        name="orders",
        partition_count=6,
        config={"retention_ms": "3600000"},
        validate_only=True,
    ),
    "create_topic_request_v2": replace(CREATE[0], labels={}),
    "alter_topic_request_v1": replace(ALTER[0], set_labels={}, remove_labels=[]),
    "describe_topics_request_v1": DescribeTopicsRequest(topics=None),
    "describe_topics_reply_v1": DescribeTopicsReply(
        topics=[
            TopicDescription(
                name="orders",
                topic_id=TOPIC_ID,
                config={"durability": "fsync"},
                config_overrides=["durability"],
                partitions=[
                    PartitionDescription(
                        partition=0,
                        leader_id=None,
                        leader_epoch=7,
                        log_start_offset=10,
                        high_watermark=19,
                        log_end_offset=20,
                        size_bytes=4096,
                        status="offline",
                    )
                ],
            )
        ]
    ),
    "describe_topics_reply_v2": DescribeTopicsReply(
        topics=[replace(_DESCRIBED_V3, config_of_cluster=[])]
    ),
    "describe_topics_reply_v3": DescribeTopicsReply(topics=[_DESCRIBED_V3]),
    "describe_topics_reply_v4": _DESCRIBED_V4,
    "describe_topics_reply_v5": _DESCRIBED_V5,
}
