"""Rebalance callbacks of an application: `on_assigned`, `on_revoked`, `on_lost`."""

from collections.abc import Awaitable, Callable

import pytest
import trio
from trio.testing import MockClock

from tests.client.group_fixture import consumer_of, every, group_fixture_of
from tidelog.client.topic_partition import TopicPartition


async def test_rebalance_callbacks_receive_assigned_and_revoked_partitions(
    autojump_clock: MockClock,
) -> None:
    async with group_fixture_of(autojump_clock) as fixture:
        told: list[tuple[str, list[int]]] = []

        def tell(what: str) -> Callable[[list[TopicPartition]], Awaitable[None]]:
            async def note(partitions: list[TopicPartition]) -> None:
                await trio.sleep(0.5)
                told.append((what, [at.partition for at in partitions]))

            return note

        fixture.start(
            "a", on_assigned=tell("assigned"), on_revoked=tell("revoked"), on_lost=tell("lost")
        )
        await trio.sleep(10)
        assert told == [("assigned", [0, 1])]
        leave = fixture.start("b")
        await trio.sleep(20)
        assert [what for what, _ in told] == ["assigned", "revoked"]
        await leave()
        await trio.sleep(20)

        assert [what for what, _ in told] == ["assigned", "revoked", "assigned"]
        assert told[1][1] == told[2][1]


async def test_on_assigned_may_seek(autojump_clock: MockClock) -> None:
    async with group_fixture_of(autojump_clock, partition_count=1) as fixture:
        await fixture.produce(5, partition_count=1)

        async def seek(partitions: list[TopicPartition]) -> None:
            await trio.lowlevel.checkpoint()
            for at in partitions:
                consumer.seek(at.topic, at.partition, 3)

        consumer = consumer_of(fixture.client, auto_offset_reset=None, on_assigned=seek)
        async with consumer:
            record = await anext(consumer.records())

        assert record.offset == 3


async def test_on_revoked_may_commit(autojump_clock: MockClock) -> None:
    async with group_fixture_of(autojump_clock) as fixture:
        await fixture.produce(6)
        given: list[tuple[int, int]] = []

        async def commit(partitions: list[TopicPartition]) -> None:
            assert len(partitions) == 1
            await consumer.commit()

        consumer = consumer_of(fixture.client, enable_auto_commit=False, on_revoked=commit)

        async def work() -> None:
            async with consumer:
                async for batch in consumer.batches():
                    given.extend((batch.partition, offset) for offset in batch.offsets)

        fixture.nursery.start_soon(work)
        await trio.sleep(10)
        fixture.start("b")
        await trio.sleep(30)

        assert sorted(given) == every(2, 6)
        assert fixture.given["b"] == []


async def test_an_error_in_a_callback_ends_the_membership_and_is_raised(
    autojump_clock: MockClock,
) -> None:
    async with group_fixture_of(autojump_clock) as fixture:
        await fixture.produce(6)

        async def fail(partitions: list[TopicPartition]) -> None:
            await trio.lowlevel.checkpoint()
            raise ValueError(f"cannot flush {len(partitions)}")

        async with consumer_of(fixture.client, on_revoked=fail) as consumer:
            await anext(consumer.records())
            fixture.start("b")
            await trio.sleep(10)
            with pytest.raises(ValueError, match="cannot flush 1"):
                await anext(consumer.records())
        await trio.sleep(30)

        assert sorted(fixture.given["b"]) == every(2, 6)
