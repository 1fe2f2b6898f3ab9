"""Benchmark of Spark streams: end offsets, small micro-batches, and writes."""

from collections.abc import Callable
from itertools import count
from time import perf_counter, sleep  # noqa: TID251  (records arrive and requests are sent at intervals)
from typing import TYPE_CHECKING, Any

from bench.figures import Row, Settings, Spread
from bench.raw import RawConnection
from bench.spark_ceiling import NAME
from bench.spark_records import PARTITIONS
from bench.spark_session import ratio_row
from tidelog import blocking
from tidelog.spark_connector.read.read_options import ReadOptions
from tidelog.wire.messages.topics import CreateTopicRequest
from tidelog.wire.protocol import api

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_ALL_PARTITIONS = 1000
_LOOK_GOAL_MS = 5.0
_MICRO_BATCH_GOAL_S = 0.2
_WRITE_GOAL = 0.8
_WRITTEN = ("key", "value")
_STEADY_PARTITIONS = 3
_STEADY_RECORDS = 100
_WARM_BATCHES = 3


def look(broker: RawConnection, address: str, settings: Settings) -> list[Row]:
    """Request the end offsets of 1,000 partitions, as an idle stream does."""
    from pyspark.sql.streaming.datasource import ReadAllAvailable  # noqa: PLC0415

    from tidelog.spark_connector.read.stream_reader import StreamReader  # noqa: PLC0415

    broker.ask(api.CREATE_TOPIC, CreateTopicRequest("wide", _ALL_PARTITIONS, {}))
    raw = {"bootstrap.servers": address, "subscribe": "wide", "startingOffsets": "earliest"}
    reader = StreamReader(ReadOptions.parse(raw, is_stream=True), ["value"])
    start = reader.initialOffset()
    times: list[float] = []
    for _ in range(settings.choose(40, 10)):
        sleep(0.3)  # Beyond the interval in which the source reuses offsets.
        began = perf_counter()
        reader.latestOffset(start, ReadAllAvailable())
        times.append((perf_counter() - began) * 1000)
    # The first call connects, without cached metadata.
    spread = Spread.of(times[1:])
    return [
        Row(
            f"spark: latestOffset over {_ALL_PARTITIONS:,} partitions, ms",
            spread.text(".1f"),
            f"<= {_LOOK_GOAL_MS:.0f}",
            spread.median <= _LOOK_GOAL_MS,
        )
    ]


def micro_batches(spark: "SparkSession", settings: Settings, address: str) -> list[Row]:
    """Read a few records at a time, and as many rows that Spark makes itself."""
    wanted = settings.choose(20, 5)
    with blocking.connect(address) as client, client.producer() as producer:
        client.admin.create_topic("steady", _STEADY_PARTITIONS)
        options = {"bootstrap.servers": address, "subscribe": "steady"}
        table = spark.readStream.format("tidelog").options(**options).load()

        def send() -> None:
            for partition in range(_STEADY_PARTITIONS):
                producer.send_many("steady", [b"v"] * _STEADY_RECORDS, partition=partition)
            producer.flush()

        mine = _steady(table, settings, "steady", what=(wanted, send))
    own = (
        spark.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", _STEADY_PARTITIONS * _STEADY_RECORDS)
        .option("numPartitions", _STEADY_PARTITIONS)
        .load()
    )
    given = _steady(own, settings, "given", what=(wanted, lambda: None))
    return [
        Row(
            "spark: a steady micro-batch of some hundred records, s",
            mine.text(".2f"),
            f"<= {_MICRO_BATCH_GOAL_S}",
            mine.median <= _MICRO_BATCH_GOAL_S,
        ),
        Row("spark: the same of rows that Spark makes itself, s", given.text(".2f")),
    ]


