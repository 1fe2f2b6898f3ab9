"""Short helpers to stage and commit over a plain connection."""

# Reads private state of brokers.
# pyright: reportPrivateUsage=false

from tests.broker.broker_requests import batch_of, submit
from tidelog.broker.partitions.partition import Partition
from tidelog.broker.server import Broker
from tidelog.wire.errors import from_wire
from tidelog.wire.messages.produce import PartitionBatch
from tidelog.wire.messages.transactions import (
    BeginTransactionReply,
    BeginTransactionRequest,
    CommitTransactionReply,
    CommitTransactionRequest,
    StagedPart,
    StagedPiece,
    StageRequest,
)
from tidelog.wire.protocol import api
from tidelog.wire.transport.rpc import RpcConnection

HOUR_MS = 3_600_000


async def begin(
    client: RpcConnection,
    transaction_id: int = 0,
    *topics: str,
    name: str = "job",
    timeout_ms: int = HOUR_MS,
) -> BeginTransactionReply:
    request = BeginTransactionRequest(name, transaction_id, list(topics or ["orders"]), timeout_ms)
    return await submit(client, api.BEGIN_TRANSACTION, request).reply()


def replica(broker: Broker, topic: str = "orders", number: int = 0) -> Partition:
    """Return the log of a partition, also of an internal topic beside it (`staged@orders`)."""
    assert broker._cluster is not None
    assert broker._partitions is not None
    topics = broker._cluster.metadata.state.catalog.topics
    (topic_id,) = [each.topic_id for each in topics if each.name == topic]
    found = broker._partitions.replica(topic_id, number)
    assert found is not None
    return found


async def stage(
    client: RpcConnection,
    staging: Partition,
    number: int,
    *values: bytes,
    producer_id: int = 1,
    sequence: int = 0,
) -> StagedPiece:
    """Stage one transaction and return its place."""
    batch = batch_of(*values, producer_id=producer_id, sequence=sequence)
    request = StageRequest(number, 10_000, [PartitionBatch(*staging.key, len(batch))])
    reply = await submit(client, api.STAGE, request, batch).reply()
    (result,) = reply.results
    if result.error is not None:
        raise from_wire(result.error)
    first = result.base_offset
    return StagedPiece(producer_id, first, first + len(values), len(values))


async def commit(
    client: RpcConnection,
    number: int,
    *parts: StagedPart,
    transaction_id: int = 0,
    name: str = "job",
    begins_next: bool = False,
    is_last: bool = False,
) -> CommitTransactionReply:
    request = CommitTransactionRequest(
        name,
        transaction_id,
        number,
        list(parts),
        10_000,
        begins_next=begins_next,
        is_last=is_last,
    )
    return await submit(client, api.COMMIT_TRANSACTION, request).reply()
