"""Samples of requests that receive, settle and inspect messages."""

from msgspec.structs import replace

from tests.wire.group_samples import OTHER_TOPIC_ID, TOPIC_ID
from tidelog.wire.errors import ErrorCode, ErrorDetail
from tidelog.wire.messages.queues import (
    CancelScheduledReply,
    CancelScheduledRequest,
    CountMessagesReply,
    CountMessagesRequest,
    EndReceivesReply,
    EndReceivesRequest,
    GetPurgeOffsetReply,
    GetPurgeOffsetRequest,
    MessageState,
    PartitionReceived,
    PeekedRun,
    PeekReply,
    PeekRequest,
    PurgeRequest,
    QueueCounts,
    QueueDoneReply,
    QueuePartitionDone,
    QueueSeekRequest,
    ReceivedRun,
    ReceiveReply,
    ReceiveRequest,
    RedriveRequest,
    Refused,
    SendReply,
    SendRequest,
    SettleAction,
    Settled,
    Settlement,
    SettleReply,
    SettleRequest,
)

NOT_LEADER = ErrorDetail(code=ErrorCode.NOT_LEADER, message="broker 2 leads it")
EXPIRED = ErrorDetail(code=ErrorCode.RECEIPT_EXPIRED, message="received again since")

SETTLE = (
    SettleRequest(
        queue_id=TOPIC_ID,
        settlements=[
            Settlement(
                partition=3,
                receipt=b"a receipt",
                runs=[(1000, 2), (1005, 1)],
                action=SettleAction.RELEASE,
                delay_ms=5000,
                reason="the shop is closed",
            )
        ],
    ),
    SettleReply(
        results=[
            Settled(refused=[Refused(runs=[(1005, 1)], error=EXPIRED)]),
            Settled(error=NOT_LEADER),
        ]
    ),
)
RECEIVE = (
    ReceiveRequest(
        queue_id=TOPIC_ID,
        partitions=[3, 0],
        max_messages=10,
        max_bytes=1 << 20,
        max_wait_ms=20_000,
        visibility_timeout_ms=60_000,
        holder="worker 7",
        attempt_id=b"an attempt",
        fail_at_limit=True,
        is_repetition=True,
        settlements=SETTLE[0].settlements,
    ),
    ReceiveReply(
        results=[
            PartitionReceived(
                partition=3,
                receipt=b"a receipt",
                runs=[
                    ReceivedRun(
                        first_offset=1000,
                        count=7,
                        receive_count=2,
                        first_received_ms=1_700_000_000_000,
                        rank=3,
                    )
                ],
                batch_bytes=4096,
                deadline_ms=1_700_000_060_000,
            ),
            PartitionReceived(partition=0, error=NOT_LEADER),
        ],
        now_ms=1_700_000_000_000,
        settled=SETTLE[1].results,
    ),
)
_RECEIVED = RECEIVE[1].results[0]
IN_OLDER_VERSIONS: dict[str, object] = {
    "receive_request_v1": replace(
        RECEIVE[0], fail_at_limit=False, is_repetition=False, settlements=[]
    ),
    "receive_request_v2": replace(RECEIVE[0], settlements=[]),
    "receive_reply_v2": replace(RECEIVE[1], settled=[]),
    "receive_reply_v1": replace(
        RECEIVE[1],
        results=[
            replace(_RECEIVED, runs=[replace(each, rank=0) for each in _RECEIVED.runs]),
            *RECEIVE[1].results[1:],
        ],
        settled=[],
    ),
}
"""See `tests.wire.samples.IN_OLDER_VERSIONS`."""
PEEK = (
    PeekRequest(
        queue_id=TOPIC_ID,
        partition=3,
        states=[MessageState.IN_FLIGHT, MessageState.DEAD],
        from_offset=900,
        max_messages=100,
        max_bytes=1 << 16,
    ),
    PeekReply(
        runs=[
            PeekedRun(
                first_offset=1000,
                count=7,
                state=MessageState.IN_FLIGHT,
                receive_count=2,
                visible_at_ms=1_700_000_060_000,
                holder="worker 7",
                reason="the shop was closed",
            )
        ],
        next_offset=1007,
        now_ms=1_700_000_000_000,
    ),
)
COUNT = (
    CountMessagesRequest(queue_id=TOPIC_ID, partitions=[3, 0]),
    CountMessagesReply(
        counts=[
            QueueCounts(
                partition=3,
                visible=100,
                in_flight=20,
                delayed=3,
                dead=1,
                oldest_offset=900,
                oldest_timestamp_ms=1_700_000_000_000,
                oldest_age_ms=345_600_000,
            ),
            QueueCounts(0, 0, 0, 0, 0, 0, error=NOT_LEADER),
        ]
    ),
)
_DONE = QueueDoneReply(
    results=[
        QueuePartitionDone(partition=3, count=124),
        QueuePartitionDone(partition=0, error=NOT_LEADER),
    ]
)
PURGE = (PurgeRequest(queue_id=TOPIC_ID, partitions=[3, 0]), _DONE)
SEEK = (QueueSeekRequest(queue_id=TOPIC_ID, partition=3, offset=700), _DONE)
REDRIVE = (
    RedriveRequest(
        queue_id=TOPIC_ID,
        partitions=[3, 0],
        destination=OTHER_TOPIC_ID,
        messages_per_s=100,
        origin_queue="billing",
        is_cancelled=True,
    ),
    _DONE,
)
SEND = (
    SendRequest(queue_id=TOPIC_ID, partition=3, timeout_ms=30_000),
    SendReply(
        offsets=[1000, 700, None, 1001],
        duplicates=[1, 2],
        ack_level=4,
        timestamp_ms=1_700_000_000_000,
        throttle_ms=250,
    ),
)
END_RECEIVES = (EndReceivesRequest(queue_id=TOPIC_ID), EndReceivesReply(ended_count=2))
GET_PURGE_OFFSET = (
    GetPurgeOffsetRequest(queue_id=TOPIC_ID, partition=3),
    GetPurgeOffsetReply(below_offset=700),
)
CANCEL_SCHEDULED = (
    CancelScheduledRequest(queue_id=TOPIC_ID, partition=3, runs=[(1000, 2), (1007, 1)]),
    CancelScheduledReply(refused=[Refused(runs=[(1007, 1)], error=EXPIRED)]),
)
