"""Transactions, whose records become visible together."""

import pickle

import pytest
import trio
from trio.testing import MockClock

from tests.broker.world import World
from tests.client.clients import client_of, orders_client
from tidelog.client.client import Client
from tidelog.client.config import ProducerConfig
from tidelog.client.producer.producer_record import ProducerRecord
from tidelog.client.transactions.staged_places import Places, StagedPlace, merged
from tidelog.client.transactions.transaction import TaskResult
from tidelog.wire.errors import (
    ConfigError,
    InvalidRequestError,
    RecordTooLargeError,
    StaleTransactionError,
    TransactionGoneError,
    UnknownTopicError,
)
from tidelog.wire.messages.transactions import StagedPart, StagedPiece, TransactionStatus


async def values(client: Client, topic: str = "orders") -> list[bytes | None]:
    async with client.consumer(topic, auto_offset_reset="earliest") as consumer:
        until = await consumer.end_offsets()
        return [record.value async for record in consumer.records(until)]


async def test_staged_records_of_any_kind_round_trip(
    autojump_clock: MockClock,
) -> None:
    async with orders_client(autojump_clock) as client:
        transaction = client.transaction("job", 0)
        async with transaction.task(ProducerConfig(compression_type="zstd")) as task:
            await task.send_many("orders", [b"a", None, b""], keys=[b"k", b"n", b""])
            await task.send_records(
                "orders",
                [ProducerRecord("", b"b", None, 0, (("h", b"1"), ("h", b"2")), 1_000)],
            )
        assert await values(client) == []
        sent = pickle.loads(pickle.dumps(task.result))
        assert isinstance(sent, TaskResult)
        assert sent.record_count == 4

        await transaction.commit([sent])

        async with client.consumer("orders", auto_offset_reset="earliest") as consumer:
            until = await consumer.end_offsets()
            records = [record async for record in consumer.records(until)]
        assert [record.value for record in records] == [b"a", None, b"", b"b"]
        assert [record.key for record in records] == [b"k", b"n", b"", None]
        assert records[3].headers == (("h", b"1"), ("h", b"2"))
        assert records[3].timestamp_ms == 1_000


async def test_names_are_listed_with_their_transactions(autojump_clock: MockClock) -> None:
    async with orders_client(autojump_clock) as client:
        await client.transaction("job", 3).commit([])
        await client.transaction("another", 0).commit([])

        found = await client.admin.list_transactions()

        assert [(each.name, each.last_transaction_id) for each in found] == [
            ("another", 0),
            ("job", 3),
        ]
        (job,) = await client.admin.list_transactions(["job", "unknown"])
        assert job == found[1]
        assert job.last_status == TransactionStatus.COMPLETE


MINUTE_S = 60


async def test_names_are_forgotten_unless_they_are_in_use(autojump_clock: MockClock) -> None:
    async with orders_client(autojump_clock) as client:
        while (await client.admin.describe_features()).level == 0:  # noqa: ASYNC110
            await trio.sleep(0.1)
        for number in range(260):
            await client.transaction(f"job-{number}", 3).commit([])

        await trio.sleep(2 * MINUTE_S)
        with pytest.raises(InvalidRequestError, match="a client may still repeat its commit"):
            await client.admin.forget_transactions(["job-0"], unused_for=MINUTE_S)
        kept = await client.admin.forget_transactions(["job-0"], unused_for=10 * MINUTE_S)
        assert "it was used within the time" in str(kept["job-0"])
        await trio.sleep(10 * MINUTE_S)
        names = [f"job-{number}" for number in range(259)]
        assert "job-1" in await client.admin.forget_transactions(names)
        assert await client.admin.forget_transactions([*names, "job-0"], unused_for=600) == {}

        assert [each.name for each in await client.admin.list_transactions()] == ["job-259"]


async def test_a_committed_transaction_stages_nothing_more(
    autojump_clock: MockClock,
) -> None:
    async with orders_client(autojump_clock) as client:
        transaction = client.transaction("job", 0)
        await transaction.commit([])
        async with transaction.task() as task:
            assert task.is_committed
            await task.send_many("orders", [b"a"])
            await task.send_records("orders", [ProducerRecord("", b"b")])

        await transaction.commit([task.result])

        assert await transaction.abort()
        assert await values(client) == []


async def test_tasks_of_another_or_of_several_transactions_are_not_committed(
    autojump_clock: MockClock,
) -> None:
    async with orders_client(autojump_clock) as client:
        transaction = client.transaction("job", 0)
        results: list[TaskResult] = []
        for _ in range(2):
            async with transaction.task() as task:
                await task.send_many("orders", [b"a"])
            results.append(task.result)
            if len(results) == 1:
                await transaction.abort()

        with pytest.raises(TransactionGoneError, match="begun again"):
            await transaction.commit(results)
        with pytest.raises(ConfigError, match="not of transaction 1"):
            await client.transaction("job", 1).commit(results)
        await transaction.commit(results[1:])
        assert await values(client) == [b"a"]


async def test_a_task_fails_after_its_transaction_was_begun_again(
    autojump_clock: MockClock,
) -> None:
    async with orders_client(autojump_clock) as client:
        await client.admin.create_topic("other")
        transaction = client.transaction("job", 0)
        async with transaction.task() as task:
            await task.send_many("orders", [b"a"])
            await transaction.abort()
            with pytest.raises(TransactionGoneError):
                await task.send_many("orders", [b"b"])
            with pytest.raises(TransactionGoneError):
                await task.send_many("other", [b"b"])
        with pytest.raises(TransactionGoneError):
            _ = task.result


