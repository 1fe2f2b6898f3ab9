"""Client, producer, consumer and transactions of the blocking face."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

import tidelog
from tests.tidelog.brokers import broker_in_a_thread
from tests.tidelog.group_servers import group_server_in_a_thread
from tidelog import blocking
from tidelog.client.producer.producer_record import ProducerRecord
from tidelog.client.topic_partition import TopicPartition
from tidelog.wire.errors import (
    ConfigError,
    ConnectError,
    NoPositionError,
    OffsetOutOfRangeError,
    TopicExistsError,
    UnknownTopicError,
)


@pytest.fixture
def client(tmp_path: Path) -> Iterator[blocking.Client]:
    with broker_in_a_thread(tmp_path) as address, blocking.connect(address) as client:
        client.admin.create_topic("orders", 2)
        yield client


def everything(client: blocking.Client) -> list[bytes | None]:
    with client.consumer("orders", auto_offset_reset="earliest") as consumer:
        return [record.value for record in consumer.records(consumer.end_offsets())]


def test_it_is_found_by_the_name_of_the_package() -> None:
    assert tidelog.blocking is blocking


def test_sent_records_are_consumed(client: blocking.Client) -> None:
    with client.producer() as producer:
        receipt = producer.send("orders", b"one", partition=0)
        receipts = producer.send_many("orders", [b"two", b"three"], partition=0)

    assert (receipt.partition, receipt.offset) == (0, 0)
    assert [(part.offset, list(part.indexes)) for part in receipts] == [(1, [0, 1])]
    assert everything(client) == [b"one", b"two", b"three"]


def test_records_of_send_nowait_are_appended_in_order_before_the_block_ends(
    client: blocking.Client,
) -> None:
    values = [b"%d" % number for number in range(20_000)]
    with client.producer() as producer:
        for value in values:
            producer.send_nowait("orders", value, partition=1)

    assert everything(client) == values


def test_records_of_send_nowait_are_appended_before_a_later_send(
    client: blocking.Client,
) -> None:
    with client.producer() as producer:
        for number in range(100):
            producer.send_nowait("orders", b"%d" % number, partition=0)
        receipt = producer.send("orders", b"last", partition=0)

    assert receipt.offset == 100


def test_the_failure_of_a_record_of_send_nowait_is_raised_by_flush(
    client: blocking.Client,
) -> None:
    with client.producer() as producer:
        producer.send_nowait("nope", b"v")

        with pytest.raises(UnknownTopicError):
            producer.flush()


def test_a_full_buffer_makes_the_caller_wait_and_loses_nothing(client: blocking.Client) -> None:
    with client.producer(buffer_memory=20_000, batch_size=2_000) as producer:
        for _ in range(2_000):
            producer.send_nowait("orders", b"v" * 100)
        producer.flush()
        statistics = producer.statistics()

    assert statistics.acknowledged_record_count == 2_000
    assert len(everything(client)) == 2_000


def test_batches_are_read_from_where_records_stopped(client: blocking.Client) -> None:
    with client.producer() as producer:
        producer.send_many("orders", [b"a", b"b", b"c"], partition=0)
    with client.consumer("orders", partitions=[0], auto_offset_reset="earliest") as consumer:
        first = next(iter(consumer))
        position = consumer.position("orders", 0)
        batch = next(consumer.batches())

    assert (first.value, position) == (b"a", 1)
    assert list(batch.values) == [b"b", b"c"]


def test_seeking_moves_the_position(client: blocking.Client) -> None:
    with client.producer() as producer:
        for number in range(3):
            producer.send("orders", b"%d" % number, partition=0, timestamp_ms=1000 + number)
    with client.consumer("orders", partitions=[0]) as consumer:
        with pytest.raises(NoPositionError):
            next(iter(consumer))
        consumer.seek("orders", 0, 2)
        by_offset = next(iter(consumer)).value
        consumer.seek_to_beginning()
        from_the_start = next(iter(consumer)).value
        consumer.seek_to_time(1001)
        by_time = next(iter(consumer)).value
        consumer.seek_to_end()
        at_the_end = consumer.position("orders", 0)
        consumer.seek("orders", 0, 9)
        with pytest.raises(OffsetOutOfRangeError):
            next(iter(consumer))

    assert (by_offset, from_the_start, by_time, at_the_end) == (b"2", b"0", b"1", 3)


def test_administration_has_the_same_calls(client: blocking.Client) -> None:
    admin = client.admin
    assert admin.list_topics() == ["orders"]
    assert admin.alter_topic("orders", set={"retention_ms": "1h"})["retention_ms"] == "1h"
    (topic,) = admin.describe_topics(["orders"])
    assert topic.config_overrides == ["retention_ms"]
    with client.producer() as producer:
        producer.send("orders", b"v", partition=0)
    assert admin.delete_records("orders", 0, None).log_start_offset == 1
    with pytest.raises(TopicExistsError):
        admin.create_topic("orders")
    admin.delete_topic("orders")
    assert admin.list_topics() == []


def test_a_client_is_shared_between_threads(client: blocking.Client) -> None:
    with client.producer() as producer:

        def send() -> None:
            for _ in range(50):
                producer.send("orders", b"v")

        threads = [threading.Thread(target=send) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert len(everything(client)) == 200


def test_an_unreachable_broker_is_a_connect_error() -> None:
    with pytest.raises(ConnectError, match=r"127\.0\.0\.1:1"):
        blocking.connect("127.0.0.1:1")


def test_an_illegal_address_is_refused() -> None:
    with pytest.raises(ConfigError):
        blocking.connect("a:b:c")


def test_a_closed_client_refuses_every_call(client: blocking.Client) -> None:
    client.close()
    client.close()

    with pytest.raises(trio.ClosedResourceError):
        client.admin.list_topics()


@pytest.fixture
def group_client() -> Iterator[blocking.Client]:
    with group_server_in_a_thread() as address, blocking.connect(address) as client:
        client.admin.create_topic("orders", 2)
        yield client


def test_members_of_a_group_read_on_where_the_group_is(group_client: blocking.Client) -> None:
    with group_client.producer() as producer:
        producer.send_many("orders", [b"a", b"b", b"c"], partition=0)
    with group_client.consumer(
        "orders", group_id="billing", auto_offset_reset="earliest", enable_auto_commit=False
    ) as first:
        records = first.records()
        assert [next(records).value for _ in range(2)] == [b"a", b"b"]
        first.commit()
        assert first.committed([("orders", 0)]) == {("orders", 0): 2}
    with group_client.consumer(
        "orders", group_id="billing", auto_offset_reset="earliest"
    ) as second:
        assert next(second.records()).value == b"c"

    group = group_client.admin.describe_group("billing")
    assert [listed.group_id for listed in group_client.admin.list_groups()] == ["billing"]
    assert [each.offset for each in group.partitions] == [2, 0]
    moved = group_client.admin.reset_offsets("billing", [("orders", 0)], "earliest")
    assert [(move.previous_offset, move.offset) for move in moved.values()] == [(2, 0)]
    assert group_client.admin.delete_group("billing")


def test_a_partition_revoked_within_a_batch_delivers_no_more_records(
    group_client: blocking.Client,
) -> None:
    with group_client.producer() as producer:
        for partition in range(2):
            producer.send_many("orders", [b"x"] * 100, partition=partition)
    others: list[int] = []
    revoked: list[TopicPartition] = []

    def note(partitions: list[TopicPartition]) -> None:
        revoked.extend(partitions)

    def take_the_rest() -> None:
        with group_client.consumer(
            "orders", group_id="billing", auto_offset_reset="earliest"
        ) as other:
            for record in other:
                others.append(record.offset)
                if record.offset == 99:
                    return

    def is_revoking() -> bool:
        members = group_client.admin.describe_group("billing").members
        return any(member.revoking for member in members)

    with group_client.consumer(
        "orders", group_id="billing", auto_offset_reset="earliest", on_revoked=note
    ) as consumer:
        records = iter(consumer)
        given = [next(records) for _ in range(50)]
        other = threading.Thread(target=take_the_rest)
        other.start()
        while not is_revoking():
            pass
        given += [next(records) for _ in range(50)]
        other.join(30)

    number = revoked[0].partition  # The other partition is revoked at the end.
    taken = [record.offset for record in given if record.partition == number]
    assert taken + others == list(range(100))


def test_a_consumer_without_a_group_commits_nothing(client: blocking.Client) -> None:
    with (
        client.consumer("orders", auto_offset_reset="earliest") as consumer,
        pytest.raises(ConfigError, match="group_id"),
    ):
        consumer.commit()


def test_what_is_wanted_may_change_and_a_pause_be_announced(
    group_client: blocking.Client,
) -> None:
    group_client.admin.create_topic("more", 1)
    with group_client.consumer(
        "orders", group_id="billing", auto_offset_reset="earliest"
    ) as consumer:
        consumer.subscribe("more")
        consumer.extend_poll_interval(100)
        with group_client.producer() as producer:
            producer.send("more", b"x")

        assert next(iter(consumer)).value == b"x"


def test_a_transform_runs_in_one_thread_of_its_own(tmp_path: Path) -> None:
    threads: set[int] = set()

    def twice(record: tidelog.Record) -> Iterator[ProducerRecord]:
        threads.add(threading.get_ident())
        if record.value == b"poison":
            raise ValueError("a bad record")
        for _ in range(2):
            yield ProducerRecord("copies", record.value)

    with broker_in_a_thread(tmp_path) as address, blocking.connect(address) as client:
        client.admin.create_topic("orders", 1)
        client.admin.create_topic("copies", 1)
        with client.producer() as producer:
            producer.send_many("orders", [b"a", b"b", b"poison"])

        with pytest.raises(ValueError, match="a bad record"):
            client.process("orders", twice, name="copy", partitions=[0], until_end=True)

        with client.consumer("copies", auto_offset_reset="earliest") as consumer:
            until = consumer.end_offsets()
            assert [each.value for each in consumer.records(until)] == [b"a", b"a", b"b", b"b"]
        assert threading.get_ident() not in threads


def test_a_processor_is_stopped_from_another_thread(tmp_path: Path) -> None:
    with broker_in_a_thread(tmp_path) as address, blocking.connect(address) as client:
        client.admin.create_topic("orders", 1)
        with client.producer() as producer:
            producer.send_many("orders", [b"a", b"b"])

        def stopping(record: tidelog.Record) -> None:
            if record.value == b"b":
                processor.stop()

        processor = client.processor("orders", stopping, name="copy", partitions=[0])
        assert processor.run().input_count == 2
        assert processor.statistics.transaction_count >= 1


def test_a_transaction_is_staged_committed_and_never_undone(tmp_path: Path) -> None:
    with broker_in_a_thread(tmp_path) as address, blocking.connect(address) as client:
        client.admin.create_topic("orders", 1)
        transaction = client.transaction("job", 0)
        with transaction.task() as task:
            assert not task.is_committed
            task.send_many("orders", [b"a"], keys=[b"k"])
            task.send_records("orders", [ProducerRecord("", b"b", partition=0)])
            task.send_nowait("orders", b"c", headers=iter([("h", b"1")]))
            task.send("orders", b"d", timestamp_ms=1_000)
            task.send_nowait("orders", b"e")

        transaction.commit([task.result])
        transaction.commit([task.result])

        assert transaction.abort()
        with client.consumer("orders", auto_offset_reset="earliest") as consumer:
            until = consumer.end_offsets()
            records = list(consumer.records(until))
            assert [record.value for record in records] == [b"a", b"b", b"c", b"d", b"e"]
            assert (records[2].headers, records[3].timestamp_ms) == ((("h", b"1"),), 1_000)
        assert not client.transaction("job", 1).abort()
