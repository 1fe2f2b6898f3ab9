"""Tests of queues on three brokers: replies stay true when the leader of a journal dies."""

from dataclasses import replace
from functools import partial

import pytest
import trio

from tests.broker.queues.queue_requests import (
    Message,
    purge,
    received,
    submit_receive,
    submit_settle,
)
from tests.broker.queues.workers import JOURNAL, Workers
from tests.broker.replication.three_brokers import (
    NODES,
    ThreeBrokers,
    connected,
    host_of,
    live,
    produce,
)
from tests.coordinator.raft_clients import until
from tests.simulation.machine.process import Process
from tidelog.client.client import Client
from tidelog.wire.errors import BrokerError, NotLeaderError, TidelogError
from tidelog.wire.messages.queues import SettleAction

MESSAGES = 30


async def make_queue(brokers: ThreeBrokers, count: int, **settings: str) -> bytes:
    """Create a queue with some messages; return its id."""

    async def work(client: Client) -> bytes:
        await client.admin.create_topic("orders", 1, replication_factor=3)
        queue = await client.admin.create_queue("orders", **settings)  # type: ignore[arg-type]
        await produce(client, count)
        return queue.queue_id

    queue_id = await brokers.with_client(work)
    await until(lambda: brokers.leader(JOURNAL) is not None)
    return queue_id


async def at_leader(brokers: ThreeBrokers, process: Process, queue_id: bytes) -> list[Message]:
    """Receive one message from the leader of the queue's journal."""
    while True:
        leader = brokers.leader(JOURNAL)
        try:
            async with connected(process, leader or 1) as client:
                with trio.move_on_after(10):
                    return await received(submit_receive(client, queue_id, 1))
        except (TidelogError, OSError):
            pass
        await trio.sleep(0.1)


@pytest.mark.statement("b73", "b74", "b78")
@pytest.mark.parametrize("seed", range(2))
def test_acknowledged_deletes_survive_the_death_of_the_journal_leader(
    seed: int,
) -> None:
    async def main(brokers: ThreeBrokers) -> None:
        queue_id = await make_queue(
            brokers, MESSAGES, visibility_timeout_ms="20s", receive_acks="all"
        )
        workers = Workers(brokers, queue_id)
        for number in range(2):
            machine = brokers.world.add_node(f"worker{number}")
            machine.start(workers.work)
        await until(lambda: len(workers.deleted) >= 10)
        leader = brokers.leader(JOURNAL)
        assert leader is not None
        brokers.kill(leader)
        await until(lambda: brokers.leader(JOURNAL) not in {None, leader}, 60)
        brokers.start(leader)
        await until(lambda: workers.are_done == MESSAGES, 120)
        await trio.sleep(30)  # A message that was not deleted is delivered again.
        workers.should_stop = True

        workers.check()
        assert len(workers.deleted) >= MESSAGES - 6  # Two replies may have been lost.
        assert workers.offsets() == set(range(MESSAGES))

    live(seed, main)


@pytest.mark.statement("b74", "b75")
def test_a_receipt_of_the_old_leader_is_valid_at_the_new_one_and_its_lease_is_kept() -> None:
    async def main(brokers: ThreeBrokers) -> None:
        queue_id = await make_queue(brokers, 1, visibility_timeout_ms="60s", receive_acks="all")
        first = brokers.leader(JOURNAL)
        assert first is not None
        done = trio.Event()

        async def client(process: Process) -> None:
            messages = await at_leader(brokers, process, queue_id)
            assert [message.offset for message in messages] == [0]
            brokers.kill(first)
            await until(lambda: brokers.leader(JOURNAL) not in {None, first}, 60)
            assert await at_leader(brokers, process, queue_id) == []
            second = brokers.leader(JOURNAL)
            assert second is not None
            async with connected(process, second) as connection:
                reply = await submit_settle(connection, queue_id, messages).reply()
                assert reply.results[0].error is None
                assert reply.results[0].refused == []
            await trio.sleep(61)
            assert await at_leader(brokers, process, queue_id) == []
            done.set()

        brokers.world.add_node("client").start(client)
        await done.wait()

    live(3, main)


