"""Metrics of a broker: their values are those of what clients did."""

from collections import Counter

import pytest
import trio
from prometheus_client.parser import text_string_to_metric_families
from trio.testing import MockClock

from tests.broker.broker_requests import (
    batch_of,
    create_topic,
    delete_topic,
    fetch,
    produce,
    submit,
    submit_produce,
)
from tests.broker.collectors.readings import Readings, read_metrics
from tests.broker.queues.queue_requests import (
    create_queue,
    receive,
    received,
    send,
    settle,
    submit_receive,
)
from tests.broker.world import ADDRESS, World
from tests.broker.world import settle as let_happen
from tidelog.broker.collectors import queue_collector
from tidelog.broker.collectors.metrics_collector import MetricSelection
from tidelog.broker.metrics.catalog import SECTIONS
from tidelog.broker.queues.partition.hosted_partition import HostedPartition
from tidelog.broker.queues.queue_server import QueueServer
from tidelog.client.client import connect
from tidelog.coordinator.metadata.cluster_events import ClusterEventKind
from tidelog.wire.errors import LeaderNotAvailableError
from tidelog.wire.messages.cluster_admin import AlterClusterConfigRequest
from tidelog.wire.messages.queue_admin import DeleteQueueRequest
from tidelog.wire.messages.queues import SettleAction
from tidelog.wire.metrics.exposition import expose
from tidelog.wire.protocol import api

CATALOG = {metric.name: metric for metrics in SECTIONS.values() for metric in metrics}


def of(readings: Readings, *labels: str) -> dict[str, float]:
    """Return the values by name of those that have exactly these labels."""
    return {name: value for (name, *found), value in readings.items() if tuple(found) == labels}


