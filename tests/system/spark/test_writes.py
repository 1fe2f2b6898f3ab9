"""Tests of writes from Spark: each batch exists once, completely or not at all."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from tests.system.spark.world import World
from tidelog.spark_connector.source import TidelogSource


def sink(world: World, **options: str) -> dict[str, str]:
    return {"bootstrap.servers": world.address, "topic": world.topic, **options}


def save(world: World, rows: DataFrame, **options: str) -> None:
    rows.write.format("tidelog").options(**sink(world, **options)).mode("append").save()


def numbers(world: World, count: int) -> DataFrame:
    """Return values in four tasks."""
    rows = world.spark.range(0, count, 1, 4)
    return rows.selectExpr("cast(id as string) as value", "cast(id % 7 as string) as key")


@pytest.mark.statement("s33")
def test_rows_come_back_as_they_were_written(world: World) -> None:
    world.create(2)
    header = "named_struct('key', 'h', 'value', cast('%s' as binary))"
    rows = world.spark.sql(
        "select cast(k as binary) as key, cast(v as binary) as value, p as partition, headers"
        f" from values (null, 'v', 0, array({header % 1}, {header % ''})),"
        " ('', '', 1, array()), ('k', null, 1, null) as given(k, v, p, headers)"
    )

    save(world, rows)

    found = {
        (row.key and bytes(row.key), row.value and bytes(row.value), row.partition): row.headers
        for row in world.rows(includeHeaders="true")
    }
    assert set(found) == {(None, b"v", 0), (b"", b"", 1), (b"k", None, 1)}
    assert [(each.key, bytes(each.value)) for each in found[None, b"v", 0]] == [
        ("h", b"1"),
        ("h", b""),
    ]


@pytest.mark.statement("s28", "s31")
def test_a_failed_job_writes_nothing_and_a_repeated_one_adds_nothing(
    world: World,
) -> None:
    world.create(3)
    broken = numbers(world, 1000).selectExpr(
        "if(value = '900', raise_error('broken'), value) as value", "key"
    )
    with pytest.raises(PySparkException, match="broken"):
        save(world, broken, transactionalId=world.topic)
    assert world.values() == []

    for _ in range(2):
        save(world, numbers(world, 1000), transactionalId=world.topic)

    assert sorted(int(value or b"") for value in world.values()) == list(range(1000))


@pytest.mark.statement("s32", "s33")
@pytest.mark.parametrize(
    ("select", "given", "complaint"),
    [
        (["key"], {}, "there is no column value"),
        (["cast(1 as int) as value"], {}, "column value is int"),
        (["value", "cast(1 as bigint) as key"], {}, "column key is bigint"),
        (["value", "cast(9 as int) as partition"], {}, "which has 1"),
        (["value"], {"topic": "nowhere"}, "there is no topic 'nowhere'"),
        (["value"], {"topics": "x"}, "did you mean topic"),
    ],
)
def test_an_invalid_write_is_refused_in_one_line(
    world: World, select: Sequence[str], given: dict[str, str], *, complaint: str
) -> None:
    world.create()

    with pytest.raises(PySparkException, match=complaint):
        save(world, numbers(world, 10).selectExpr(*select), **given)

    assert world.values() == []


@pytest.mark.statement("s32")
def test_a_null_topic_and_a_missing_one_are_refused(world: World) -> None:
    world.create()
    rows = numbers(world, 10)
    writer = rows.write.format("tidelog").option("bootstrap.servers", world.address)
    with pytest.raises(PySparkException, match="there is no topic"):
        writer.mode("append").save()
    some = rows.selectExpr("value", f"if(value = '5', null, '{world.topic}') as topic")
    writer = some.write.format("tidelog").option("bootstrap.servers", world.address)
    with pytest.raises(PySparkException, match="its column topic is null"):
        writer.mode("append").save()

    assert world.values() == []


@pytest.mark.statement("s34")
def test_only_append_mode_is_accepted(world: World) -> None:
    world.create()
    rows = numbers(world, 10)

    with pytest.raises(PySparkException, match="only appended to"):
        rows.write.format("tidelog").options(**sink(world)).mode("overwrite").save()
    with pytest.raises(PySparkException, match="UNSUPPORTED_DATA_SOURCE_SAVE_MODE"):
        rows.write.format("tidelog").options(**sink(world)).save()


def copy_stream(world: World, target: World, folder: Path, *, name: str = "tidelog") -> None:
    """Copy the topic by a stream, in batches of at most 100 rows."""
    stream = (
        world.spark.readStream.format("tidelog")
        .options(**world.options(startingOffsets="earliest", maxOffsetsPerTrigger="100"))
        .load()
        .selectExpr("key", "value")
    )
    writer = stream.writeStream.format(name).options(**sink(target))
    writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
    writer.trigger(availableNow=True).start().awaitTermination()


def test_a_stream_writes_each_row_once_over_several_runs(world: World, tmp_path: Path) -> None:
    target = world.named(f"{world.topic}-copy")
    world.create(2)
    target.create(3)
    for run in range(2):
        world.write([b"%d" % (200 * run + number) for number in range(200)], partition=run)
        copy_stream(world, target, tmp_path)

    assert sorted(int(value or b"") for value in target.values()) == list(range(400))


@pytest.mark.statement("s29")
def test_a_commit_with_a_lost_reply_is_neither_aborted_nor_repeated(
    world: World, tmp_path: Path
) -> None:
    target = world.named(f"{world.topic}-copy")
    world.create()
    target.create(2)
    world.write([b"%d" % number for number in range(250)])
    marker = str(tmp_path / "has-failed")

    class Failing(TidelogSource):
        """Loses the reply of the second commit.

        Pickled by value; its annotations are strings, which workers do not resolve.
        """

        @classmethod
        def name(cls) -> str:
            return "losing"

        def streamWriter(  # noqa: N802
            self, schema: "StructType", overwrite: bool
        ) -> "DataSourceStreamArrowWriter":
            inner = super().streamWriter(schema, overwrite)

            class Writer(DataSourceStreamArrowWriter):
                def write(self, iterator: "Iterator[Any]") -> "WriterCommitMessage":
                    return inner.write(iterator)

                def commit(
                    self,
                    messages: "list[WriterCommitMessage | None]",
                    batchId: int,  # noqa: N803
                ) -> None:
                    inner.commit(messages, batchId)
                    if batchId == 1 and not Path(marker).exists():
                        Path(marker).touch()
                        raise OSError("the answer was lost")

                def abort(
                    self,
                    messages: "list[WriterCommitMessage | None]",
                    batchId: int,  # noqa: N803
                ) -> None:
                    inner.abort(messages, batchId)

            return Writer()

    world.spark.dataSource.register(Failing)
    with pytest.raises(PySparkException, match="the answer was lost"):
        copy_stream(world, target, tmp_path, name="losing")
    assert len(target.values()) == 200, "the second batch is committed, and not undone"

    copy_stream(world, target, tmp_path, name="losing")

    assert sorted(int(value or b"") for value in target.values()) == list(range(250))
