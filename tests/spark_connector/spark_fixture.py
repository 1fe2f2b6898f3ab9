"""Fixture with a broker, a client that writes to it, and options of the connector."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

from tidelog import blocking
from tidelog.spark_connector.connection import pool
from tidelog.spark_connector.options import ConnectionOptions, GivenOptions
from tidelog.spark_connector.read.offset_ranges import Slice
from tidelog.spark_connector.read.read_options import READ_NAMES, ReadOptions
from tidelog.wire.batch.compression import Codec
from tidelog.wire.batch.record_batch import Headers


def close_idle() -> None:
    """Close the idle clients of the pool."""
    for free in pool._idle.values():  # pyright: ignore[reportPrivateUsage]
        while free:
            free.pop().close()


@final
@dataclass(frozen=True, slots=True)
class SparkFixture:
    """A broker, a client, and the name of a topic."""

    address: str
    client: blocking.Client
    data_dir: Path
    topic: str

    def create(self, partitions: int = 1, **settings: str) -> bytes:
        """Create the topic; return its id."""
        return self.client.admin.create_topic(self.topic, partitions, config=settings).topic_id

    def write(
        self,
        values: Sequence[bytes | None],
        *,
        partition: int = 0,
        compression: Codec = Codec.NONE,
    ) -> None:
        """Write values, in one batch if they fit."""
        name = {Codec.NONE: "none", Codec.LZ4: "lz4", Codec.ZSTD: "zstd"}[compression]
        with self.client.producer(compression_type=name) as producer:  # type: ignore[arg-type]
            producer.send_many(self.topic, values, partition=partition)

    def write_one(
        self,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Headers = (),
        timestamp_ms: int | None = None,
    ) -> None:
        """Write one record as a single batch."""
        with self.client.producer() as producer:
            producer.send(
                self.topic, value, key=key, partition=0, headers=headers, timestamp_ms=timestamp_ms
            )

    def raw(self, **options: str) -> dict[str, str]:
        """Return options as Spark passes them."""
        return {"bootstrap.servers": self.address, "subscribe": self.topic, **options}

    def options(self, is_stream: bool = False, /, **options: str) -> ReadOptions:
        """Return options to read the topic."""
        return ReadOptions.parse(self.raw(**options), is_stream=is_stream)

    def history(self, is_stream: bool = False, /, **options: str) -> ReadOptions:
        """Return options to read the history of the queue with the topic's name."""
        raw = {"bootstrap.servers": self.address, "queueHistory": self.topic, **options}
        return ReadOptions.parse(raw, is_stream=is_stream)

    @property
    def connection(self) -> ConnectionOptions:
        """Connection options for the broker."""
        return ConnectionOptions.parse(
            GivenOptions({"bootstrap.servers": self.address}, READ_NAMES)
        )

    def whole(self, topic_id: bytes, end: int, start: int = 0) -> Slice:
        """Return a range of partition 0."""
        return Slice(self.topic, topic_id, 0, start, end)
