"""Tests of batch reads: results of Spark's Kafka source, and errors instead of guesses."""

import datetime as dt
import socket
from time import perf_counter

import pytest
from pyspark.errors import PySparkException

from tests.system.spark.world import World


@pytest.mark.statement("s1", "s2", "s11")
def test_the_source_needs_no_registration_and_has_the_columns_of_a_kafka_topic(
    world: World,
) -> None:
    world.create(2)
    with world.client.producer() as producer:
        producer.send(
            world.topic, b"v", key=b"k", partition=1, headers=[("a", b"1"), ("a", b"")],
            timestamp_ms=1_700_000_000_123,
        )  # fmt: skip
        producer.send(world.topic, None, key=b"", partition=1, timestamp_ms=0)
        producer.send(world.topic, b"", partition=1, timestamp_ms=1)

    table = world.load(includeHeaders="true")
    rows = world.rows(includeHeaders="true")

    assert table.schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,"
        "timestamp:timestamp,timestampType:int,headers:array<struct<key:string,value:binary>>>"
    )
    assert all(field.nullable for field in table.schema.fields)
    first = rows[0].asDict(recursive=True)
    assert first["headers"] == [{"key": "a", "value": b"1"}, {"key": "a", "value": b""}]
    assert first["timestamp"].replace(tzinfo=None) == dt.datetime(  # noqa: DTZ001
        2023, 11, 14, 22, 13, 20, 123_000
    )
    assert [(row.key, row.value, row.partition, row.offset) for row in rows] == [
        (b"k", b"v", 1, 0), (b"", None, 1, 1), (None, b"", 1, 2),
    ]  # fmt: skip
    assert [row.headers for row in rows[1:]] == [None, None]


@pytest.mark.statement("s7")
def test_a_range_is_read_exactly_and_an_empty_one_has_no_rows(world: World) -> None:
    world.create()
    world.write([b"%d" % number for number in range(20)])

    assert world.values(startingOffsets=world.offsets(3), endingOffsets=world.offsets(7)) == [
        b"3", b"4", b"5", b"6",
    ]  # fmt: skip
    assert world.values(startingOffsets=world.offsets(7), endingOffsets=world.offsets(7)) == []
    many = world.load(maxRecordsPerPartition="3")
    assert (many.rdd.getNumPartitions(), many.count()) == (7, 20)


@pytest.mark.statement("s35")
def test_a_count_needs_no_column_and_two_columns_can_be_asked_for(world: World) -> None:
    world.create()
    world.write([b"a", b"bb"])

    assert world.load().count() == 2
    some = world.load("offset long, value binary")
    assert [(row.offset, bytes(row.value)) for row in some.collect()] == [(0, b"a"), (1, b"bb")]
    with pytest.raises(PySparkException, match="column value is binary, not string"):
        world.load("value string").collect()
    with pytest.raises(PySparkException, match="there is no column 'values'"):
        world.load("values binary").collect()


@pytest.mark.statement("s6")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"startingoffset": "earliest"}, "did you mean startingOffsets"),
        ({"assign": '{"a":[0]}', "subscribe": "b"}, "exactly one of subscribe, subscribePattern"),
        ({"minPartitions": "many"}, "minPartitions must be a whole number"),
    ],
)
def test_a_misspelt_option_is_refused_at_load(
    world: World, options: dict[str, str], message: str
) -> None:
    with pytest.raises(PySparkException, match=message):
        world.load(**options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"startingOffsets": "latest"}, "leave a batch nothing"),
        ({"startingOffsets": '{"zz":{"0":1}}'}, "which is not read"),
        ({"maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger must be at least 1"),
    ],
)
def test_an_invalid_option_of_a_batch_is_refused_at_read(
    world: World, options: dict[str, str], message: str
) -> None:
    world.create()

    with pytest.raises(PySparkException, match=message):
        world.load(**options).count()


def test_options_bound_a_read_by_columns_partitions_and_offsets(world: World) -> None:
    world.create(3)
    for partition in range(3):
        world.write([b"%d-%d" % (partition, number) for number in range(5)], partition=partition)

    table = world.load(
        columns="offset,value", partitions="0,2", startingOffsets="1", endingOffsets="3"
    )

    assert table.columns == ["offset", "value"]
    assert sorted((row.offset, bytes(row.value)) for row in table.collect()) == [
        (1, b"0-1"), (1, b"2-1"), (2, b"0-2"), (2, b"2-2"),
    ]  # fmt: skip


