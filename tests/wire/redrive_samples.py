"""Samples of messages about redrives, and about the progress of movers."""

from tests.wire.group_samples import OTHER_TOPIC_ID, TOPIC_ID
from tidelog.wire.errors import NotLeaderError
from tidelog.wire.messages.produce import DescribeProducerReply, DescribeProducerRequest
from tidelog.wire.messages.redrives import (
    DescribeRedriveReply,
    DescribeRedriveRequest,
    RedriveDescription,
    RedriveStatus,
)

DESCRIBE_REDRIVE = (
    DescribeRedriveRequest(queue_id=TOPIC_ID, partitions=[3, 0]),
    DescribeRedriveReply(
        redrives=[
            RedriveDescription(
                partition=3,
                status=RedriveStatus.CANCELLED,
                started_ms=1_700_000_000_000,
                ended_ms=1_700_000_005_000,
                to_move=90,
                moved=40,
                on_the_way=5,
                left=30,
                skipped=13,
                failed=2,
                destination=OTHER_TOPIC_ID,
                messages_per_s=100,
                origin_queue="billing",
                reason="enough",
            ),
            RedriveDescription(0, error=NotLeaderError("broker 2 leads partition 0").to_wire()),
        ],
        now_ms=1_700_000_006_000,
    ),
)
DESCRIBE_PRODUCER = (
    DescribeProducerRequest(topic_id=TOPIC_ID, partition=3, producer_id=1 << 62 | 42),
    DescribeProducerReply(producer_epoch=2, next_sequence=1000),
)
