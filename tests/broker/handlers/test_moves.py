"""Tests of LIST_REASSIGNMENTS: the progress of replicas that are being added."""

import trio

from tests.broker.replication.test_throttle import is_moving, make_narrow_topic, replicas
from tests.broker.replication.three_brokers import TOPIC, ThreeBrokers, live
from tests.coordinator.raft_clients import until
from tidelog.client.admin.cluster import MovingReplica
from tidelog.client.client import Client
from tidelog.wire.messages.reassignment import PartitionMove


def test_reassignment_progress_is_listed_from_start_to_end() -> None:
    async def main(brokers: ThreeBrokers) -> None:
        await until(lambda: brokers.are_live(3))

        async def work(client: Client) -> list[MovingReplica]:
            await make_narrow_topic(client)
            await client.admin.alter_cluster(set={"reassignment_max_bytes_per_second": "100kB"})
            assert await client.admin.list_reassignments() == []
            there, other = replicas(brokers)
            await brokers.reassign([*there, other])
            seen: list[MovingReplica] = []
            while is_moving(brokers):
                seen += await client.admin.list_reassignments()
                await trio.sleep(1)
            return seen

        seen = await brokers.with_client(work)

        assert {(each.topic, each.partition) for each in seen} == {(TOPIC, 0)}
        assert len({each.node_id for each in seen}) == 1
        known = [each.progress for each in seen if each.progress is not None]
        left = [each.records_left for each in known]
        assert len(left) >= 5
        assert left == sorted(left, reverse=True)
        assert 50 < left[0] <= 100
        assert left[-1] < 30
        assert all(each.record_count == 100 for each in known)
        for each in known:
            assert each.bytes_left == each.size_bytes * each.records_left // 100

    live(5, main)


def test_reassignment_progress_of_a_leaderless_partition_is_unknown() -> None:
    async def main(brokers: ThreeBrokers) -> None:
        await until(lambda: brokers.are_live(3))

        async def work(client: Client) -> list[MovingReplica]:
            await client.admin.create_topic(TOPIC, 1, replication_factor=1)
            await client.admin.alter_cluster(set={"reassignment_max_bytes_per_second": "1kB"})
            async with client.producer() as producer:
                for _ in range(10):
                    await producer.send(TOPIC, b"v" * 10_000)
            leader = await brokers.leads()
            replacement = brokers.followers()[0]
            await client.admin.reassign([PartitionMove(TOPIC, 0, [replacement])])
            brokers.kill(leader)
            topic_id = brokers.state(replacement).catalog.topic(TOPIC).topic_id

            def is_led() -> bool:
                known = brokers.state(replacement).partition(topic_id, 0)
                return known is not None and known.leader is not None

            await until(lambda: not is_led(), 30)
            return await client.admin.list_reassignments()

        (move,) = await brokers.with_client(work)

        assert (move.topic, move.partition) == (TOPIC, 0)
        assert move.leader_id is None
        assert move.progress is None

    live(6, main)
