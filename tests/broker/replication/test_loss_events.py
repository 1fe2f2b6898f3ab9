"""Lost records become events of the cluster, with offsets and count."""

from collections.abc import Mapping
from typing import NamedTuple

import pytest

from tests.broker.replication.damage import with_records
from tests.broker.replication.three_brokers import (
    TOPIC,
    Acknowledged,
    ThreeBrokers,
    live,
    produce,
)
from tests.coordinator.raft_clients import until
from tidelog.cli.cluster.view import print_cluster
from tidelog.cli.topic.view import print_topic
from tidelog.client.client import Client
from tidelog.wire.messages.cluster_admin import DescribeClusterReply
from tidelog.wire.messages.topics import TopicDescription

Printed = pytest.CaptureFixture[str]


class Described(NamedTuple):
    """The replies that `cluster status` and `topic describe` print."""

    cluster: DescribeClusterReply
    topic: TopicDescription

    @classmethod
    async def ask(cls, client: Client) -> "Described":
        (topic,) = await client.admin.describe_topics([TOPIC])
        return cls(await client.admin.describe_cluster(), topic)

    def printed(self, printed: Printed) -> tuple[str, str]:
        """Return the output of both commands; not inside of a simulation, which has no dates."""
        print_cluster(self.cluster, with_partitions=False)
        status = printed.readouterr().out
        print_topic(self.topic)
        return status, printed.readouterr().out


def _lose_all_files(brokers: ThreeBrokers, node_id: int) -> None:
    disk = brokers.machines[node_id].disk
    for path in disk.paths():
        if path.startswith(f"topics/{TOPIC}."):
            disk.lose_file(path)


def _eligible(brokers: ThreeBrokers, asked: int) -> tuple[int, ...]:
    state = brokers.state(asked)
    (partition,) = state.partitions(state.catalog.topic(TOPIC).topic_id)
    return partition.eligible_leader_replicas


def _high_watermark(brokers: ThreeBrokers, node_id: int) -> int:
    partition = brokers.partition(node_id)
    return -1 if partition is None else partition.high_watermark


async def _lose_a_leader(
    brokers: ThreeBrokers, client: Client, *, start: int
) -> tuple[int, int, Acknowledged]:
    """Leave a partition without a leader: its files are lost, and the other replica is down.

    Return a live replica that lacks records, the replica that has them, and these records.
    """
    leader = await brokers.leads()
    behind, other = brokers.followers()
    brokers.kill(behind)
    await until(lambda: brokers.in_sync() == {leader, other}, 30)
    lost = await produce(client, 15, start=start)
    end = max(lost) + 1
    await until(lambda: _high_watermark(brokers, other) == end)
    brokers.stop(other)
    await until(lambda: brokers.in_sync() == {leader}, 30)
    brokers.cut_power(leader)
    _lose_all_files(brokers, leader)
    brokers.start(leader, behind)
    await brokers.serve(2)
    await until(lambda: _eligible(brokers, behind) == (other,), 60)
    await until(lambda: brokers.are_live(2), 60)
    return behind, other, lost


def test_records_lost_by_an_unclean_election_are_shown_until_an_acknowledgement(
    capsys: Printed,
) -> None:
    described: list[Described] = []

    async def main(brokers: ThreeBrokers) -> None:
        heard: dict[str, Mapping[str, object]] = {}
        brokers.world.observe(lambda _, name, fields: heard.update({name: fields}))

        async def go_on(client: Client, acknowledged: Acknowledged) -> None:
            behind, other, lost = await _lose_a_leader(brokers, client, start=len(acknowledged))
            described.append(await Described.ask(client))

            await client.admin.elect_leaders([(TOPIC, 0)], accept_data_loss=True)
            assert await brokers.leads() == behind
            brokers.start(other)
            await brokers.all_in_sync()
            await until(lambda: len(brokers.state(behind).events.unacknowledged) == 2, 30)

            accepted, event = await client.admin.cluster_events()
            assert (accepted.kind, accepted.node_id) == ("data_loss_accepted", behind)
            assert (event.kind, event.node_id) == ("records_lost", other)
            assert (event.first_offset, event.end_offset) == (min(lost), max(lost) + 1)
            assert event.record_count == len(lost)
            logged = heard["records_lost"]
            assert (logged["severity"], logged["topic"]) == ("warning", TOPIC)
            assert (logged["partition"], logged["record_count"]) == (0, len(lost))
            described.append(await Described.ask(client))

            assert await client.admin.acknowledge_events([accepted.event_id, event.event_id]) == 0
            described.append(await Described.ask(client))

        await with_records(brokers, go_on)

    live(1, main)
    leaderless, after, acknowledged = (each.printed(capsys) for each in described)
    for printed in leaderless:
        assert "why partitions have no leader:" in printed
        assert "no replica with all committed records is alive" in printed
        assert "--topic orders --partition 0 --accept-data-loss\n" in printed
    for printed in after:
        assert all(kind in printed for kind in ("records_lost", "data_loss_accepted"))
        assert "120  135       15" in printed
        assert "why partitions" not in printed
    for printed in acknowledged:
        assert "records_lost" not in printed