def test_a_message_deleted_by_an_uncommitted_lease_never_returns() -> None:
    async def main(brokers: ThreeBrokers) -> None:
        queue_id = await make_queue(brokers, 3, visibility_timeout_ms="20s", receive_acks="leader")
        first = brokers.leader(JOURNAL)
        assert first is not None
        done = trio.Event()

        async def client(process: Process) -> None:
            async with connected(process, first) as connection:
                (warm,) = await received(submit_receive(connection, queue_id, 1))
                await submit_settle(connection, queue_id, [warm]).reply()
                others = [host_of(node) for node in NODES if node != first]
                heal = brokers.world.network.partition([host_of(first)], others)
                messages = await received(submit_receive(connection, queue_id, 1))
                assert [message.offset for message in messages] == [1]
            brokers.cut_power(first)
            heal()
            await until(lambda: brokers.leader(JOURNAL) not in {None, first}, 60)
            second = brokers.leader(JOURNAL)
            assert second is not None
            async with connected(process, second) as connection:
                reply = await submit_settle(connection, queue_id, messages).reply()
                assert reply.results[0].error is None
                assert reply.results[0].refused == []
            assert [each.offset for each in await at_leader(brokers, process, queue_id)] == [2]
            done.set()

        brokers.world.add_node("client").start(client)
        await done.wait()

    live(7, main)


@pytest.mark.statement("b89")
def test_a_receive_that_waits_at_a_leader_that_resigns_gets_a_retriable_error() -> None:
    async def main(brokers: ThreeBrokers) -> None:
        queue_id = await make_queue(brokers, 0)
        first = brokers.leader(JOURNAL)
        assert first is not None
        done = trio.Event()

        async def client(process: Process) -> None:
            async with connected(process, first) as connection:
                pending = submit_receive(connection, queue_id, max_wait_ms=600_000)
                await trio.sleep(1)
                brokers.stop(first)
                with pytest.raises(NotLeaderError):
                    await received(pending)
            done.set()

        brokers.world.add_node("client").start(client)
        await done.wait()

    live(4, main)


@pytest.mark.statement("b55")
@pytest.mark.parametrize("seed", range(2))
def test_dead_letters_are_in_one_queue_when_a_broker_dies_during_the_move(seed: int) -> None:
    async def main(brokers: ThreeBrokers) -> None:
        queue_id = await make_dead_letter_queue(brokers, MESSAGES)
        workers = Workers(brokers, queue_id)

        machine = brokers.world.add_node("worker")
        machine.start(partial(workers.work, action=SettleAction.REJECT))
        await until(lambda: len(workers.deleted) >= 10)
        leader = brokers.leader(JOURNAL)
        assert leader is not None
        brokers.kill(leader)
        await until(lambda: brokers.leader(JOURNAL) not in {None, leader}, 60)
        brokers.start(leader)
        await until(lambda: workers.are_done == MESSAGES, 120)
        await trio.sleep(45)
        workers.should_stop = True

        at = brokers.leader("dead")
        assert at is not None
        letters = list(brokers.records(at, name="dead").values())
        assert sorted(letters) == sorted(b"order %d" % number for number in range(MESSAGES))

    live(seed, main)


async def make_dead_letter_queue(brokers: ThreeBrokers, count: int) -> bytes:
    """Create a queue with messages, and one for its dead letters; return the id of the first."""

    async def work(client: Client) -> None:
        await client.admin.create_topic("dead", 1, replication_factor=3)
        await client.admin.create_queue("dead")

    await brokers.with_client(work)
    return await make_queue(brokers, count, dead_letter_queue="dead", visibility_timeout_ms="20s")


