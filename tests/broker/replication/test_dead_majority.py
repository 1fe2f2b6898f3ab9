"""Tests of a broker whose cluster has lost its majority, as administrators see it."""

import json

import pytest
import trio

from tests.broker.replication.three_brokers import ThreeBrokers, live
from tests.coordinator.raft_clients import until
from tidelog.cli.cluster.view import cluster_as_json, health_line, print_cluster
from tidelog.client.admin.cluster_health import cluster_health
from tidelog.client.client import Client
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
