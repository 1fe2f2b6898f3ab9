"""Tests of a broker whose cluster has lost its majority, as administrators see it."""

import json
from collections.abc import Awaitable, Callable
from functools import partial

import pytest
import trio

from tests.broker.replication.three_brokers import ThreeBrokers, live
from tests.coordinator.raft_clients import until
from tidelog.cli.client import Notices
from tidelog.cli.cluster.view import cluster_as_json, health_line, print_cluster
from tidelog.cli.waiting import Waiting
from tidelog.client.admin.cluster_health import cluster_health
from tidelog.client.client import Client
from tidelog.wire.errors import RetriableError
from tidelog.wire.messages.cluster_admin import DescribeClusterReply

Printed = pytest.CaptureFixture[str]


def shown(reply: DescribeClusterReply, capsys: Printed) -> str:
    """Return the output of `tidelog cluster status`."""
    capsys.readouterr()
    print_cluster(reply, with_partitions=False)
    return capsys.readouterr().out


def test_a_dead_majority_is_not_shown_as_alive(capsys: Printed) -> None:
    async def main(brokers: ThreeBrokers) -> None:
        await until(lambda: brokers.are_live(3))

        async def work(client: Client) -> None:
            await client.admin.create_topic("orders", 12, replication_factor=3)
            left = brokers.controller()
            others = [node_id for node_id in (1, 2, 3) if node_id != left]
            for node_id in others:
                brokers.kill(node_id)
            died_at = trio.current_time()

            await trio.sleep_until(died_at + 1)
            early = await client.admin.describe_cluster()
            assert early.metadata_age_ms is not None
            assert early.metadata_age_ms < 2000
            assert f"node {left}, with metadata of" in shown(early, capsys)

            for seconds in (10, 45):
                await trio.sleep_until(died_at + seconds)
                late = await client.admin.describe_cluster()
                found = shown(late, capsys)
                assert f"unknown for {seconds} s; was 12: " in found
                assert f"unknown for {seconds} s; was 12 of 12 to write, 12 of 12 to read" in found
                assert found.count(f"unknown for {seconds} s; was alive") == 2
                assert f"with metadata of {seconds} s ago" in found
                assert health_line(late) == (
                    f"unavailable: node {left} has no contact to a majority of the voters for"
                    f" {seconds} s; asked node {left}; start node {others[0]} or {others[1]}, or"
                    f" restore their connection to node {left}: 2 of 3 voters are needed for a"
                    " majority"
                )
                programs = json.loads(json.dumps(cluster_as_json(late, with_partitions=False)))
                assert programs["leaderless_count"] is None
                assert programs["health"]["last_known"]["partition_count"] == 12
                assert programs["health"]["writable_count"] is None

            brokers.start(*others)
            await brokers.serve()
            await until(lambda: brokers.are_live(3))
            healthy = await client.admin.describe_cluster()
            assert cluster_health(healthy).is_stale is False

        await brokers.with_client(work)

    live(1, main)


class Watch:
    """The lines that a command would print, of one client at a time."""

    def __init__(self) -> None:
        self.waiting = Waiting("node1:8433", now=0, connect_timeout=10)

    def probe(self, event: str, **fields: object) -> None:
        Notices(self.waiting)(event, **fields)

    async def line_of(self, call: Callable[[], Awaitable[object]]) -> str:
        """Return the first line while a call waits, and cancel the call; it comes within 5 s."""
        waiting = self.waiting = Waiting("node1:8433", now=trio.current_time(), connect_timeout=10)
        waiting.connected()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(call)
            for _ in range(20):
                await trio.sleep(0.25)
                line = waiting.due_line(trio.current_time())
                if line is not None:
                    nursery.cancel_scope.cancel()
                    return line
            nursery.cancel_scope.cancel()
        raise AssertionError("no line")


async def produced(client: Client) -> None:
    async with client.producer() as producer:
        await producer.send("orders", b"1")


async def consumed(client: Client) -> None:
    async with client.consumer("orders", auto_offset_reset="earliest") as consumer:
        async for _ in consumer:
            pass


def test_commands_say_what_they_wait_for_and_end() -> None:
    watch = Watch()

    async def main(brokers: ThreeBrokers) -> None:
        await until(lambda: brokers.are_live(3))

        async def work(client: Client) -> None:
            await client.admin.create_topic("orders", 1, replication_factor=3)
            left = brokers.controller()
            for node_id in {1, 2, 3} - {left}:
                brokers.kill(node_id)
            await trio.sleep(10)

            line = await watch.line_of(partial(client.admin.create_topic, "more"))
            assert line == "waiting, up to 28 s more: no answer to CREATE_TOPIC yet"
            assert (await watch.line_of(partial(produced, client))).startswith("waiting")
            assert (await watch.line_of(partial(consumed, client))).startswith("waiting")

            began_at = trio.current_time()
            with pytest.raises(RetriableError) as raised:
                await client.admin.list_groups()
            assert 25 <= trio.current_time() - began_at <= 35
            assert "the request was retried for 30 s" in raised.value.__notes__

        with trio.fail_after(600):
            await brokers.with_client(work, probe=watch.probe)

    live(1, main)