@pytest.mark.statement("s36")
def test_a_table_is_a_snapshot_and_a_new_one_has_new_records(world: World) -> None:
    world.create()
    world.write([b"a"])
    table = world.load()
    assert table.count() == 1
    world.write([b"b"])

    assert table.count() == 1
    assert world.load().count() == 2


@pytest.mark.statement("s37")
def test_filters_of_two_queries_over_one_table_do_not_mix(world: World) -> None:
    world.create(2)
    world.write([b"a", b"b"], partition=0)
    world.write([b"c"], partition=1)
    table = world.load()

    both = table.filter("partition = 0").union(table.filter("partition = 1"))

    assert sorted(bytes(row.value) for row in both.collect()) == [b"a", b"b", b"c"]


@pytest.mark.statement("s39")
def test_a_limit_is_reached_without_reading_all(world: World) -> None:
    world.create()
    for _ in range(30):
        world.write([bytes(1000)] * 500)

    assert len(world.load().limit(1).collect()) == 1
    assert world.load("value binary").count() == 15_000


@pytest.mark.statement("s41")
def test_a_damaged_batch_fails_the_task_and_the_error_names_it(world: World) -> None:
    world.create()
    world.write([b"good"])
    world.write([b"bad-to-the-bone"])
    (segment,) = (world.data_dir / "topics").glob(f"{world.topic}.*/0/*.log")
    place = segment.read_bytes().index(b"bad-to-the-bone")
    with segment.open("r+b") as file:
        file.seek(place)
        file.write(b"BAD")

    with pytest.raises(PySparkException, match=f"{world.topic}/0.* offset 1 "):
        world.rows()


@pytest.mark.parametrize("is_write", [False, True])
def test_a_broker_that_is_down_is_reported_soon_and_in_one_line(
    world: World, *, is_write: bool
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = "{}:{}".format(*listener.getsockname())
    rows = world.spark.range(1).selectExpr("cast(id AS string) AS value")
    sink = rows.write.format("tidelog").option("topic", world.topic).mode("append")
    table = world.load(**{"bootstrap.servers": address})
    use = sink.option("bootstrap.servers", address).save if is_write else table.count
    began = perf_counter()

    with pytest.raises(PySparkException) as caught:
        use()

    assert perf_counter() - began < 25, "the limit of a request is 30 s"
    told, *after = str(caught.value).splitlines()
    assert f"ConnectError: cannot connect to {address}: Connection refused" in told
    assert [line.strip() for line in after] == ["SQLSTATE: 38000"]


def test_a_table_of_the_catalog_is_refused_and_a_view_reads_the_topic(world: World) -> None:
    world.create()
    world.write([b"a"])
    options = f"OPTIONS ('bootstrap.servers' '{world.address}', subscribe '{world.topic}')"

    with pytest.raises(PySparkException, match="CREATE TEMPORARY VIEW orders USING tidelog"):
        world.spark.sql(f"CREATE TABLE orders USING tidelog {options}")
    world.spark.sql(f"CREATE TABLE orders (value binary) USING tidelog {options}")
    with pytest.raises(PySparkException, match="CREATE TEMPORARY VIEW orders USING tidelog"):
        world.spark.sql("SELECT * FROM orders").collect()
    world.spark.sql("DROP TABLE orders")

    world.spark.sql(f"CREATE TEMPORARY VIEW orders USING tidelog {options}")
    assert world.spark.sql("SELECT cast(value AS string) FROM orders").first() == ("a",)
    world.spark.sql("DROP VIEW orders")


def test_dead_letters_have_source_and_reason(world: World) -> None:
    dead = f"{world.topic}-dead"
    world.client.admin.create_queue(dead, partitions=1)
    for name in (world.topic, f"{world.topic}-other"):
        world.client.admin.create_queue(
            name, partitions=1, dead_letter_queue=dead, max_receive_count=1
        )
        queue = world.client.queue(name)
        queue.send(b"poison of " + name.encode())
        (message,) = queue.receive(max_messages=1, wait=10)
        message.reject("it cannot be read")
    with world.client.producer() as producer:
        producer.send(dead, b"no dead letter", partition=0)

    with world.client.consumer(dead, auto_offset_reset="earliest") as consumer:
        for record in consumer:
            if record.offset == 1:
                break
    (row,) = world.rows(queueDeadLetters=world.topic)

    assert bytes(row.value) == b"poison of " + world.topic.encode()
    assert (row.originQueue, row.originTopic, row.originPartition, row.originOffset) == (
        world.topic, world.topic, 0, 0,
    )  # fmt: skip
    assert (row.receiveCount, row.reason) == (1, "it cannot be read")
    assert row.firstReceived is not None
