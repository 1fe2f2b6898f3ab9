"""Statistics of a client: they equal what was done."""

import sys
from dataclasses import FrozenInstanceError
from random import Random
from types import FrameType
from typing import cast

import pytest
import trio
from trio.testing import MockClock

from tests.client.clients import orders_client
from tests.client.crashes import scene
from tests.client.group_fixture import group_fixture_of
from tests.client.queue_fixture import fill, work_queue
from tests.coordinator.raft_clients import until
from tidelog.client.client import Client
from tidelog.client.metrics import counters
from tidelog.client.metrics.catalog import OBJECTS_MAX, OTHER, SECTIONS
from tidelog.client.metrics.counters import ByName, ClientCounters, QueueCounters
from tidelog.client.metrics.statistics import ClientQueueStatistics, ClientStatistics, statistics_of
from tidelog.client.queue.receive.message import Message
from tidelog.wire.errors import (
    ConnectionLostError,
    DeliveryTimeoutError,
    NotLeaderError,
    UnknownTopicError,
)
from tidelog.wire.metrics import metric
from tidelog.wire.metrics.metric import HistogramValue
from tidelog.wire.protocol.api import ApiKey


def numbers(statistics: ClientStatistics) -> dict[tuple[str, ...], float]:
    """Return the values of all samples, by metric and labels; a histogram has its count."""
    return {
        (each.metric.name, *labels.values): (
            value.counts[-1] if isinstance(value, HistogramValue) else value
        )
        for each in statistics.families()
        for labels, value in each.samples
    }


async def test_records_of_a_producer_are_counted_by_topic(autojump_clock: MockClock) -> None:
    async with orders_client(autojump_clock) as client:
        async with client.producer() as producer:
            await producer.send("orders", b"one")
            await producer.send_many("orders", [b"v" * 100] * 50)
            producer.send_nowait("orders", b"last")
            during = client.statistics().producers
            await producer.flush()
            settled = client.statistics().producers
        after = client.statistics().producers

    assert (during.open, during.queued_records, during.buffer_limit_bytes) == (1, 1, 32 << 20)
    assert during.buffer_bytes >= len(b"last")
    orders = settled.topics["orders"]
    assert (orders.records, orders.batches, orders.failed_records, orders.retries) == (52, 3, 0, 0)
    assert orders.bytes > 50 * 100
    assert settled.batch_records.counts[-1] == settled.send_duration.counts[-1] == 3
    assert settled.batch_records.sum == 52
    assert (settled.queued_records, settled.buffer_bytes, settled.requests_in_flight) == (0, 0, 0)
    assert after.open == 0


async def test_a_send_takes_as_long_as_its_record_waits_for_others(
    autojump_clock: MockClock,
) -> None:
    async with orders_client(autojump_clock) as client, client.producer(linger=2.0) as producer:
        await producer.send("orders", b"one")

        duration = client.statistics().producers.send_duration

    assert duration.sum == pytest.approx(2.0, abs=0.1)


async def test_records_that_fail_for_good_are_counted(autojump_clock: MockClock) -> None:
    async with scene(autojump_clock) as (client, stage):
        async with client.producer(delivery_timeout=3.0) as producer:
            producer.send_nowait("missing", b"?")
            with pytest.raises(UnknownTopicError):
                await producer.flush()
            await producer.send("orders", b"before")
            stage.network.silence_all()
            with pytest.raises(DeliveryTimeoutError):
                await producer.send_many("orders", [b"lost"] * 5)
        topics = client.statistics().producers.topics

    assert topics["missing"].failed_records == 1
    assert (topics["orders"].records, topics["orders"].failed_records) == (1, 5)


