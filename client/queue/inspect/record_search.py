"""Search for records in the topic of a queue: one message, or those of a trace.

Shell: reads the topic. So it finds deleted messages as well, while the topic keeps their records.
"""

from tidelog.client.cluster.cluster_client import ClusterClient
from tidelog.client.config import ConsumerConfig
from tidelog.client.consumer.consumer import Consumer
from tidelog.client.consumer.fetch.record import Record
from tidelog.client.topic_partition import TopicPartition
from tidelog.client.tracing.trace_context import trace_id_of

_FROM_THE_START = ConsumerConfig(auto_offset_reset="earliest")


async def record_at(cluster: ClusterClient, tp: TopicPartition, offset: int) -> Record | None:
    """Return the record at an offset; `None` if the topic does not keep it.

    Raises:
        TidelogError: The partition did not answer, or the batch is corrupt.
    """
    topic, partition = tp
    async with Consumer(cluster, [topic], [partition], config=_FROM_THE_START) as consumer:
        start = (await consumer.beginning_offsets())[tp]
        end = (await consumer.end_offsets())[tp]
        if not start <= offset < end:
            return None
        consumer.seek(topic, partition, offset)
        async for batch in consumer.batches({tp: offset + 1}):
            for record in batch:
                if record.offset == offset:
                    return record
    return None


async def messages_of_trace(
    cluster: ClusterClient, topic: str, trace_id: str, *, since_ms: int
) -> list[str]:
    """Return the ids of messages whose headers have this trace id, by partition and offset.

    Only records with a time from `since_ms` on, in Unix milliseconds, are read.

    Raises:
        TidelogError: A partition did not answer, or a batch is corrupt.
    """
    found: list[tuple[int, int]] = []
    async with Consumer(cluster, [topic], None, config=_FROM_THE_START) as consumer:
        ends = await consumer.end_offsets()
        if since_ms:
            await consumer.seek_to_time(since_ms)
        async for batch in consumer.batches(ends):
            found += [
                (batch.partition, offset)
                for offset, headers in zip(batch.offsets, batch.headers, strict=True)
                if headers and trace_id_of(headers) == trace_id
            ]
    return [f"{partition}-{offset}" for partition, offset in sorted(found)]
