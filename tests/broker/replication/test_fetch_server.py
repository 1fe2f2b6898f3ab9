"""Tests of the fetch server: it serves replicas only, and checks busy partitions only."""

# Counts private calls.
# pyright: reportPrivateUsage=false

from types import SimpleNamespace
from typing import Any, TypeVar

import pytest
import trio

from tests.broker.replication.three_brokers import (
    NODES,
    TOPIC,
    ThreeBrokers,
    connected,
    connected_as,
    live,
    make_topic,
    produce,
)
from tests.coordinator.raft_clients import until
from tests.simulation.machine.process import Process
from tidelog.broker.replication import fetch_server
from tidelog.client.client import Client
from tidelog.isr.fetch_session import LeaderSession
from tidelog.wire.errors import (
    BrokerError,
    InvalidRequestError,
    NotANodeError,
    StaleBrokerEpochError,
)
from tidelog.wire.messages.metadata import MetadataRequest
from tidelog.wire.messages.replication import (
    FollowedPartition,
    ReplicaDurableRequest,
    ReplicaFetchRequest,
    ReplicaIdentity,
    ReplicaPosition,
)
from tidelog.wire.protocol import api
from tidelog.wire.protocol.api import Api
from tidelog.wire.transport.rpc import RpcConnection

Request = TypeVar("Request")
Reply = TypeVar("Reply")


async def refusal(
    connection: RpcConnection, api_: Api[Request, Reply], request: Request
) -> type[Exception] | None:
    """Return the error by which a broker refuses a request, `None` if it does not."""
    try:
        await connection.ask(api_, request)
    except BrokerError as error:
        return type(error)
    return None


@pytest.mark.invariant("I63")
def test_a_client_cannot_claim_to_be_a_replica() -> None:
    """I63, CVE-2018-1288: otherwise records could be committed that no replica has."""

    async def main(brokers: ThreeBrokers) -> None:
        await brokers.with_client(make_topic)
        await until(lambda: brokers.in_sync() == set(NODES))
        leader, follower = await brokers.leads(), brokers.followers()[0]
        known = brokers.state(leader).brokers[follower]
        cluster_id = brokers.brokers[leader].cluster_id
        true_name = ReplicaIdentity(cluster_id, follower, known.broker_epoch, known.incarnation_id)
        lies = [
            (ReplicaIdentity(cluster_id, follower, known.broker_epoch, ""), StaleBrokerEpochError),
            (
                ReplicaIdentity(cluster_id, follower, known.broker_epoch - 1, known.incarnation_id),
                StaleBrokerEpochError,
            ),
            (ReplicaIdentity(cluster_id, 9, 1, known.incarnation_id), NotANodeError),
            (
                ReplicaIdentity("other", follower, known.broker_epoch, known.incarnation_id),
                InvalidRequestError,
            ),
        ]

        refusals: list[type[Exception] | None] = []
        done = trio.Event()

        async def lie(process: Process) -> None:
            async with connected(process, leader) as stranger:
                fetch = ReplicaFetchRequest(true_name, True, 0, 1, [], [], [])
                refusals.append(await refusal(stranger, api.REPLICA_FETCH, fetch))
                report = ReplicaDurableRequest(true_name, [], False)
                refusals.append(await refusal(stranger, api.REPLICA_DURABLE, report))
            async with connected_as(follower, process, leader) as connection:
                for name, _ in lies:
                    fetch = ReplicaFetchRequest(name, False, 0, 1, [], [], [])
                    refusals.append(await refusal(connection, api.REPLICA_FETCH, fetch))
                    report = ReplicaDurableRequest(name, [], False)
                    refusals.append(await refusal(connection, api.REPLICA_DURABLE, report))
                fetch = ReplicaFetchRequest(true_name, False, 0, 1, [], [], [])
                refusals.append(await refusal(connection, api.REPLICA_FETCH, fetch))
                # A durability report has no reply. The connection would be lost upon a reply.
                connection.submit(
                    api.REPLICA_DURABLE, ReplicaDurableRequest(true_name, [], False), None
                )
                await connection.ask(api.METADATA, MetadataRequest(None))
            done.set()

        brokers.world.add_node("liar").start(lie)
        await done.wait()

        expected = [error for _, error in lies for _ in range(2)]
        # The right identity is accepted; but a session has to begin before any fetch.
        assert refusals == [NotANodeError, NotANodeError, *expected, InvalidRequestError]

    live(1, main)