async def test_waits_for_room_in_the_buffer_are_counted(autojump_clock: MockClock) -> None:
    async with (
        scene(autojump_clock) as (client, stage),
        client.producer(batch_size=1000, buffer_memory=1000) as producer,
    ):
        await producer.send("orders", b"before")
        stage.network.silence_all()
        async with trio.open_nursery() as nursery:
            for _ in range(2):
                nursery.start_soon(producer.send, "orders", b"v" * 800)
            await trio.sleep(3)
            stage.network.reset_all()
        producers = client.statistics().producers

    assert producers.topics["orders"].records == 3
    assert producers.buffer_wait_s == pytest.approx(3, abs=0.5)


async def test_records_of_a_consumer_are_counted_once(autojump_clock: MockClock) -> None:
    async with orders_client(autojump_clock, 2) as client:
        async with client.producer() as producer:
            await producer.send_many("orders", [b"v" * 100] * 30, partition=0)
        async with client.consumer("orders", auto_offset_reset="earliest") as consumer:
            assert (await anext(consumer.records())).offset == 0
            begun = client.statistics().consumers
            await trio.sleep(7)
            idle = client.statistics().consumers
            ends = await consumer.end_offsets()
            assert len([record async for record in consumer.records(ends)]) == 29
            read = client.statistics().consumers.topics["orders"]
            await consumer.seek_to_beginning()
            assert len([record async for record in consumer.records(ends)]) == 30
            again = client.statistics().consumers.topics["orders"]
        after = client.statistics().consumers

    assert (read.records, read.batches, read.assigned_partitions, read.lag_records) == (30, 1, 2, 0)
    assert read.fetched_bytes > 30 * 100
    assert (again.records, again.batches) == (60, 2)
    assert begun.open == 1
    assert begun.last_poll_age_s < 1
    assert idle.last_poll_age_s == pytest.approx(7, abs=0.5)
    assert (after.open, after.topics["orders"].assigned_partitions) == (0, 0)


async def test_a_consumer_that_waits_for_records_polls(autojump_clock: MockClock) -> None:
    async with (
        orders_client(autojump_clock) as client,
        client.consumer("orders", auto_offset_reset="earliest") as consumer,
    ):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(anext, consumer.records())
            await trio.sleep(20)
            waiting = client.statistics().consumers.last_poll_age_s
            nursery.cancel_scope.cancel()
        await trio.sleep(3)
        gone = client.statistics().consumers.last_poll_age_s

    assert waiting == 0
    assert gone == pytest.approx(3, abs=0.5)


async def test_the_lag_is_that_of_the_worst_partition(autojump_clock: MockClock) -> None:
    async with orders_client(autojump_clock, 2) as client:
        async with client.producer() as producer:
            await producer.send_many("orders", [b""] * 5, partition=0)
            await producer.send_many("orders", [b""] * 40, partition=1)
        async with client.consumer("orders", auto_offset_reset="earliest") as consumer:
            assert client.statistics().consumers.topics["orders"].lag_records is None
            await until(lambda: client.statistics().consumers.prefetched_bytes > 0, 10)
            await trio.sleep(1)
            topic = client.statistics().consumers.topics["orders"]
            assert consumer.assignment

    assert topic.lag_records == 40


async def test_commits_and_rebalances_are_counted(autojump_clock: MockClock) -> None:
    async with group_fixture_of(autojump_clock) as fixture:
        await fixture.produce(4)
        fixture.start("a", enable_auto_commit=False)
        await trio.sleep(10)
        alone = fixture.client.statistics().consumers
        leave = fixture.start("b")
        await trio.sleep(20)
        shared = fixture.client.statistics().consumers
        await leave()
        await trio.sleep(20)
        after = fixture.client.statistics().consumers

    assert alone.rebalances == {"assigned": 1, "revoked": 0, "lost": 0}
    assert alone.commits == {"OK": 0}
    assert shared.rebalances == {"assigned": 2, "revoked": 1, "lost": 0}
    assert shared.topics["orders"].assigned_partitions == 2
    assert after.rebalances["assigned"] == 3
    assert after.commits["OK"] >= 1


