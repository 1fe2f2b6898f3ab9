"""Requests that tests send to a broker, in few words."""

from collections.abc import Sequence
from typing import Generic, NamedTuple, TypeVar, final

import trio

from tests.broker.world import START_MS
from tidelog.client.cluster.list_offsets import (
    OffsetSpec,
    PartitionOffset,
    offset_at,
    offset_query,
)
from tidelog.wire.batch.batch_columns import decode_columns
from tidelog.wire.batch.record_batch import (
    Columns,
    Headers,
    encode_batch,
    has_valid_payload,
    parse_header,
)
from tidelog.wire.env.env import BytesLike
from tidelog.wire.errors import BrokerError, ErrorDetail, from_wire
from tidelog.wire.messages.fetch import (
    FetchReply,
    FetchRequest,
    PartitionFetch,
    PartitionFetched,
)
from tidelog.wire.messages.offset_ranges import ListOffsetsRequest
from tidelog.wire.messages.produce import (
    Acks,
    PartitionAppended,
    PartitionBatch,
    ProduceReply,
    ProduceRequest,
)
from tidelog.wire.messages.topics import (
    AlterTopicRequest,
    CreateTopicRequest,
    DeleteRecordsRequest,
    DeleteTopicRequest,
    DescribeTopicsRequest,
    PartitionDescription,
)
from tidelog.wire.protocol import api
from tidelog.wire.protocol.api import Api
from tidelog.wire.transport.rpc import Outcome, RpcConnection

RequestType = TypeVar("RequestType")
ReplyType = TypeVar("ReplyType")
Reply_co = TypeVar("Reply_co", covariant=True)

FOR_EVER_MS = 60_000


def batch_of(
    *values: bytes,
    producer_id: int = 0,
    epoch: int = 0,
    sequence: int = 0,
    at_ms: int = START_MS,
    headers: Headers = (),
) -> bytearray:
    """Return a batch of these records in the format of a producer, all with the same headers."""
    return encode_batch(
        Columns(
            len(values),
            values=list(values),
            headers=[headers] * len(values) if headers else None,
        ),
        first_timestamp_ms=at_ms,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
    )


@final
class Pending(Generic[Reply_co]):
    """A request whose reply may not have arrived yet."""

    def __init__(self) -> None:
        self._replied = trio.Event()
        self._outcome: tuple[Reply_co, bytes] | Exception | None = None

    @property
    def is_answered(self) -> bool:
        return self._replied.is_set()

    def finish(self, outcome: Outcome) -> None:
        assert not self._replied.is_set(), "a request was answered twice"
        if isinstance(outcome, Exception):
            self._outcome = outcome
        elif isinstance(outcome[0], BrokerError):
            self._outcome = outcome[0]
        else:
            self._outcome = outcome[0], bytes(outcome[1])
        self._replied.set()

    async def reply(self) -> Reply_co:
        """Wait for the reply and return it, or raise its error."""
        return (await self.reply_and_attachment())[0]

    async def answered(self) -> None:
        """Wait for the reply, which may be an error."""
        with trio.fail_after(3600):
            await self._replied.wait()

    async def reply_and_attachment(self) -> tuple[Reply_co, bytes]:
        await self.answered()
        assert self._outcome is not None
        if isinstance(self._outcome, Exception):
            raise self._outcome
        return self._outcome


def submit(
    client: RpcConnection,
    api_: Api[RequestType, ReplyType],
    request: RequestType,
    *attachment: BytesLike,
) -> Pending[ReplyType]:
    """Send a request without waiting."""
    pending: Pending[ReplyType] = Pending()
    client.submit(api_, request, pending.finish, attachment=attachment)
    return pending


async def create_topic(
    client: RpcConnection, name: str = "orders", partitions: int = 1, **config: str
) -> bytes:
    """Create a topic and return its id."""
    request = CreateTopicRequest(name, partitions, config)
    return (await submit(client, api.CREATE_TOPIC, request).reply()).topic_id


async def delete_topic(client: RpcConnection, name: str = "orders") -> None:
    await submit(client, api.DELETE_TOPIC, DeleteTopicRequest(name)).reply()


async def alter_topic(client: RpcConnection, name: str = "orders", **config: str) -> None:
    await submit(client, api.ALTER_TOPIC, AlterTopicRequest(name, config, [])).reply()


async def describe(
    client: RpcConnection, name: str = "orders", partition: int = 0
) -> PartitionDescription:
    reply = await submit(client, api.DESCRIBE_TOPICS, DescribeTopicsRequest([name])).reply()
    return reply.topics[0].partitions[partition]


async def delete_records(
    client: RpcConnection, topic_id: bytes, before_offset: int | None, *, partition: int = 0
) -> int:
    request = DeleteRecordsRequest(topic_id, partition, before_offset)
    return (await submit(client, api.DELETE_RECORDS, request).reply()).log_start_offset


def submit_batches(
    client: RpcConnection,
    batches: Sequence[tuple[bytes, int, BytesLike]],
    *,
    acks: int = Acks.ALL,
    timeout_ms: int = FOR_EVER_MS,
) -> Pending[ProduceReply]:
    """Send one batch for each (topic id, partition)."""
    entries = [
        PartitionBatch(topic_id, partition, len(batch)) for topic_id, partition, batch in batches
    ]
    request = ProduceRequest(acks, timeout_ms, entries)
    return submit(client, api.PRODUCE, request, *(batch for _, _, batch in batches))


