"""Samples of messages about transactions."""

import msgspec

from tests.wire.group_samples import OTHER_TOPIC_ID, TOPIC_ID
from tidelog.wire.errors import InvalidRequestError, TransactionGoneError
from tidelog.wire.messages.produce import AckLevel, PartitionAppended, PartitionBatch, ProduceReply
from tidelog.wire.messages.transactions import (
    AbortTransactionReply,
    AbortTransactionRequest,
    AppendedPlace,
    AwaitAppendedReply,
    AwaitAppendedRequest,
    BeginTransactionReply,
    BeginTransactionRequest,
    CommitTransactionReply,
    CommitTransactionRequest,
    ForgetTransactionsReply,
    ForgetTransactionsRequest,
    ListTransactionsReply,
    ListTransactionsRequest,
    NameForgotten,
    StagedPart,
    StagedPiece,
    StageRequest,
    TransactionDescription,
    TransactionStatus,
)

BEGIN = (
    BeginTransactionRequest(
        name="query-1",
        transaction_id=17,
        topics=["orders", "billing"],
        timeout_ms=3_600_000,
        number=300,
    ),
    BeginTransactionReply(
        number=300,
        status=int(TransactionStatus.OPEN),
        topic_ids=[TOPIC_ID, OTHER_TOPIC_ID],
        expires_in_ms=45_000,
    ),
)
STAGE = (
    StageRequest(
        number=300,
        timeout_ms=30_000,
        batches=[PartitionBatch(TOPIC_ID, 3, 100), PartitionBatch(OTHER_TOPIC_ID, 1, 28)],
    ),
    ProduceReply(
        [
            PartitionAppended(1000, int(AckLevel.DURABLE), 900),
            PartitionAppended(0, 0, 0, TransactionGoneError("transaction 300 is over").to_wire()),
        ]
    ),
)
COMMIT = (
    CommitTransactionRequest(
        name="query-1",
        transaction_id=17,
        number=300,
        parts=[
            StagedPart(
                TOPIC_ID,
                3,
                [
                    StagedPiece(producer_id=42, first_offset=1000, end_offset=1300, record_count=9),
                    StagedPiece(producer_id=43, first_offset=1001, end_offset=1002, record_count=1),
                ],
            )
        ],
        timeout_ms=15_000,
        begins_next=True,
        is_last=True,
    ),
    CommitTransactionReply(was_committed=True, next_number=301, next_expires_in_ms=60_000),
)
ABORT = (
    AbortTransactionRequest(name="query-1", transaction_id=17, number=300),
    AbortTransactionReply(is_committed=True),
)
LIST = (
    ListTransactionsRequest(names=["query-1"]),
    ListTransactionsReply(
        [
            TransactionDescription(
                name="query-1",
                open_transaction_id=18,
                begun_at_ms=1_700_000_000_000,
                expires_at_ms=1_700_003_600_000,
                last_transaction_id=17,
                last_status=int(TransactionStatus.COMPLETE),
                last_used_ms=1_700_000_000_001,
            )
        ]
    ),
)
FORGET = (
    ForgetTransactionsRequest(names=["query-1", "query-2", "query-3"], unused_for_ms=86_400_000),
    ForgetTransactionsReply(
        [
            NameForgotten(),
            NameForgotten(InvalidRequestError("it is open").to_wire()),
            NameForgotten(),
        ]
    ),
)
AWAIT_APPENDED = (
    AwaitAppendedRequest(
        cluster_id="5f3a9c1e7b2d4f60a8c1e3d5",
        commit_number=70_000,
        parts=[AppendedPlace(TOPIC_ID, 3), AppendedPlace(OTHER_TOPIC_ID, 1)],
        timeout_ms=5_000,
    ),
    AwaitAppendedReply(are_appended=[True, False]),
)
IN_OLDER_VERSIONS: dict[str, object] = {
    "begin_transaction_request_v1": msgspec.structs.replace(BEGIN[0], number=0),
    "begin_transaction_reply_v1": msgspec.structs.replace(BEGIN[1], expires_in_ms=0),
    "commit_transaction_request_v1": msgspec.structs.replace(
        COMMIT[0], begins_next=False, is_last=False
    ),
    "commit_transaction_reply_v1": msgspec.structs.replace(
        COMMIT[1], next_number=0, next_expires_in_ms=0
    ),
}