async def test_a_killed_broker_shows_in_connections(
    autojump_clock: MockClock,
) -> None:
    async with scene(autojump_clock) as (client, stage), client.producer() as producer:
        await producer.send("orders", b"before")
        before = client.statistics()
        async with trio.open_nursery() as nursery:
            await stage.crash()
            nursery.start_soon(producer.send, "orders", b"after")
            await trio.sleep(1)
            cut_off = client.statistics()
            await stage.start()
        after = client.statistics()

    assert (before.connections.open, before.connections.reconnects) == (1, 0)
    assert cut_off.connections.open == 0
    assert after.connections.open == 1
    assert after.connections.reconnects >= 1
    assert after.connections.attempts > after.connections.opened
    assert after.producers.topics["orders"].records == 2
    assert after.requests["PRODUCE"].count >= 2


async def test_a_lost_acknowledgement_is_a_retry(autojump_clock: MockClock) -> None:
    async with scene(autojump_clock) as (client, stage), client.producer() as producer:
        await producer.send("orders", b"before")
        stage.network.silence_all()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(producer.send, "orders", b"again")
            await trio.sleep(1)
            stage.network.reset_all()
        statistics = client.statistics()

    orders = statistics.producers.topics["orders"]
    assert (orders.records, orders.retries, orders.failed_records) == (2, 1, 0)
    assert statistics.producers.errors == {"CONNECTION_LOST": 1}
    assert statistics.requests["PRODUCE"].errors == {"CONNECTION_LOST": 1}
    assert statistics.requests["PRODUCE"].count == 3
    samples = numbers(statistics)
    assert samples["tidelog_client_requests_total", "PRODUCE", "OK"] == 2
    assert samples["tidelog_client_requests_total", "PRODUCE", "CONNECTION_LOST"] == 1
    assert samples["tidelog_client_request_duration_seconds", "PRODUCE"] == 3


async def test_a_closed_client_has_nothing_open(autojump_clock: MockClock) -> None:
    async with work_queue(autojump_clock) as (client, queue):
        await queue.send(b"by the producer of all queues")
        during = client.statistics()
    after = client.statistics()

    assert (during.connections.open, during.producers.open) == (1, 1)
    assert (after.connections.open, after.producers.open) == (0, 0)
    assert after.queues["work"].sent == 1


async def test_counting_takes_no_time_for_each_record(autojump_clock: MockClock) -> None:
    files = (counters.__file__, metric.__file__)

    async with orders_client(autojump_clock) as client, client.producer() as producer:

        async def calls_of(count: int) -> int:
            calls = 0

            def note(frame: FrameType, event: str, _: object) -> None:
                nonlocal calls
                calls += event == "call" and frame.f_code.co_filename in files

            sys.setprofile(note)
            try:
                await producer.send_many("orders", [b"value"] * count)
            finally:
                sys.setprofile(None)
            return calls

        await calls_of(1)
        assert await calls_of(5_000) == await calls_of(10) < 10


async def test_bytes_of_both_directions_are_counted(autojump_clock: MockClock) -> None:
    async with orders_client(autojump_clock) as client:
        async with client.producer() as producer:
            before = client.statistics().connections
            await producer.send("orders", Random(1).randbytes(100_000))
            sent = client.statistics().connections
        async with client.consumer("orders", auto_offset_reset="earliest") as consumer:
            await anext(consumer.records())
            received = client.statistics().connections

    assert 100_000 < sent.sent_bytes - before.sent_bytes < 102_000
    assert sent.received_bytes - before.received_bytes < 2_000
    assert 100_000 < received.received_bytes - sent.received_bytes < 110_000


def work(client: Client) -> ClientQueueStatistics:
    return client.statistics().queues["work"]


