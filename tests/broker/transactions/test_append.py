"""Tests of the append of committed records to one partition."""

# Reads private state of brokers.
# pyright: reportPrivateUsage=false

import pytest
from trio.testing import MockClock

from tests.broker.broker_requests import create_topic
from tests.broker.world import World
from tests.logstore.logs import records_in
from tests.simulation.transactions.requests import begin, replica, stage
from tidelog.broker.server import Broker
from tidelog.broker.transactions.append import (
    CommitAppender,
    appended_count,
    sequence_of,
    uncommitted_max,
)
from tidelog.coordinator.metadata.transactions import TransactionCommitted
from tidelog.logstore.producer_state import STAGED_WINDOW_BATCHES, WINDOW_BATCHES
from tidelog.wire.batch.record_batch import SEQUENCE_END
from tidelog.wire.errors import NotLeaderError
from tidelog.wire.messages.transactions import StagedPiece
from tidelog.wire.transport.rpc import RpcConnection


def appending_of(world: World, broker: Broker) -> CommitAppender:
    assert broker._partitions is not None
    return CommitAppender(
        world.env,
        broker._partitions,
        broker._group_commit,
        partition=replica(broker),
        on_committed=lambda _: None,
        on_failed=lambda: None,
        feature_level=lambda: TransactionCommitted.NEW_LEVEL,
    )


async def append(world: World, broker: Broker, number: int, *, pieces: list[StagedPiece]) -> bool:
    """Append a commit by a new leader, and wait until it is committed."""
    appender = appending_of(world, broker)
    are_there = await appender.append_commit(number, pieces, replica(broker, "staged@orders"))
    while appender.in_flight:
        await appender.changed()
    return are_there


def values(broker: Broker) -> list[bytes]:
    log = replica(broker).log
    part = log.read(0, max_bytes=1 << 20, high_watermark=log.log_end_offset)
    return [] if part is None else list(records_in(part.read()).values())


async def stage_some(broker: Broker, client: RpcConnection) -> list[StagedPiece]:
    """Stage ten batches of two producers; return the pieces, the second producer first."""
    await create_topic(client)
    number = (await begin(client)).number
    staging = replica(broker, "staged@orders")
    for sequence in range(5):
        for producer in (1, 2):
            value = b"%d/%d" % (producer, sequence)
            await stage(client, staging, number, value, producer_id=producer, sequence=sequence)
    return [StagedPiece(2, 1, 10, 5), StagedPiece(1, 0, 9, 5)]


WANTED = [b"%d/%d" % (producer, place) for producer in (2, 1) for place in range(5)]


async def test_pieces_are_appended_in_order_and_once(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        pieces = await stage_some(broker, client)

        assert await append(world, broker, 3, pieces=pieces)
        assert await append(world, broker, 3, pieces=pieces)

        assert values(broker) == WANTED
        assert replica(broker).high_watermark == 10
        assert await append(world, broker, 4, pieces=pieces)
        assert values(broker) == WANTED * 2, "another commit of the same"


@pytest.mark.parametrize("done", range(1, 10))
async def test_a_new_leader_continues_the_append_of_a_commit(
    mock_clock: MockClock, done: int
) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        pieces = await stage_some(broker, client)
        # The records that the first leader appended are the beginning of the same commit.
        cut = min(done, 5)
        parts = [StagedPiece(2, 1, 2 * cut, cut)]
        if done > 5:
            parts.append(StagedPiece(1, 0, 2 * (done - 5) - 1, done - 5))
        assert await append(world, broker, 3, pieces=parts)
        assert len(values(broker)) == done

        assert await append(world, broker, 3, pieces=pieces)

        assert values(broker) == WANTED


async def test_a_deposed_leader_appends_no_commit(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        pieces = await stage_some(broker, client)
        appending = appending_of(world, broker)
        replica(broker).follow(2, 9)

        with pytest.raises(NotLeaderError):
            await appending.append_commit(3, pieces, replica(broker, "staged@orders"))

        assert replica(broker).log.log_end_offset == 0


async def test_a_commit_with_lost_records_is_not_appended(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        pieces = await stage_some(broker, client)
        lost = [pieces[0], StagedPiece(1, 0, 9, 6)]

        assert not await append(world, broker, 3, pieces=lost)

        assert replica(broker).log.log_end_offset == 0


@pytest.mark.parametrize(
    ("next_sequence", "count"),
    [
        (None, 0),
        (sequence_of(6, 100), 0),
        (sequence_of(7, 0), 0),
        (sequence_of(7, 1), 1),
        (sequence_of(7, 20), 20),
        (sequence_of(8, 3), 20),
    ],
)
def test_a_log_knows_the_progress_of_a_commit(next_sequence: int | None, count: int) -> None:
    assert appended_count(7, 20, next_sequence) == count


def test_the_last_record_of_the_last_commit_has_a_valid_sequence() -> None:
    assert sequence_of((1 << 31) - 1, (1 << 32) - 1) < SEQUENCE_END


def test_fewer_batches_are_uncommitted_than_a_log_keeps_of_a_producer() -> None:
    """Brokers below the level of the cluster keep a usual window of every producer."""
    assert uncommitted_max(TransactionCommitted.NEW_LEVEL - 1) < WINDOW_BATCHES
    assert uncommitted_max(TransactionCommitted.NEW_LEVEL) < STAGED_WINDOW_BATCHES