async def test_a_task_that_fails_has_no_result(autojump_clock: MockClock) -> None:
    async with orders_client(autojump_clock) as client:
        transaction = client.transaction("job", 0)
        async with transaction.task() as task:
            with pytest.raises(UnknownTopicError):
                await task.send_many("nowhere", [b"a"])
        with pytest.raises(UnknownTopicError):
            _ = task.result
        left = transaction.task()
        with pytest.raises(ValueError, match="mine"):
            async with left:
                raise ValueError("mine")
        with pytest.raises(ConfigError, match="left by an exception"):
            _ = left.result
        async with transaction.task() as early:
            with pytest.raises(ConfigError, match="not ended"):
                _ = early.result
            with pytest.raises(RecordTooLargeError):
                await early.send_records("orders", [ProducerRecord("", bytes(2 << 20))])
        with pytest.raises(trio.ClosedResourceError):
            await transaction.task().send_many("orders", [b"a"])


async def test_invalid_values_are_refused(autojump_clock: MockClock) -> None:
    async with orders_client(autojump_clock) as client:
        with pytest.raises(ConfigError, match="1 s to 24 h"):
            client.transaction("job", 0, timeout=0.5)
        with pytest.raises(InvalidRequestError, match="transaction id"):
            await client.transaction("job", -1).begin()
        await client.transaction("job", 5).commit([])
        with pytest.raises(StaleTransactionError):
            await client.transaction("job", 4).commit([])


async def test_a_running_task_keeps_its_transaction_alive(
    autojump_clock: MockClock,
) -> None:
    async with orders_client(autojump_clock) as client:
        transaction = client.transaction("job", 0, timeout=10)
        async with transaction.task() as task:
            await task.send_many("orders", [b"a"])
            await trio.sleep(60)
        await transaction.commit([task.result])
        assert await values(client) == [b"a"]


A, B = bytes(16), bytes([1] * 16)


def test_a_staged_place_grows_with_receipts_in_any_order() -> None:
    places = Places()
    places.add((A, 0), 7, 30, count=2)
    places.add((A, 1), 7, 5, count=1)
    places.add((A, 0), 7, 10, count=3)
    places.add((A, 0), 7, 40, count=1)

    assert places.as_tuple() == (StagedPlace(A, 0, 7, 10, 41, 6), StagedPlace(A, 1, 7, 5, 6, 1))


def test_records_under_another_producer_id_are_refused() -> None:
    places = Places()
    places.add((A, 0), 7, 30, count=2)

    with pytest.raises(TransactionGoneError, match="another identity"):
        places.add((A, 0), 8, 40, count=2)


def test_a_commit_merges_the_pieces_of_tasks_in_order() -> None:
    parts = merged(
        [
            StagedPlace(A, 0, 7, 10, 41, 6),
            StagedPlace(B, 0, 7, 0, 1, 1),
            StagedPlace(A, 0, 5, 0, 9, 3),
        ]
    )

    assert parts == [
        StagedPart(A, 0, [StagedPiece(7, 10, 41, 6), StagedPiece(5, 0, 9, 3)]),
        StagedPart(B, 0, [StagedPiece(7, 0, 1, 1)]),
    ]


async def test_single_records_are_staged_in_the_order_of_the_calls(
    autojump_clock: MockClock,
) -> None:
    async with orders_client(autojump_clock) as client:
        transaction = client.transaction("job", 0)
        async with transaction.task() as task:
            task.send_nowait("orders", b"a", headers=[("h", b"1")])
            task.send_nowait("orders", b"b")
            await task.send("orders", b"c", key=b"k", timestamp_ms=1_000)
            task.send_nowait("orders", b"d")
            await task.send_many("orders", [b"e"])
            task.send_nowait("orders", b"f")
            await task.flush()
            task.send_nowait("orders", b"g")
        assert task.result.record_count == 7
        with pytest.raises(trio.ClosedResourceError):
            task.send_nowait("orders", b"late")

        await transaction.commit([task.result])

        assert b"".join(each or b"" for each in await values(client)) == b"abcdefg"


async def test_a_record_that_fails_at_the_end_of_the_block_fails_the_task(
    autojump_clock: MockClock,
) -> None:
    async with orders_client(autojump_clock) as client:
        transaction = client.transaction("job", 0)
        async with transaction.task() as task:
            task.send_nowait("nowhere", b"a")
        with pytest.raises(UnknownTopicError):
            _ = task.result
        async with transaction.task() as bad:
            with pytest.raises(TypeError, match="must be bytes"):
                bad.send_nowait("orders", "text")  # type: ignore[arg-type]
            bad.send_nowait("orders", b"a")
        await transaction.commit([bad.result])


async def test_a_cancelled_send_fails_the_task(autojump_clock: MockClock) -> None:
    """The record may be staged at a place that the task does not know."""
    world = World(autojump_clock)
    async with client_of(world) as client:
        await client.admin.create_topic("orders")
        async with client.transaction("job", 0).task() as task:
            await task.send("orders", b"a")
            world.work.hold_syncs()
            with trio.move_on_after(1):
                await task.send("orders", b"b")
            world.work.let_all_sync()
            with pytest.raises(TransactionGoneError, match="cancelled"):
                await task.send("orders", b"c")
        with pytest.raises(TransactionGoneError, match="cancelled"):
            _ = task.result


async def test_send_nowait_refuses_more_than_the_buffer_has_room_for(
    autojump_clock: MockClock,
) -> None:
    async with orders_client(autojump_clock) as client:
        transaction = client.transaction("job", 0)
        async with transaction.task(ProducerConfig(buffer_memory=300, batch_size=300)) as task:
            task.send_nowait("orders", bytes(200))
            with pytest.raises(trio.WouldBlock, match="call flush"):
                task.send_nowait("orders", bytes(200))
            await task.flush()
            task.send_nowait("orders", bytes(200))
        assert task.result.record_count == 2