def submit_produce(
    client: RpcConnection,
    topic_id: bytes,
    batch: BytesLike,
    *,
    partition: int = 0,
    acks: int = Acks.ALL,
    timeout_ms: int = FOR_EVER_MS,
) -> Pending[ProduceReply]:
    return submit_batches(client, [(topic_id, partition, batch)], acks=acks, timeout_ms=timeout_ms)


async def produce(
    client: RpcConnection,
    topic_id: bytes,
    batch: BytesLike,
    *,
    partition: int = 0,
    acks: int = Acks.ALL,
    timeout_ms: int = FOR_EVER_MS,
) -> PartitionAppended:
    """Append one batch and return its result, or raise its error."""
    reply = await submit_produce(
        client, topic_id, batch, partition=partition, acks=acks, timeout_ms=timeout_ms
    ).reply()
    (result,) = reply.results
    raise_if(result.error)
    return result


def produce_silently(client: RpcConnection, topic_id: bytes, batch: BytesLike) -> None:
    """Send one batch with acks 0, which gets no reply."""
    request = ProduceRequest(Acks.NONE, 0, [PartitionBatch(topic_id, 0, len(batch))])
    client.submit(api.PRODUCE, request, None, attachment=[batch])


class Record(NamedTuple):
    """One fetched record."""

    offset: int
    value: bytes | None


class Fetched(NamedTuple):
    """Result of a fetch from one partition."""

    records: list[Record]
    high_watermark: int
    log_start_offset: int
    error: BrokerError | None
    next_offset: int
    """Offset of the next fetch."""

    @property
    def values(self) -> list[bytes | None]:
        return [record.value for record in self.records]


class PendingFetch(NamedTuple):
    """A fetch whose reply may not have arrived yet."""

    reply: Pending[FetchReply]
    offsets: list[int]

    @property
    def is_answered(self) -> bool:
        return self.reply.is_answered


def submit_fetch(
    client: RpcConnection,
    wanted: Sequence[tuple[bytes, int, int]],
    *,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 1 << 20,
    max_partition_bytes: int = 1 << 20,
) -> PendingFetch:
    """Fetch records from each (topic id, partition, offset)."""
    partitions = [PartitionFetch(*each, max_partition_bytes) for each in wanted]
    request = FetchRequest(max_wait_ms, min_bytes, max_bytes, partitions)
    return PendingFetch(submit(client, api.FETCH, request), [offset for _, _, offset in wanted])


async def fetched(pending: PendingFetch) -> list[Fetched]:
    """Wait for the reply of a fetch, check every batch in it, and return the wanted records."""
    reply, attachment = await pending.reply.reply_and_attachment()
    results: list[Fetched] = []
    position = 0
    for result, offset in zip(reply.results, pending.offsets, strict=True):
        end = position + result.batch_bytes
        results.append(_decode(result, attachment[position:end], offset))
        position = end
    assert position == len(attachment)
    return results


async def fetch(
    client: RpcConnection, topic_id: bytes, offset: int = 0, *, partition: int = 0, **limits: int
) -> Fetched:
    """Fetch from one partition, or raise its error."""
    pending = submit_fetch(client, [(topic_id, partition, offset)], **limits)
    (result,) = await fetched(pending)
    if result.error is not None:
        raise result.error
    return result


async def fetch_all(client: RpcConnection, topic_id: bytes, partition: int = 0) -> list[Record]:
    """Fetch a partition from its first to its last committed record."""
    first = await list_offset(client, topic_id, "earliest", partition=partition)
    last = await list_offset(client, topic_id, "latest", partition=partition)
    assert first.offset is not None
    assert last.offset is not None
    records: list[Record] = []
    offset = first.offset
    while offset < last.offset:
        found = await fetch(client, topic_id, offset, partition=partition)
        assert found.next_offset > offset, f"nothing at offset {offset}"
        records += found.records
        offset = found.next_offset
    return records


async def list_offset(
    client: RpcConnection, topic_id: bytes, place: OffsetSpec, *, partition: int = 0
) -> PartitionOffset:
    """Ask for one offset, or raise its error."""
    request = ListOffsetsRequest([offset_query(topic_id, partition, place)])
    reply = await submit(client, api.LIST_OFFSETS, request).reply()
    (answer,) = reply.partitions
    raise_if(answer.error)
    return offset_at(place, answer)


def raise_if(error: ErrorDetail | None) -> None:
    if error is not None:
        raise from_wire(error)


def _decode(result: PartitionFetched, data: bytes, offset: int) -> Fetched:
    records: list[Record] = []
    next_offset = offset
    while data:
        header = parse_header(data)
        assert header is not None
        batch, data = data[: header.size], data[header.size :]
        # The batch is that of the producer, except for the fields that the broker stamped.
        assert has_valid_payload(header, batch)
        columns = decode_columns(header, batch, uncompressed_length_max=1 << 24)
        values = columns.values or [None] * columns.record_count
        deltas = columns.offset_deltas or range(columns.record_count)
        rows = zip(deltas, values, strict=True)
        records += [Record(header.base_offset + delta, value) for delta, value in rows]
        next_offset = header.next_offset
    records = [record for record in records if record.offset >= offset]
    error = None if result.error is None else from_wire(result.error)
    return Fetched(records, result.high_watermark, result.log_start_offset, error, next_offset)
