"""Metrics of all brokers, read through the client."""

import pytest
from msgspec.structs import replace
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.broker.replication.three_brokers import ThreeBrokers, live
from tests.broker.world import World
from tests.client.clients import client_of, orders_client
from tests.client.hostile_broker import HELLO, always, deceived_client
from tests.coordinator.raft_clients import until
from tests.wire.cluster_samples import DESCRIBE
from tidelog.client.admin.metrics import BrokerMetrics
from tidelog.client.client import Client
from tidelog.wire.errors import InvalidRequestError, UnsupportedVersionError
from tidelog.wire.messages.cluster_admin import DescribeClusterReply
from tidelog.wire.messages.metrics import (
    MetricFamily,
    MetricHistogram,
    MetricSample,
    ReadMetricsReply,
)
from tidelog.wire.protocol import api

SENT = "tidelog_topic_received_records_total"


def names_in(metrics: BrokerMetrics, family: str) -> list[str]:
    """Return the names of the objects of a family."""
    return [sample.labels[0] for sample in metrics.families[family].samples]


async def test_a_program_reads_families_by_name(autojump_clock: MockClock) -> None:
    async with orders_client(autojump_clock) as client, client.producer() as producer:
        await client.admin.create_topic("payments")
        for topic in ("orders", "payments"):
            await producer.send(topic, b"value")

        (everything,) = await client.admin.metrics()
        (found,) = await client.admin.metrics(["topic_received", "controller"], names="ord*")

    assert len(everything.families) > 50
    assert set(names_in(everything, SENT)) == {"orders", "payments", "_other"}
    assert names_in(found, SENT) == ["orders"]
    assert found.families["tidelog_controller"].samples == [MetricSample([], 1.0)]
    assert all("topic_received" in name or "controller" in name for name in found.families)
    assert (found.node_id, found.error) == (1, None)
    assert found.time_s is not None


async def test_globs_that_are_invalid_are_an_error(autojump_clock: MockClock) -> None:
    async with client_of(World(autojump_clock)) as client:
        with pytest.raises(InvalidRequestError, match="write '\\*' for any characters"):
            await client.admin.metrics(names="orders.*")


ALONE: DescribeClusterReply = replace(
    DESCRIBE[1], nodes=[replace(DESCRIBE[1].nodes[0], node_id=1, status="alive")]
)


async def test_a_broker_of_an_earlier_version_has_an_error(autojump_clock: MockClock) -> None:
    async with deceived_client(autojump_clock) as (client, broker, _):
        apis = [each for each in HELLO.apis if each.api_key != api.READ_METRICS.key]
        broker.answer(api.HELLO, always(replace(HELLO, apis=apis)))
        broker.answer(api.DESCRIBE_CLUSTER, always(ALONE))
        broker.break_connections()
        await wait_all_tasks_blocked()

        (found,) = await client.admin.metrics()

    assert isinstance(found.error, UnsupportedVersionError)
    assert (found.families, found.time_s) == ({}, None)


@pytest.mark.parametrize(
    "sample",
    [
        MetricSample(["orders"], 1.0),
        MetricSample([], 0.0, MetricHistogram([1.0], [1], 0.0)),
    ],
    ids=["labels", "counts"],
)
async def test_a_malformed_reply_is_the_error_of_its_broker(
    sample: MetricSample, autojump_clock: MockClock
) -> None:
    async with deceived_client(autojump_clock) as (client, broker, _):
        broker.answer(api.DESCRIBE_CLUSTER, always(ALONE))
        family = MetricFamily("m", "counter", [], [sample])
        broker.answer(api.READ_METRICS, always(ReadMetricsReply([family], 1_000)))

        (found,) = await client.admin.metrics()

    assert " of 'm' has 1 " in str(found.error)


def test_brokers_that_do_not_answer_are_named_and_the_others_are_read() -> None:
    async def main(brokers: ThreeBrokers) -> None:
        await until(lambda: brokers.are_live(3))

        async def work(client: Client) -> None:
            controller = brokers.controller()
            killed, paused = (node_id for node_id in (1, 2, 3) if node_id != controller)
            brokers.kill(killed)
            early = {each.node_id: each for each in await client.admin.metrics(["controller"])}
            assert sorted(early) == [1, 2, 3]
            assert early[controller].families["tidelog_controller"].samples[0].value == 1
            assert "connect" in str(early[killed].error)
            assert early[paused].error is None

            resume = brokers.machines[paused].pause(60)
            late = {each.node_id: each for each in await client.admin.metrics(["controller"])}
            assert str(late[paused].error) == f"node {paused} did not answer within 6 s"
            assert late[controller].error is None
            resume()
            await until(lambda: brokers.state(controller).brokers[killed].is_fenced, 30)
            last = {each.node_id: each for each in await client.admin.metrics(["controller"])}
            assert str(last[killed].error) == f"node {killed} is fenced"

        await brokers.with_client(work)

    live(3, main)
