"""Spark and a broker, with short helpers to write and read."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, final

from tidelog import blocking

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

_SELECTIONS = {"subscribe", "assign", "queueDeadLetters", "queueHistory", "subscribePattern"}


@final
@dataclass(frozen=True, slots=True)
class World:
    """Fixture of every test that reads with Spark."""

    spark: "SparkSession"
    address: str
    client: blocking.Client
    data_dir: Path
    topic: str

    def named(self, topic: str) -> "World":
        """Return the same with another topic."""
        return replace(self, topic=topic)

    def create(self, partitions: int = 1) -> None:
        """Create the topic."""
        self.client.admin.create_topic(self.topic, partitions)

    def write(self, values: Sequence[bytes | None], partition: int = 0) -> None:
        """Write values into one partition."""
        with self.client.producer() as producer:
            producer.send_many(self.topic, values, partition=partition)

    def options(self, **options: str) -> dict[str, str]:
        """Return options of the source."""
        if not _SELECTIONS & options.keys():
            options["subscribe"] = self.topic
        return {"bootstrap.servers": self.address, **options}

    def load(self, schema: str | None = None, /, **options: str) -> "DataFrame":
        """Return the topic as a table."""
        reader = self.spark.read.format("tidelog").options(**self.options(**options))
        return (reader.schema(schema) if schema else reader).load()

    def rows(self, **options: str) -> "list[Row]":
        """Return all rows, by partition and offset."""
        return self.load(**options).orderBy("partition", "offset").collect()

    def values(self, **options: str) -> list[bytes | None]:
        """Return all values, by partition and offset."""
        return [None if row.value is None else bytes(row.value) for row in self.rows(**options)]

    def offsets(self, *numbers: int) -> str:
        """Return an offset of each partition, as JSON."""
        inner = ",".join(f'"{place}":{number}' for place, number in enumerate(numbers))
        return f'{{"{self.topic}":{{{inner}}}}}'

    def stream(self, **options: str) -> "DataFrame":
        """Return the topic as a stream, from its first record on."""
        given = self.options(**{"startingOffsets": "earliest", **options})
        return self.spark.readStream.format("tidelog").options(**given).load()
