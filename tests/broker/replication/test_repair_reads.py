"""Tests of repair reads: a leader rereads batches for followers, and checks doubted bytes."""

import pytest
import trio

from tests.broker.replication.damage import (
    flip,
    is_damaged,
    make_topic,
    produce,
    segments,
    with_records,
)
from tests.broker.replication.three_brokers import (
    NODES,
    TOPIC,
    Acknowledged,
    ThreeBrokers,
    connected_as,
    host_of,
    live,
)
from tests.coordinator.raft_clients import until
from tests.logstore.logs import records_in
from tests.simulation.machine.process import Process
from tidelog.broker.replication import fetch_server
from tidelog.client.client import Client
from tidelog.logstore.segments.log_slice import LogSlice
from tidelog.wire.env.env import BytesLike
from tidelog.wire.errors import (
    BrokerError,
    InvalidRequestError,
    NotLeaderError,
    OffsetOutOfRangeError,
    StaleBrokerEpochError,
)
from tidelog.wire.messages.replication import ReplicaIdentity, ReplicaReadReply, ReplicaReadRequest
from tidelog.wire.protocol import api
from tidelog.wire.transport.write_buffer import FileRegion


@pytest.mark.invariant("I58")
def test_a_leader_that_sent_damaged_bytes_checks_them_and_is_replaced() -> None:
    async def main(brokers: ThreeBrokers) -> None:
        async def go_on(client: Client, acknowledged: Acknowledged) -> None:
            leader, follower = await brokers.leads(), brokers.followers()[0]
            heal = brokers.world.network.partition([host_of(leader)], [host_of(follower)])
            acknowledged |= await produce(client, 3, start=120)
            newest = segments(brokers, leader)[-1]
            size = len(brokers.machines[leader].disk.durable_bytes(newest))
            flip(brokers, leader, newest, position=size - 100)
            heal()

            await brokers.leads(other_than=leader)
            await until(lambda: brokers.in_sync() == set(NODES), 30)
            await brokers.check(acknowledged)

        await with_records(brokers, go_on)

    live(5, main)


@pytest.mark.invariant("I58")
def test_a_corrupt_fetch_reply_is_retried_at_intervals(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pieces: list[float] = []
    piece_of = fetch_server._piece  # pyright: ignore[reportPrivateUsage]

    def damaged(part: LogSlice) -> BytesLike | FileRegion:
        pieces.append(trio.current_time())
        if len(pieces) > 8:
            return piece_of(part)
        data = bytearray(part.read())
        data[-1] ^= 1
        return bytes(data)

    async def main(brokers: ThreeBrokers) -> None:
        async def work(client: Client) -> None:
            await make_topic(client)
            await until(lambda: brokers.in_sync() == set(NODES))
            leader = await brokers.leads()
            monkeypatch.setattr(fetch_server, "_piece", damaged)
            acknowledged = await produce(client, 3)

            assert brokers.leader() == leader, "its bytes are in order"
            assert not is_damaged(brokers, leader)
            await brokers.check(acknowledged)

        await brokers.with_client(work)

    live(6, main)

    # Two followers asked once a second each.
    assert pieces[7] - pieces[0] > 2.5


def test_a_repair_read_returns_whole_batches_of_a_range() -> None:
    async def main(brokers: ThreeBrokers) -> None:
        async def go_on(client: Client, acknowledged: Acknowledged) -> None:
            del client
            leader, follower = await brokers.leads(), brokers.followers()[0]
            partition = brokers.partition(leader)
            assert partition is not None
            assert partition.leader is not None
            known = brokers.state(leader).brokers[follower]
            cluster_id = brokers.brokers[leader].cluster_id
            name = ReplicaIdentity(cluster_id, follower, known.broker_epoch, known.incarnation_id)
            liar = ReplicaIdentity(cluster_id, follower, known.broker_epoch, "")
            epoch = partition.leader.leader_epoch
            topic_id = brokers.state(leader).catalog.topic(TOPIC).topic_id
            got: list[list[int]] = []
            refusals: list[type[BrokerError]] = []

            def take(reply: ReplicaReadReply, attachment: memoryview) -> list[int]:
                assert reply.log_start_offset == 0
                found = records_in(bytes(attachment))
                assert all(acknowledged[offset] == value for offset, value in found.items())
                return sorted(found)

            async def read(process: Process) -> None:
                async with connected_as(follower, process, leader) as connection:
                    for offset, end, size in ((50, 55, 1 << 20), (51, 60, 1), (119, 120, 1)):
                        request = ReplicaReadRequest(name, topic_id, 0, epoch, offset, end, size)
                        got.append(await connection.call(api.REPLICA_READ, request, take=take))
                    for request in (
                        ReplicaReadRequest(liar, topic_id, 0, epoch, 0, 1, 1),
                        ReplicaReadRequest(name, topic_id, 0, epoch - 1, 0, 1, 1),
                        ReplicaReadRequest(name, topic_id, 0, epoch + 1, 0, 1, 1),
                        ReplicaReadRequest(name, topic_id, 0, epoch, 0, 121, 1),
                    ):
                        try:
                            await connection.call(api.REPLICA_READ, request, take=take)
                        except BrokerError as error:
                            refusals.append(type(error))

            await brokers.world.add_node("reader").start(read).ended.wait()

            # The batches of one segment come first; the rest is read next.
            assert got == [[50, 51], [51], [119]]
            assert refusals == [
                StaleBrokerEpochError,
                InvalidRequestError,  # There is no epoch before the first one.
                NotLeaderError,
                OffsetOutOfRangeError,
            ]

        await with_records(brokers, go_on)

    live(8, main)