def _steady(
    table: "DataFrame", settings: Settings, name: str, *, what: tuple[int, Callable[[], None]]
) -> Spread:
    """Return the seconds of micro-batches with rows, after a warm-up.

    Args:
        table: The stream.
        settings: Directory of the checkpoint.
        name: Name of the checkpoint.
        what: Number of batches, and the call that provides rows for the next one.
    """
    wanted, send = what
    checkpoint = str(settings.directory / f"{name}-checkpoint")
    query = table.writeStream.format("noop").option("checkpointLocation", checkpoint).start()
    busy: list[dict[str, Any]] = []
    while len(busy) < wanted + _WARM_BATCHES:
        assert query.isActive, query.exception()
        send()
        sleep(0.2)
        busy = [each for each in _progress(query) if each["numInputRows"]]
    query.stop()
    measured = busy[_WARM_BATCHES : _WARM_BATCHES + wanted]
    return Spread.of([each["durationMs"]["triggerExecution"] / 1000 for each in measured])


def writes(
    spark: "SparkSession", settings: Settings, address: str, *, what: tuple[str, int]
) -> list[Row]:
    """Write rows from Parquet files, alternately to a topic and to the empty sink.

    Args:
        spark: The session.
        settings: Directory of the files, and repetitions.
        address: Address of the broker.
        what: Path of the Parquet files, and the number of their rows.
    """
    parquet, record_count = what
    schema = spark.read.parquet(parquet).schema
    numbers = count()

    def stream(form: str, **options: str) -> float:
        folder = str(settings.directory / f"write{next(numbers)}")
        table = spark.readStream.schema(schema).parquet(parquet).select(*_WRITTEN)
        query = (
            table.writeStream.format(form)
            .options(checkpointLocation=folder, **options)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        (only,) = (each for each in _progress(query) if each["numInputRows"])
        assert only["numInputRows"] == record_count
        milliseconds: float = only["durationMs"]["addBatch"]
        return record_count / milliseconds * 1000

    def batch(form: str, **options: str) -> float:
        table = spark.read.parquet(parquet).select(*_WRITTEN)
        began = perf_counter()
        table.write.format(form).options(**options).mode("append").save()
        return record_count / (perf_counter() - began)

    def ours(write: Callable[..., float]) -> float:
        topic = f"written{next(numbers)}"
        with blocking.connect(address) as client:
            client.admin.create_topic(topic, PARTITIONS)
            rate = write("tidelog", **{"bootstrap.servers": address, "topic": topic})
            (written,) = client.admin.describe_topics([topic])
            ends = [partition.high_watermark for partition in written.partitions]
            assert sum(ends) == record_count, f"{ends} were written"
            client.admin.delete_topic(topic)
        return rate

    rounds = [
        (ours(stream), batch(NAME), ours(batch), stream(NAME)) for _ in range(settings.choose(7, 3))
    ][1:]
    streamed, ceiling, batched, stream_ceiling = (
        list(column) for column in zip(*rounds, strict=True)
    )
    name = f"spark: {record_count:,} rows of 60 to 140 bytes with keys written"
    return [
        ratio_row(
            f"{name} as a stream, to a batch thrown away", streamed, ceiling, goal=_WRITE_GOAL
        ),
        ratio_row(f"{name} as a stream, to a stream thrown away", streamed, stream_ceiling),
        ratio_row(f"{name} as a batch, to a batch thrown away", batched, ceiling),
        Row(f"{name} as a stream, records/s", Spread.of(streamed).text()),
    ]


def part_of(
    spark: "SparkSession", settings: Settings, topic: str, *, record_count: int
) -> tuple[str, int]:
    """Return the path of a topic's first rows as Parquet files, and their number."""
    path = str(settings.directory / f"{topic}-part")
    rows = spark.read.parquet(str(settings.directory / topic))
    rows.where(f"offset < {record_count // PARTITIONS}").write.parquet(path)
    return path, record_count


def _progress(query: "StreamingQuery") -> list[dict[str, Any]]:
    return [dict(each) for each in query.recentProgress]
