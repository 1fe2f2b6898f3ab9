"""The pages of metrics over HTTP."""

from prometheus_client.parser import text_string_to_metric_families
from trio.testing import MockClock

from tests.broker.broker_requests import batch_of, create_topic, produce
from tests.broker.http.http_client import HTTP, HttpReply, get
from tests.broker.world import World
from tidelog.wire.metrics.exposition import CONTENT_TYPE


def read(reply: HttpReply) -> dict[tuple[str, ...], float]:
    """Return the values by name and labels."""
    return {
        (sample.name.removeprefix("tidelog_"), *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(reply.body.decode())
        for sample in family.samples
    }


async def test_metrics_are_scraped_and_filtered(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker(http_listen=HTTP), world.client() as client:
        for name in ("orders", "mail"):
            topic_id = await create_topic(client, name)
            await produce(client, topic_id, batch_of(b"a", b"b"))
        await world.pass_time(1)

        whole = await get(world, "/metrics")
        some = await get(world, "/metrics?family=topic_received_records,log&name=or*")

    assert (whole.status, whole.headers["content-type"]) == (200, CONTENT_TYPE)
    assert read(whole)["topic_received_records_total", "mail"] == 2
    assert read(whole)["loop_lag_seconds_count",] > 0
    names = set(read(some))
    assert names == {("topic_received_records_total", "orders"), ("log_bytes", "orders")}


async def test_partitions_have_metrics_if_their_topic_is_named(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker(http_listen=HTTP), world.client() as client:
        topic_id = await create_topic(client, partitions=2)
        await create_topic(client, "mail")
        await produce(client, topic_id, batch_of(b"a", b"b"), partition=1)

        found = read(await get(world, "/metrics/partitions?topic=orders"))

    assert found["partition_high_watermark", "orders", "1"] == 2
    assert found["partition_received_records_total", "orders", "0"] == 0
    assert {key[1] for key in found} == {"orders"}


async def test_wrong_queries_are_refused_with_a_reason(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker(http_listen=HTTP):
        unknown = await get(world, "/metrics?queue=pay")
        glob = await get(world, "/metrics?name=[")
        unnamed = await get(world, "/metrics/partitions")

    assert [reply.status for reply in (unknown, glob, unnamed)] == [400, 400, 400]
    assert unknown.body == b"/metrics has no parameter 'queue'; it has family, name\n"
    assert b"[" in glob.body
    assert unnamed.body == b"name a topic: /metrics/partitions?topic=orders, or a glob\n"