@pytest.mark.statement("b79")
def test_a_deposed_leader_neither_delivers_nor_deletes_messages() -> None:
    async def main(brokers: ThreeBrokers) -> None:
        queue_id = await make_queue(brokers, 2, receive_acks="all")
        first = brokers.leader(JOURNAL)
        assert first is not None
        done = trio.Event()

        async def client(process: Process) -> None:
            async with connected(process, first) as connection:
                messages = await received(submit_receive(connection, queue_id, 1))
                others = [host_of(node) for node in NODES if node != first]
                heal = brokers.world.network.partition([host_of(first)], others)
                settled = submit_settle(connection, queue_id, messages)
                pending = submit_receive(connection, queue_id, 1)
                await until(lambda: brokers.leader(JOURNAL) not in {None, first}, 60)

                # At the new leader one message is still leased, and the other is not.
                assert [each.offset for each in await at_leader(brokers, process, queue_id)] == [1]
                heal()
                with pytest.raises(BrokerError):
                    await received(pending)
                assert (await settled.reply()).results[0].error is not None
            done.set()

        brokers.world.add_node("client").start(client)
        await done.wait()

    live(5, main)


def test_a_receive_from_a_failed_disk_gets_a_retriable_error() -> None:
    async def main(brokers: ThreeBrokers) -> None:
        queue_id = await make_queue(brokers, 2)
        first = brokers.leader(JOURNAL)
        assert first is not None
        done = trio.Event()

        async def client(process: Process) -> None:
            async with connected(process, first) as connection:
                source = brokers.partition(first)
                assert source is not None
                source.log.fail("the disk does not answer any more")
                with pytest.raises(BrokerError) as told:
                    await received(submit_receive(connection, queue_id, 1))
                assert told.value.is_retriable
                with pytest.raises(BrokerError) as told:
                    await purge(connection, queue_id)
                assert told.value.is_retriable
            done.set()

        brokers.world.add_node("client").start(client)
        await done.wait()

    live(8, main)


@pytest.mark.statement("b55")
def test_a_moved_dead_letter_is_not_sent_again_after_any_time() -> None:
    """Logs expire producers that are silent for long, except for mover ids."""

    async def main(brokers: ThreeBrokers) -> None:
        async def create(client: Client) -> bytes:
            for name in ("dead", "orders"):
                await client.admin.create_topic(name, 1, replication_factor=1)
            await client.admin.create_queue("dead")
            return (await client.admin.create_queue("orders", dead_letter_queue="dead")).queue_id

        queue_id = await brokers.with_client(create)
        await brokers.reassign([1])
        await brokers.reassign([2], "dead")
        await until(lambda: brokers.leader(JOURNAL) == brokers.leader() == 1, 60)
        await until(lambda: brokers.leader("dead") == 2 and brokers.leader("queue@dead") == 2, 60)
        await brokers.with_client(lambda client: produce(client, 1))
        target = brokers.partition(2, "dead")
        assert target is not None
        log = target.log
        log.config = replace(log.config, producer_expiry_ms=1)
        append = log.append

        def append_and_kill(*args: object, **how: object) -> object:
            appended = append(*args, **how)  # type: ignore[arg-type]
            brokers.kill(1)  # Before the reply arrives.
            return appended

        log.append = append_and_kill  # type: ignore[method-assign,assignment]
        workers = Workers(brokers, queue_id)
        machine = brokers.world.add_node("worker")
        machine.start(partial(workers.work, action=SettleAction.REJECT))
        await until(lambda: log.log_end_offset == 1)
        log.append = append  # type: ignore[method-assign]
        await trio.sleep(30)  # Maintenance expires producers.
        brokers.start(1)
        await until(lambda: brokers.leader(JOURNAL) == 1, 60)
        await trio.sleep(30)
        workers.should_stop = True

        assert list(brokers.records(2, name="dead").values()) == [b"order 0"]

    live(6, main)
