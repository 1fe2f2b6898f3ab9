"""Alerts of three real brokers fire in a real Prometheus, and clear; panels have data."""

from pathlib import Path
from typing import Final

import trio

import tidelog
from tests.gateway.sqs.http_client import HttpClient
from tests.system.integration.nodes import Nodes
from tests.system.prometheus.panels import panel_expressions
from tests.system.prometheus.prometheus import OF_THE_MACHINE, Labels, Prometheus, names, prometheus
from tidelog.gateway.sqs.http.front_server import FrontServer
from tidelog.gateway.sqs.listen_address import ListenAddress
from tidelog.gateway.sqs.server import FrontConfig, open_front

TOPIC: Final = "clicks"
QUEUE: Final = "orders"
GROUP: Final = "billing"
VICTIM: Final = 3

FRONT: Final = FrontConfig(ListenAddress("127.0.0.1", 0), checks_signatures=False)

MAY_BE_EMPTY: Final = {
    "tidelog-cluster: Audit records that wait: {{instance}}",
    "tidelog-cluster: Audit records: {{outcome}}",
    "tidelog-cluster: Days until certificates end: {{instance}}",
    "tidelog-cluster: Denials of access: {{action}} {{kind}}",
    "tidelog-cluster: Errors: {{api}} {{code}}",
    "tidelog-cluster: Events that are not acknowledged: {{kind}}",
    "tidelog-cluster: Replicas that need attention: {{instance}} {{state}}",
    "tidelog-cluster: Throttled principals: {{principal}} {{quota}}",
    "tidelog-cluster: Warnings and errors: {{severity}} {{event}}",
    "tidelog-queues: Age: {{owner}} {{queue}}",
    "tidelog-queues: Dead letters: {{owner}} {{queue}}",
    "tidelog-queues: Depth: {{owner}} {{queue}}",
    "tidelog-topics: Hot partitions: {{topic}}",
    "tidelog-topics: Lag in time in relation to its threshold: {{group}} {{topic}}",
    "tidelog-topics: Refused batches: {{topic}}",
    "tidelog-topics: Records in relation to their threshold: {{group}}",
}
"""Queries of panels that show nothing while a cluster is healthy and plain, and owners set no
thresholds."""


async def test_alerts_of_a_killed_broker_fire_and_clear(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("brokers", "prometheus")]
    for folder in folders:
        await trio.Path(folder).mkdir()
    async with trio.open_nursery() as nursery:
        nodes = Nodes(folders[0], nursery)
        await nodes.start(*nodes.ids)
        targets = {"main": [nodes.http_address(node_id) for node_id in nodes.ids]}
        async with (
            tidelog.connect(nodes.addresses) as client,
            open_front(client, FRONT) as front,
            prometheus(
                folders[1], targets, fronts={"main": [f"127.0.0.1:{front.address[1]}"]}
            ) as database,
        ):
            await fill(client)
            await use_sqs(front.address[1])
            await database.wait_samples("sum(tidelog_controller)", 1)
            await database.wait_samples("sum(up)", len(nodes.ids) + 1)
            await database.wait_alerts(is_healthy)
            await panels_have_data(database)
            await killed_broker_fires(nodes, database)
            assert await database.unhealthy_rules() == []
        nursery.cancel_scope.cancel()


def is_healthy(alerts: list[Labels]) -> bool:
    return not names(alerts) - OF_THE_MACHINE


async def fill(client: tidelog.Client) -> None:
    """Have a topic, a group that has read it, and a queue."""
    await client.admin.create_topic(TOPIC, partitions=3, replication_factor=3)
    await client.admin.create_queue(QUEUE)
    await client.queue(QUEUE).send(b"order")
    async with client.producer() as producer:
        await producer.send_many(TOPIC, [b"click"] * 100)
    async with client.consumer(TOPIC, group_id=GROUP, auto_offset_reset="earliest") as consumer:
        async for _ in consumer.batches():
            await consumer.commit()
            break


def addresses_of(front: FrontServer) -> dict[str, list[str]]:
    return {"main": [f"127.0.0.1:{front.address[1]}"]}


async def use_sqs(port: int) -> None:
    """Send a message by the API of SQS, and make an error."""
    async with HttpClient.connected(port) as http:
        for queue, status in ((QUEUE, 200), ("missing", 400)):
            reply = await http.ask("SendMessage", QueueUrl=queue, MessageBody="order")
            assert reply.status == status


async def panels_have_data(database: Prometheus) -> None:
    await database.wait_samples(
        f'count(max by (queue) (tidelog_queue_ready{{queue="{QUEUE}"}}))', 1
    )
    await database.wait_samples(
        f'count(max by (group) (tidelog_group_members{{group="{GROUP}"}}))', 1
    )
    # Rates need two scrapes of a series.
    for metric in ("tidelog_controller", "tidelog_sqs_requests_total"):
        await database.wait_samples(f"min(count_over_time({metric}[1m])) > bool 1", 1)
    empty = {
        name
        for name, expression in panel_expressions("main").items()
        if not await database.samples(expression)
    }
    assert empty <= MAY_BE_EMPTY


async def killed_broker_fires(nodes: Nodes, database: Prometheus) -> None:
    await nodes.kill_and_wait(VICTIM)

    alerts = await database.wait_alerts(
        lambda alerts: {"BrokerDown", "UnderReplicated"} <= names(alerts)
    )

    assert [each["instance"] for each in alerts if each["alertname"] == "BrokerDown"] == [
        nodes.http_address(VICTIM)
    ]
    assert not names(alerts) & {"ScrapeMissing", "UnderMinIsr", "UncleanElection"}

    await nodes.start(VICTIM)
    await database.wait_alerts(is_healthy)