@pytest.mark.invariant("I55")
def test_a_fetch_position_beyond_the_leaders_log_does_not_advance_the_high_watermark() -> None:
    async def main(brokers: ThreeBrokers) -> None:
        await brokers.with_client(make_topic)
        leader, follower = await brokers.leads(), brokers.followers()[0]
        known = brokers.state(leader).brokers[follower]
        topic = brokers.state(leader).catalog.topic(TOPIC)
        name = ReplicaIdentity(
            brokers.brokers[leader].cluster_id, follower, known.broker_epoch, known.incarnation_id
        )
        partition = brokers.partition(leader)
        assert partition is not None
        assert partition.leader is not None
        request = ReplicaFetchRequest(
            name,
            True,
            0,
            1000,
            [FollowedPartition(0, topic.topic_id, 0, partition.leader.leader_epoch)],
            [ReplicaPosition(0, 1000, 0, 1000)],
            [],
        )
        parts: list[object] = []
        done = trio.Event()

        async def ask(process: Process) -> None:
            async with connected_as(follower, process, leader) as connection:
                reply = await connection.ask(api.REPLICA_FETCH, request)
                parts.append(reply.results[0].diverging or reply.results[0].error)

            done.set()

        brokers.world.add_node("strange").start(ask)
        await done.wait()

        assert parts[0] is not None
        assert brokers.high_watermark() == 0

    live(2, main)


def test_a_newer_session_of_a_follower_ends_the_older_one() -> None:
    """A request that the network delayed must not take a follower back to an old position.

    An idle follower reports nothing, so the leader would keep it out of the ISR for ever.
    """

    async def main(brokers: ThreeBrokers) -> None:
        await brokers.with_client(make_topic)
        await brokers.with_client(lambda client: produce(client, 2))
        await brokers.all_in_sync()
        leader, follower = await brokers.leads(), brokers.followers()[0]
        partition = brokers.partition(leader)
        assert partition is not None
        known = brokers.state(leader).brokers[follower]
        identity = ReplicaIdentity(
            brokers.brokers[leader].cluster_id, follower, known.broker_epoch, known.incarnation_id
        )
        topic_id = brokers.state(leader).catalog.topic(TOPIC).topic_id

        def fetch(*, begins_session: bool) -> ReplicaFetchRequest:
            state = partition.leader
            assert state is not None
            followed = [FollowedPartition(0, topic_id, 0, state.leader_epoch)]
            begun = followed if begins_session else []
            return ReplicaFetchRequest(
                identity, begins_session, 0, 1, begun, [ReplicaPosition(0, 0, 0, 0)], []
            )

        def end_of_follower() -> int | None:
            state = partition.leader
            assert state is not None
            return state.follower_end_offset(follower)

        refusals: list[type[Exception] | None] = []
        done = trio.Event()

        async def delay(process: Process) -> None:
            async with connected_as(follower, process, leader) as connection:
                await connection.ask(api.REPLICA_FETCH, fetch(begins_session=True))
                assert end_of_follower() == 0
                await until(lambda: end_of_follower() == partition.log.log_end_offset)
                late = fetch(begins_session=False)
                refusals.append(await refusal(connection, api.REPLICA_FETCH, late))
            done.set()

        brokers.world.add_node("network").start(delay)
        await done.wait()

        assert refusals == [InvalidRequestError]
        assert end_of_follower() == partition.log.log_end_offset

    live(3, main)


def test_a_leader_checks_busy_partitions_and_not_idle_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks: list[int] = []
    look = fetch_server.FetchServer._look

    def counted(
        self: fetch_server.FetchServer, number: int, *rest: object, remaining: int
    ) -> fetch_server.ReplicaBatches:
        looks.append(number)
        return look(self, number, *rest, remaining=remaining)  # type: ignore[arg-type]  # passed on as they are

    monkeypatch.setattr(fetch_server.FetchServer, "_look", counted)

    async def main(brokers: ThreeBrokers) -> None:
        async def work(client: Client) -> None:
            await client.admin.create_topic(TOPIC, partitions=60, replication_factor=3)
            await produce(client, 5)
            await until(lambda: brokers.is_settled(60))
            looks.clear()
            await produce(client, 20)

        await brokers.with_client(work)

        # Two followers; each gets a batch, and then the high watermark.
        assert 40 <= len(looks) < 250

    live(3, main)


def test_a_full_fetch_reply_stops_the_check_and_all_partitions_get_their_turn() -> None:
    """Each check may read an index from the disk."""
    core, looked_at = LeaderSession(), list[int]()
    name = ReplicaIdentity("a cluster", 2, 1, "an incarnation")
    followed = [FollowedPartition(number, b"t" * 16, number, 0) for number in range(10)]
    positions = [ReplicaPosition(number, 0, None, 0) for number in range(10)]
    request = ReplicaFetchRequest(name, True, 0, 100, followed, positions, [])
    core.take(request)

    def look(number: int, *_: object, **__: object) -> fetch_server.ReplicaBatches:
        looked_at.append(number)
        part: Any = SimpleNamespace(length=60)
        return fetch_server.ReplicaBatches(number, part=part)

    server: Any = object.__new__(fetch_server.FetchServer)
    server._look = look
    for entry in core.partitions.values():
        entry.is_reported = True
    session: Any = SimpleNamespace(core=core, is_held_up=False)
    served: list[int] = []
    for _ in range(10):
        found = server.collect(session, request)
        served += [item.number for item in found]
        for item in found:
            core.told(item.number, high_watermark=0, log_start_offset=0, awaits_report=True)

    assert served == list(range(10))
    assert len(looked_at) < 2 * 10, "the partition without room is checked again"