async def test_traffic_of_topics_is_counted(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        topic_id = await create_topic(client, partitions=2)
        await produce(client, topic_id, batch_of(b"a", b"b"))
        await produce(client, topic_id, batch_of(b"c"), partition=1)
        found = await fetch(client, topic_id, 0)

        topic = of(await read_metrics(client, "topic", "log"), "orders")

    assert len(found.records) == 2
    assert topic["topic_received_records_total"] == 3
    assert topic["topic_received_batches_total"] == 2
    assert 0 < topic["topic_sent_bytes_total"] < topic["topic_received_bytes_total"]
    assert topic["topic_refused_batches_total"] == 0
    assert topic["log_bytes"] >= topic["topic_received_bytes_total"]


async def test_requests_are_counted_with_their_errors(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        topic_id = await create_topic(client)
        await produce(client, topic_id, batch_of(b"a"))
        pending = submit_produce(client, topic_id, batch_of(b"a"), partition=0, acks=7)
        await pending.answered()

        readings = await read_metrics(client, "request", "commit", "sync")

    assert readings["requests_total", "PRODUCE", "OK"] == 1
    assert readings["requests_total", "PRODUCE", "INVALID_REQUEST"] == 1
    assert readings["request_duration_seconds", "PRODUCE"] == 2
    assert ("requests_total", "FETCH", "OK") not in readings
    assert readings["commit_wait_seconds",] == 1
    assert readings["sync_duration_seconds",] >= 1


async def test_a_long_poll_takes_no_time_while_it_waits(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        queue_id = await create_queue(broker, "work", topic="work", partitions=1)
        pending = submit_receive(client, queue_id, max_wait_ms=60_000)
        await world.pass_time(30)
        await send(client, queue_id, (b"a", None))
        assert len(await received(pending)) == 1

        collected = await broker.metrics.collect()

    (durations,) = [
        each for each in collected if each.metric.name.endswith("request_duration_seconds")
    ]
    (value,) = [value for labels, value in durations.samples if labels.values == ("RECEIVE",)]
    assert not isinstance(value, float | int)
    assert value.counts[-1] == 1
    assert value.sum < 1


async def test_what_happens_to_messages_is_counted(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        queue_id = await create_queue(
            broker, "work", topic="work", partitions=1, visibility_timeout_ms="30s"
        )
        assert await receive(client, queue_id) == []
        await send(client, queue_id, *((b"%d" % n, None) for n in range(5)))
        await world.pass_time(10)
        one, two, three = await receive(client, queue_id, 3)
        await settle(client, queue_id, [one])
        await settle(client, queue_id, [two], action=SettleAction.RELEASE)
        before = of(await read_metrics(client, "queue"), "work")
        await world.pass_time(40)
        ended = of(await read_metrics(client, "queue"), "work")
        await receive(client, queue_id, 10)
        after = of(await read_metrics(client, "queue"), "work")

    del three
    counted = {
        name.removeprefix("queue_").removesuffix("_total"): value for name, value in before.items()
    }
    assert counted == {
        "sent": 5,
        "received": 3,
        "redelivered": 0,
        "deleted": 1,
        "released": 1,
        "expired_leases": 0,
        "expired_messages": 0,
        "dead_letters": 0,
        "duplicates_dropped": 0,
        "empty_receives": 1,
        "ready": 3,
        "leased": 1,
        "delayed": 0,
        "dead": 0,
        "oldest_message_age_seconds": 10,
    }
    assert (ended["queue_ready"], ended["queue_leased"]) == (4, 0)
    assert ended["queue_expired_leases_total"] == 1
    assert ended["queue_oldest_message_age_seconds"] == 50
    assert after["queue_received_total"] == 7
    assert after["queue_redelivered_total"] == 2
    assert (after["queue_ready"], after["queue_leased"]) == (0, 4)


async def test_queues_that_are_not_in_memory_have_depth_and_age(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        queue_id = await create_queue(broker, "work", topic="work", partitions=1)
        await send(client, queue_id, (b"a", None), (b"b", None))
        await receive(client, queue_id, 1)
        await world.pass_time(700)  # It is unloaded.
        await send(client, queue_id, (b"c", None))

        unloaded = of(await read_metrics(client, "queue"), "work")
        await world.pass_time(5)

    assert (unloaded["queue_ready"], unloaded["queue_leased"]) == (3, 0)
    assert unloaded["queue_oldest_message_age_seconds"] == 700

    after = world.after_crash()
    async with after.broker(), after.client() as client:
        await read_metrics(client, "queue")
        await after.pass_time(1)

        restarted = await read_metrics(client, "queue")

    assert restarted["queue_partitions_unknown",] == 0
    assert of(restarted, "work")["queue_ready"] == 3
    assert of(restarted, "work")["queue_oldest_message_age_seconds"] >= 705


async def test_a_queue_that_was_never_counted_is_unknown_at_first(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        await create_queue(broker, "empty", topic="empty", partitions=1)
        queue_id = await create_queue(broker, "work", topic="work", partitions=1)
        await send(client, queue_id, (b"a", None))

        first = await read_metrics(client, "queue")
        await world.pass_time(1)
        second = await read_metrics(client, "queue")

    assert first["queue_partitions_unknown",] == 1
    assert second["queue_partitions_unknown",] == 0
    assert second["queue_ready", "work"] == 1
    assert ("queue_ready", "empty") not in second


async def test_queues_that_cannot_be_loaded_hide_no_others(
    mock_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        broken = await create_queue(broker, "broken", topic="broken", partitions=1)
        queue_id = await create_queue(broker, "work", topic="work", partitions=1)
        for each in (broken, queue_id):
            await send(client, each, (b"a", None))
        monkeypatch.setattr(queue_collector, "_LOADS_MAX", 1)
        find = QueueServer.find

        def fail_to_find(self: QueueServer, queue_id: bytes, number: int) -> HostedPartition:
            if queue_id == broken:
                raise LeaderNotAvailableError("the journal cannot be read")
            return find(self, queue_id, number)

        monkeypatch.setattr(QueueServer, "find", fail_to_find)
        for _ in range(3):
            await read_metrics(client, "queue")
            await world.pass_time(1)

        readings = await read_metrics(client, "queue")

    assert readings["queue_partitions_unknown",] == 1
    assert readings["queue_ready", "work"] == 1


async def test_delayed_messages_that_no_receive_has_read(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        queue_id = await create_queue(
            broker, "work", topic="work", partitions=1, delivery_delay_ms="1h"
        )
        await send(client, queue_id, (b"a", None), (b"b", None))
        await read_metrics(client, "queue")
        await world.pass_time(1_800)
        await send(client, queue_id, (b"c", None))
        found: list[tuple[float, float]] = []
        for _ in range(3):
            queue = of(await read_metrics(client, "queue"), "work")
            found.append((queue["queue_ready"], queue["queue_delayed"]))
            await world.pass_time(1_800)

    assert found == [(0, 3), (2, 1), (3, 0)]


async def test_objects_beyond_the_maximum_share_series(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker(metrics_objects_max=1) as broker, world.client() as client:
        queue_ids = [
            await create_queue(broker, name, topic=name, partitions=1) for name in ("a", "b", "c")
        ]
        for queue_id in queue_ids:
            await send(client, queue_id, (b"1", None), (b"2", None))
            await receive(client, queue_id, 1)

        readings = await read_metrics(client, "queue", "topic")

    assert readings["queue_sent_total", "a"] == 2
    assert readings["queue_sent_total", "_other"] == 4
    assert (readings["queue_ready", "_other"], readings["queue_leased", "_other"]) == (2, 2)
    assert ("queue_sent_total", "b") not in readings
    assert readings["topic_received_records_total", "_other"] == 4


async def test_readers_choose_families_and_names(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        for name in ("pay-in", "pay-out", "mail"):
            queue_id = await create_queue(broker, name, topic=name, partitions=1)
            await send(client, queue_id, (b"1", None))

        readings = await read_metrics(client, "queue_sent", names="pay-*")
        whole = await read_metrics(client, names="mail")

    assert readings == {("queue_sent_total", "pay-in"): 1, ("queue_sent_total", "pay-out"): 1}
    assert whole["queue_sent_total", "mail"] == 1
    assert whole["controller",] == 1
    assert ("queue_sent_total", "pay-in") not in whole


async def test_events_elections_and_states_are_counted(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        await create_topic(client, partitions=3)
        readings = await read_metrics(client)

    counted = {key[1:]: value for key, value in readings.items() if key[0] == "events_total"}
    heard = Counter((each.name, str(each.fields.get("severity", "info"))) for each in world.events)
    assert counted[("topic_created", "info")] == 1
    assert all(count <= heard[name, severity] for (name, severity), count in counted.items())
    assert readings["partitions", "leader"] == 3
    assert readings["cluster_partitions", "leaderless"] == 0
    assert readings["brokers", "alive"] == 1
    assert readings["connections", "client"] == 1
    assert readings["metadata_age_seconds",] == 0
    assert readings["cluster_events", "records_lost"] == 0
    assert {key[1] for key in readings if key[0] == "cluster_events"} == set(ClusterEventKind)


async def test_thresholds_of_owners_are_shown(autojump_clock: MockClock) -> None:
    world = World(autojump_clock)
    address = "{}:{}".format(*ADDRESS)
    async with world.broker(), world.client() as reader, connect(address, env=world.env) as client:
        await client.admin.create_queue("dead")
        await client.admin.create_queue(
            "work",
            owner="team",
            alert_age="5min",
            alert_depth=7,
            alert_dead_letters=0,
            dead_letter_queue="dead",
        )
        await client.admin.create_queue("free", alert_depth=1)
        await client.admin.alter_group("readers", set={"alert_lag": 120, "alert_lag_records": 9})

        readings = await read_metrics(reader, "queue_alert", "group_alert")

    assert readings == {
        ("queue_alert_age_seconds", "work", "team"): 300,
        ("queue_alert_depth", "work", "team"): 7,
        ("queue_alert_depth", "free", ""): 1,
        ("queue_alert_dead_letters", "work", "team", "dead"): 0,
        ("group_alert_lag_seconds", "readers", ""): 120,
        ("group_alert_lag_records", "readers", ""): 9,
    }


async def test_the_reserve_of_the_disk_is_the_one_in_force(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker(min_free_disk_bytes=1000), world.client() as client:
        at_first = await read_metrics(client, "disk")
        alter = AlterClusterConfigRequest({"min_free_disk_bytes": "2000"}, [])
        await submit(client, api.ALTER_CLUSTER_CONFIG, alter).reply()
        later = await read_metrics(client, "disk")

    assert at_first["disk_reserve_bytes",] == 1000
    assert later["disk_reserve_bytes",] == 2000
    assert later["disk_size_bytes",] >= later["disk_free_bytes",]


async def test_the_whole_text_is_valid_and_in_the_catalog(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        queue_id = await create_queue(broker, "work", topic="work", partitions=1)
        await send(client, queue_id, (b"1", None))
        text = b"".join(expose(await broker.metrics.collect())).decode()

    found = list(text_string_to_metric_families(text))
    names = {f"{each.name}_total" if each.type == "counter" else each.name for each in found}
    assert names <= set(CATALOG)
    for each in found:
        metric = CATALOG.get(each.name) or CATALOG[f"{each.name}_total"]
        assert each.type == metric.kind
        assert all(set(sample.labels) - {"le"} == set(metric.labels) for sample in each.samples)


@pytest.mark.parametrize(
    ("families", "expected"),
    [
        ([], True),
        (["queue"], True),
        (["q"], True),
        (["topic", "queue_sent_total"], True),
        (["topic", "group", "request"], False),
    ],
)
def test_metrics_that_no_reader_wants_are_not_collected(
    families: list[str], *, expected: bool
) -> None:
    assert MetricSelection(families).may_have("queue") is expected


async def test_empty_topics_take_no_series_from_others(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker(metrics_objects_max=2) as broker, world.client() as client:
        for name in ("a", "b", "c"):
            await create_topic(client, name)
        await broker.metrics.collect()
        await world.pass_time(1)
        topic_id = await create_topic(client, "used")
        await produce(client, topic_id, batch_of(b"1"))

        readings = await read_metrics(client, "topic", "log")

    assert readings["topic_received_records_total", "used"] == 1
    assert readings["log_bytes", "used"] > readings["log_bytes", "_other"] / 3
    assert ("log_bytes", "a") not in readings


async def test_deleted_objects_lose_their_series_at_once(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker(metrics_objects_max=1) as broker, world.client() as client:
        for name in ("first", "second"):
            queue_id = await create_queue(broker, name, topic=name, partitions=1)
            await send(client, queue_id, (b"a", None))
            before = await read_metrics(client, "queue", "topic")
            await submit(client, api.DELETE_QUEUE, DeleteQueueRequest(name)).reply()
            await delete_topic(client, name)
            await world.pass_time(10)
            after = await read_metrics(client, "queue", "topic")

            assert before["queue_sent_total", name] == 1
            assert before["topic_received_records_total", name] == 1
            assert {key for key in after if name in key} == set()
            assert after["queue_ready", "_other"] == 0


async def test_delayed_messages_of_a_queue_that_is_not_in_memory(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        queue_id = await create_queue(broker, "work", topic="work", partitions=1)
        await send(client, queue_id, (b"a", None), (b"b", None), (b"c", None))
        await receive(client, queue_id, 1, visibility_timeout_ms=1_200_000)
        for hours in (1, 2):
            messages = await receive(client, queue_id, 1)
            delay_ms = hours * 3_600_000
            await settle(client, queue_id, messages, action=SettleAction.RELEASE, delay_ms=delay_ms)
        readings: list[dict[str, float]] = []
        for _ in range(4):
            await world.pass_time(1_000)
            readings.append(of(await read_metrics(client, "queue"), "work"))

    found = [
        (
            each["queue_ready"],
            each["queue_leased"],
            each["queue_delayed"],
            each["queue_expired_leases_total"],
        )
        for each in readings
    ]
    assert found == [(0, 1, 2, 0), (1, 0, 2, 1), (1, 0, 2, 1), (2, 0, 1, 1)]


async def test_very_many_queues_without_series_are_looked_at_less_often(
    mock_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_collector, "_PER_S", 1)
    world = World(mock_clock)
    async with world.broker(metrics_objects_max=1) as broker, world.client() as client:
        shown = await create_queue(broker, "a", topic="a", partitions=1)
        other = await create_queue(broker, "b", topic="b", partitions=1)
        for queue_id in (shown, other):
            await send(client, queue_id, (b"1", None))
            assert len(await receive(client, queue_id, 1, visibility_timeout_ms=0)) == 1
        await read_metrics(client, "queue")
        await world.pass_time(3)
        first = await read_metrics(client, "queue")
        for queue_id in (shown, other):
            await send(client, queue_id, (b"2", None))
        soon = await read_metrics(client, "queue")
        await world.pass_time(3)
        later = await read_metrics(client, "queue")

    assert [each["queue_ready", "a"] for each in (first, soon, later)] == [1, 2, 2]
    assert [each["queue_ready", "_other"] for each in (first, soon, later)] == [1, 1, 2]


async def test_a_disk_that_hangs_delays_no_reader_for_long(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        before = await read_metrics(client, "disk_size", "process", "controller")
        world.work.hold_work()
        found: list[Readings] = []
        async with trio.open_nursery() as nursery:

            async def read() -> None:
                found.append(await read_metrics(client, "disk_size", "process", "controller"))

            nursery.start_soon(read)
            nursery.start_soon(read)
            for _ in range(3):  # Readers take turns.
                await let_happen()
                await world.pass_time(1)
        world.work.let_all()

    assert found == [before, before]
    assert before["controller",] == 1
    assert "disk_size_bytes" in {name for name, *_ in before}
