"""Tests of the ISR updater: followers leave and join the ISR, and a small ISR commits nothing."""

import pytest
import trio

from tests.broker.replication.three_brokers import (
    NODES,
    TOPIC,
    ThreeBrokers,
    live,
    make_topic,
    produce,
)
from tests.coordinator.raft_clients import until
from tidelog.broker.partitions.partition import Partition
from tidelog.broker.replication.isr_updater import IsrUpdater, is_refusal
from tidelog.client.client import Client
from tidelog.wire.errors import (
    ConnectionLostError,
    LogOfflineError,
    NotControllerError,
    RequestTimedOutError,
    StaleBrokerEpochError,
    TidelogError,
    UnexpectedServerError,
)


def test_a_follower_with_a_slow_disk_leaves_and_rejoins_the_isr() -> None:
    async def main(brokers: ThreeBrokers) -> None:
        await brokers.with_client(make_topic)
        await until(lambda: brokers.in_sync() == set(NODES))
        follower = brokers.followers()[0]

        brokers.machines[follower].stall_disk(8)
        before = trio.current_time()
        await brokers.with_client(lambda client: produce(client, 1))
        waited = trio.current_time() - before

        assert 1 < waited < 3, "the high watermark waited for the lag, and no longer"
        assert brokers.in_sync() == {*NODES} - {follower}
        await until(lambda: brokers.in_sync() == set(NODES))
        assert trio.current_time() - before > 8

    live(1, main, replica_lag_time_max_ms=1000)


def test_a_follower_that_reports_to_a_fenced_leader_joins_the_isr_later() -> None:
    """In an idle partition a follower reports its log end offset only once."""

    async def main(brokers: ThreeBrokers) -> None:
        await brokers.with_client(make_topic)
        await until(lambda: brokers.in_sync() == set(NODES))
        follower, *_ = brokers.followers()
        partition = brokers.partition(await brokers.leads())
        assert partition is not None
        (keeper,) = (each for each in partition.watchers if isinstance(each, IsrUpdater))
        lifecycle = vars(keeper)["_context"].lifecycle
        brokers.kill(follower)
        await until(lambda: brokers.in_sync() == {*NODES} - {follower})

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(lifecycle, "may_lead", lambda: False)
            brokers.start(follower)
            await until(lambda: follows(partition, follower))
            await trio.sleep(5)
            assert brokers.in_sync() == {*NODES} - {follower}

        await until(lambda: brokers.in_sync() == set(NODES))

    live(1, main)


def follows(partition: Partition, node_id: int) -> bool:
    """Return whether a follower has reported its log end offset to a leader."""
    leader = partition.leader
    facts = None if leader is None else vars(leader)["_followers"].progress_of(node_id)
    return facts is not None and facts.broker_epoch is not None


@pytest.mark.invariant("I36")
def test_appends_stop_below_min_insync_replicas_and_continue_above() -> None:
    async def main(brokers: ThreeBrokers) -> None:
        refusals: list[TidelogError] = []

        async def work(client: Client) -> None:
            await client.admin.create_topic(
                TOPIC, partitions=1, replication_factor=3, config={"min_insync_replicas": "3"}
            )
            await until(lambda: brokers.in_sync() == set(NODES))
            await produce(client, 5)
            follower = brokers.followers()[0]
            brokers.kill(follower)
            await until(lambda: len(brokers.in_sync()) == 2)
            async with client.producer(delivery_timeout=1) as producer:
                try:
                    await producer.send(TOPIC, b"too few")
                except TidelogError as error:
                    refusals.append(error)
            assert brokers.end_of(await brokers.leads()) == 5
            brokers.start(follower)
            async with client.producer() as producer:
                await producer.send(TOPIC, b"enough")

        await brokers.with_client(work)

        assert "2 of 3 replicas are in sync, and 3 must be" in str(refusals[0])
        assert brokers.end_of(await brokers.leads()) == 6

    live(2, main)


@pytest.mark.invariant("I36")
def test_records_appended_before_an_isr_shrink_are_retried_and_there_once() -> None:
    """I36: the outcome is unknown to the waiting producer, until it retries."""

    async def main(brokers: ThreeBrokers) -> None:
        async def work(client: Client) -> None:
            await client.admin.create_topic(
                TOPIC, partitions=1, replication_factor=3, config={"min_insync_replicas": 3}
            )
            await until(lambda: brokers.in_sync() == set(NODES))
            await produce(client, 5)
            follower = brokers.followers()[0]
            brokers.machines[follower].stall_disk(5)

            async def lose_the_follower() -> None:
                leader_id = await brokers.leads()
                await until(lambda: brokers.end_of(leader_id) == 6)
                leader = brokers.partition(leader_id)
                assert leader is not None
                assert leader.waiter_count == 1
                brokers.kill(follower)
                before = trio.current_time()
                await until(lambda: leader.waiter_count == 0)
                assert trio.current_time() - before < 3, "no producer waited in vain"
                assert brokers.high_watermark() == 5
                brokers.start(follower)

            async with trio.open_nursery() as nursery, client.producer() as producer:
                nursery.start_soon(lose_the_follower)
                receipt = await producer.send(TOPIC, b"once")
            assert receipt.offset == 5

        await brokers.with_client(work)

        await brokers.all_in_sync()
        assert list(brokers.records(await brokers.leads()).values())[5:] == [b"once"]

    live(4, main)


def test_a_follower_of_an_idle_partition_joins_the_isr_when_it_is_unfenced() -> None:
    async def main(brokers: ThreeBrokers) -> None:
        async def work(client: Client) -> None:
            await make_topic(client)
            await produce(client, 5)

        await brokers.with_client(work)
        follower = brokers.followers()[0]
        brokers.kill(follower)
        await until(lambda: brokers.in_sync() == {*NODES} - {follower})

        brokers.start(follower)

        await until(lambda: brokers.in_sync() == set(NODES))

    live(3, main)


@pytest.mark.parametrize(
    ("error", "is_final"),
    [
        (NotControllerError("another node decides"), True),
        (StaleBrokerEpochError("it must register"), True),
        (RequestTimedOutError("not committed in time"), False),
        (ConnectionLostError("the connection broke"), False),
        (LogOfflineError("the disk of the metadata failed"), False),
        (UnexpectedServerError("a defect"), False),
    ],
)
def test_only_a_refusal_proves_that_an_isr_change_is_never_committed(
    error: Exception, is_final: bool
) -> None:
    assert is_refusal(error) is is_final
