"""Samples of messages about redrives, and about the progress of movers."""

from msgspec.structs import replace

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
    DescribeRedriveRequest(queue_id=TOPIC_ID, partitions=[3, 0], with_earlier=True),
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
                number=2,
                redrive_id=b"task",
                note="for the auditors",
            ),
            RedriveDescription(0, error=NotLeaderError("broker 2 leads partition 0").to_wire()),
        ],
        now_ms=1_700_000_006_000,
        earlier=[RedriveDescription(partition=3, status=RedriveStatus.FAILED, number=1)],
    ),
)
IN_OLDER_VERSIONS: dict[str, object] = {
    "describe_redrive_request_v1": replace(DESCRIBE_REDRIVE[0], with_earlier=False),
    "describe_redrive_reply_v1": DescribeRedriveReply(
        redrives=[
            replace(each, number=0, redrive_id=b"", note="")
            for each in DESCRIBE_REDRIVE[1].redrives
        ],
        now_ms=DESCRIBE_REDRIVE[1].now_ms,
    ),
}
"""Messages of older golden frames by name."""
DESCRIBE_PRODUCER = (
    DescribeProducerRequest(topic_id=TOPIC_ID, partition=3, producer_id=1 << 62 | 42),
    DescribeProducerReply(producer_epoch=2, next_sequence=1000),
)