async def test_messages_of_a_queue_are_counted(autojump_clock: MockClock) -> None:
    async with work_queue(autojump_clock) as (client, queue):
        await queue.send(b"one")
        await fill(queue, 4)
        received = await queue.receive(5)
        await queue.extend(received[0], 60)
        await queue.delete_batch(received[:2])
        await queue.release(received[2], 3600)
        await queue.reject(received[3], "broken")
        await queue.receive(1, wait=0)
        found = work(client)

    assert (found.sent, found.received, found.empty_receives) == (5, 5, 1)
    assert (found.deleted, found.released, found.rejected) == (2, 1, 1)
    assert (found.lease_extensions, found.lost_leases) == (1, 0)


async def test_handlers_are_counted_and_timed(autojump_clock: MockClock) -> None:
    async with work_queue(autojump_clock, visibility_timeout=30) as (client, queue):
        await fill(queue, 3)
        running: list[int] = []

        async def handle(message: Message) -> None:
            await trio.sleep(40)
            running.append(work(client).handlers_running)
            if message.value == b"2":
                raise ValueError("broken")

        worker = queue.worker(handle, concurrency=3, reject_on=(ValueError,))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(worker.run)
            await until(lambda: work(client).rejected == 1 and work(client).deleted == 2, 120)
            worker.stop()
        found = work(client)

    assert max(running) == 3
    assert found.handlers_running == 0
    assert found.handler_failures == 1
    assert found.handler_duration.counts[-1] == 3
    assert found.handler_duration.sum == pytest.approx(120, abs=1)
    assert found.lease_extensions >= 3


async def test_a_lost_lease_is_counted(autojump_clock: MockClock) -> None:
    async with work_queue(autojump_clock, visibility_timeout=30) as (client, queue):
        await fill(queue, 1)

        async def hang(message: Message) -> None:
            assert message.value == b"0"
            await trio.sleep_forever()

        worker = queue.worker(hang)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(worker.run)
            await until(lambda: work(client).handlers_running == 1, 60)
            await queue.purge()
            await until(lambda: worker.statistics.lost_count == 1, 60)
            worker.stop()

    assert work(client).lost_leases == 1


async def test_a_throttled_send_is_counted(autojump_clock: MockClock) -> None:
    async with work_queue(autojump_clock, send_rate=100) as (client, queue):
        for _ in range(5):
            await fill(queue, 100)
        await until(lambda: work(client).throttled_s > 0, 60)

    assert work(client).sent == 500


async def test_a_snapshot_is_immutable(autojump_clock: MockClock) -> None:
    async with orders_client(autojump_clock) as client:
        found = client.statistics()
        with pytest.raises(FrozenInstanceError):
            found.client_id = "other"  # type: ignore[misc]
        with pytest.raises(TypeError):
            cast("dict[str, object]", found.requests)["FETCH"] = None
        count = found.requests["METADATA"].count
        await client.admin.list_topics()
        await client.admin.create_topic("others")

    assert found.requests["METADATA"].count == count
    assert "others" not in found.producers.topics


def test_names_above_the_limit_share_their_counters() -> None:
    queues = ByName(QueueCounters)
    for number in range(2 * OBJECTS_MAX):
        queues.of(f"queue {number}").sent += 1

    assert len(queues.known) == OBJECTS_MAX + 1
    assert queues.known[OTHER].sent == OBJECTS_MAX
    assert queues.of("queue 0").sent == 1


def test_every_metric_of_the_catalog_is_reported() -> None:
    counted = ClientCounters(lambda: 0.0)
    counted.connections.ended(ApiKey.FETCH, 0.0, None)
    counted.connections.ended(ApiKey.FETCH, 0.0, NotLeaderError("moved"))
    counted.connections.ended(ApiKey.FETCH, 0.0, ConnectionLostError("lost"))
    found = statistics_of(counted, "billing")

    declared = [each for section in SECTIONS.values() for each in section]
    assert [each.metric for each in found.families()] == declared
    assert len({each.name for each in declared}) == len(declared)
    assert numbers(found)["tidelog_client_requests_total", "FETCH", "NOT_LEADER"] == 1
    assert found.requests["FETCH"].count == 3
