"""Writer of records whose values do not match the schema to a dead-letter topic.

Shell. A task stages its bad records and commits them when it has read its whole slice, all or
nothing. A task that Spark repeats writes them again: the same origin headers tell the copies.
"""

import uuid
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from typing import Final, final

import pyarrow as pa

from tidelog.spark_connector.connection.cluster_client import BlockingClusterClient
from tidelog.spark_connector.connection.pool import borrowed
from tidelog.spark_connector.options import ConnectionOptions, WriteOptions
from tidelog.spark_connector.value_options import BAD_ROWS, DEAD_LETTER_TOPIC
from tidelog.spark_connector.values.decoders import BadValue
from tidelog.spark_connector.write import transaction
from tidelog.spark_connector.write.rows import KeyPartitioner, row_batches
from tidelog.wire.batch.compression import Codec
from tidelog.wire.errors import ConfigError, RecordTooLargeError, TidelogError
from tidelog.wire.messages.queues import (
    CHUNKS_HEADER,
    ORIGIN_OFFSET_HEADER,
    ORIGIN_PARTITION_HEADER,
    ORIGIN_TOPIC_HEADER,
    REASON_HEADER,
)

COLUMNS: Final = ("key", "value", "topic", "partition", "offset", "headers")
"""Columns of the source that a dead letter needs."""


@contextmanager
def dead_letters(
    connection: ConnectionOptions, topic: str
) -> "Generator[DeadLetterWriter, None, None]":
    """Lend a writer; its records become visible at the end of the block, and never after an error.

    Raises:
        UnknownTopicError: The topic does not exist.
        ConfigError: A record is larger than the topic permits.
        TidelogError: A record was rejected, or no broker answered.
    """
    writer: DeadLetterWriter | None = None
    try:
        with borrowed(connection) as cluster:
            writer = DeadLetterWriter(cluster, topic)
            yield writer
            writer.commit()
    except BaseException:
        if writer is not None:
            # Another client: on the connections of the writer replies may be due.
            with suppress(TidelogError), borrowed(connection) as cluster:
                writer.abort(cluster)
        raise


@final
class DeadLetterWriter:
    """Writer of the bad records of one task."""

    def __init__(self, cluster: BlockingClusterClient, topic: str) -> None:
        """Begin a transaction under a name drawn for it."""
        self._cluster = cluster
        self._options = WriteOptions(connection=cluster.options, topic=topic)
        self._topic = topic
        self._name = f"spark-bad-values-{uuid.uuid4()}"
        self._task = transaction.StagingTask(
            cluster,
            self._name,
            0,
            codec=Codec.NONE,
            stage_timeout_ms=self._options.stage_timeout_ms,
        )
        self._keys = KeyPartitioner()
        self._largest = 0, ""
        """Bytes and place of the largest value, the one that a limit concerns."""

    def add(self, batch: pa.RecordBatch, bad: Sequence[BadValue]) -> None:
        """Stage the bad records of a batch with `COLUMNS`.

        Raises:
            ConfigError: A record comes from the dead-letter topic, or is larger than it permits.
            TidelogError: A record was rejected, or no broker answered.
        """
        rows = batch.take(pa.array([each.row for each in bad], pa.int64()))
        headers: list[list[dict[str, object]]] = []
        for each, row in zip(bad, rows.to_pylist(), strict=True):
            if row["topic"] == self._topic:
                raise ConfigError(
                    f"value.deadLetterTopic {self._topic!r} is read itself; name another topic"
                )
            place = f"{row['topic']}/{row['partition']}: the bad value at offset {row['offset']}"
            self._largest = max(self._largest, (len(row["value"]), place))
            added = {
                ORIGIN_TOPIC_HEADER: row["topic"],
                ORIGIN_PARTITION_HEADER: row["partition"],
                ORIGIN_OFFSET_HEADER: row["offset"],
                REASON_HEADER: each.reason,
            }
            origin: list[dict[str, object]] = [
                {"key": name, "value": str(value).encode()} for name, value in added.items()
            ]
            # The value of a large message is in the letter, not in chunks.
            given = [pair for pair in row["headers"] or () if pair["key"] != CHUNKS_HEADER]
            headers.append(origin + given)
        kept = [rows.schema.field(name) for name in ("key", "value", "headers")]
        letters = pa.RecordBatch.from_arrays(
            [rows.column("key"), rows.column("value"), pa.array(headers, kept[2].type)],
            schema=pa.schema(kept),
        )
        with self._naming_too_large():
            counts = self._task.partition_counts([self._topic])
            self._task.stage(
                row_batches(letters, self._options, counts, sticky=0, known_keys=self._keys)
            )

    def renew(self) -> None:
        """Keep the staged records; call it for each batch, also for one without bad records.

        Raises:
            TidelogError: The transaction has ended, or no broker answered.
        """
        self._task.renew()

    def commit(self) -> None:
        """Make the records visible."""
        with self._naming_too_large():
            places = self._task.finish()
        transaction.commit(
            self._cluster, self._name, 0, number=self._task.number, places=places, is_last=True
        )

    def abort(self, cluster: BlockingClusterClient) -> None:
        """Drop the records, unless they are visible."""
        transaction.abort(cluster, self._name, 0, number=self._task.number)

    @contextmanager
    def _naming_too_large(self) -> Generator[None, None, None]:
        """Add the place of the record, and what to do, to the error of one that is too large."""
        try:
            yield
        except RecordTooLargeError as error:
            size, place = self._largest
            raise ConfigError(
                f"{place} has {size} bytes, too many for {DEAD_LETTER_TOPIC} {self._topic!r}:"
                f" {error}; raise max_message_bytes of that topic, or set {BAD_ROWS} to column"
            ) from error
