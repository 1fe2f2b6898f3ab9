"""Test of the garbage collections in Spark's worker processes."""

import gc
from collections.abc import Iterator
from typing import cast

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from tests.system.spark.world import World
from tidelog.spark_connector.read.batch_reader import BatchReader
from tidelog.spark_connector.source import TidelogSource


class _Frozen(TidelogSource):
    """Source whose tasks read their slice, and return the number of objects that are exempt."""

    @classmethod
    def name(cls) -> str:
        return "frozen"

    def reader(self, schema: StructType) -> DataSourceReader:
        return _FrozenReader(cast("BatchReader", super().reader(schema)))


class _FrozenReader(DataSourceReader):
    def __init__(self, inner: BatchReader) -> None:
        self._inner = inner

    def partitions(self) -> list[InputPartition]:
        return list(self._inner.partitions())

    def read(self, partition: InputPartition) -> Iterator[tuple[int, ...]]:
        batches: Iterator[pa.RecordBatch] = self._inner.read(partition)
        yield from ((gc.get_freeze_count(),) for batch in batches if batch.num_rows)


def test_a_worker_exempts_its_imports_from_collections(world: World) -> None:
    frozen_count = gc.get_freeze_count()
    world.create()
    world.write([b"a"])
    world.spark.dataSource.register(_Frozen)
    table = world.spark.read.format("frozen").options(**world.options()).schema("offset long")

    exempt = [row.offset for _ in range(2) for row in table.load().collect()]

    assert len(exempt) == 2
    assert min(exempt) > 50_000, "the imports of a worker are about 100,000 objects"
    assert gc.get_freeze_count() <= frozen_count, "the process of the user collects as before"
