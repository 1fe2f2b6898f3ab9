"""Samples of the administration of queues."""

from msgspec.structs import replace

from tests.wire.group_samples import OTHER_TOPIC_ID, TOPIC_ID
from tidelog.wire.errors import QueueExistsError
from tidelog.wire.messages.names import ListNamesReply, ListNamesRequest
from tidelog.wire.messages.queue_admin import (
    AlterQueueReply,
    AlterQueueRequest,
    CreateQueueReply,
    CreateQueueRequest,
    CreateQueuesReply,
    CreateQueuesRequest,
    DeleteQueueReply,
    DeleteQueueRequest,
    DescribeQueuesReply,
    DescribeQueuesRequest,
    QueueCreated,
    QueueDescription,
    QueuePartitionDescription,
)

CREATE = (
    CreateQueueRequest(
        name="billing",
        topic="orders",
        topic_id=TOPIC_ID,
        start_offsets=[10, 1000],
        is_fifo=True,
        config={"visibility_timeout_ms": "1min"},
        topic_config={"retention_ms": "14d"},
        partition_count=2,
        labels={"team": "billing"},
    ),
    CreateQueueReply(queue_id=OTHER_TOPIC_ID, topic_id=TOPIC_ID),
)
CREATE_MANY = (
    CreateQueuesRequest(queues=[CREATE[0], replace(CREATE[0], name="shipping", labels={})]),
    CreateQueuesReply(
        results=[
            QueueCreated(queue_id=OTHER_TOPIC_ID, topic_id=TOPIC_ID),
            QueueCreated(
                queue_id=b"", topic_id=b"", error=QueueExistsError("it is FIFO").to_wire()
            ),
        ]
    ),
)
DESCRIBE = (
    DescribeQueuesRequest(queues=["billing"]),
    DescribeQueuesReply(
        queues=[
            QueueDescription(
                name="billing",
                queue_id=OTHER_TOPIC_ID,
                topic="orders",
                topic_id=TOPIC_ID,
                is_fifo=True,
                created_at_ms=1_700_000_000_000,
                config={"visibility_timeout_ms": "1min", "require_latest_receipt": "on"},
                config_overrides=["visibility_timeout_ms"],
                dead_letters_of=["shipping"],
                partitions=[
                    QueuePartitionDescription(
                        partition=0,
                        leader_id=1,
                        leader_epoch=7,
                        start_offset=10,
                        replicas=[1, 2, 3],
                        in_sync_replicas=[1, 2],
                    )
                ],
                topic_retention_ms=604_800_000,
                topic_retention_bytes=1 << 30,
                labels={"team": "billing"},
                modified_at_ms=1_700_000_060_000,
            )
        ]
    ),
)
LIST = (
    ListNamesRequest(prefix="bill", after="bill", limit=100),
    ListNamesReply(names=["billing"], has_more=True),
)
ALTER = (
    AlterQueueRequest(
        name="billing",
        set_config={"max_receive_count": "5"},
        reset_config=["retention_ms"],
        set_labels={"team": "billing"},
        remove_labels=["owner"],
    ),
    AlterQueueReply(config={"max_receive_count": "5", "retention_ms": "4d"}),
)
DELETE = (
    DeleteQueueRequest(name="billing", with_topic=True, detach_sources=True),
    DeleteQueueReply(queue_id=OTHER_TOPIC_ID),
)

IN_OLDER_VERSIONS: dict[str, object] = {
    "create_queue_request_v1": replace(CREATE[0], labels={}),
    "describe_queues_reply_v1": DescribeQueuesReply(
        queues=[
            replace(
                each,
                topic_retention_ms=None,
                topic_retention_bytes=None,
                labels={},
                modified_at_ms=None,
            )
            for each in DESCRIBE[1].queues
        ]
    ),
    "describe_queues_reply_v2": DescribeQueuesReply(
        queues=[replace(each, modified_at_ms=None) for each in DESCRIBE[1].queues]
    ),
    "alter_queue_request_v1": replace(ALTER[0], set_labels={}, remove_labels=[]),
}
"""Messages of older golden frames by name, if they have fewer fields than today."""
