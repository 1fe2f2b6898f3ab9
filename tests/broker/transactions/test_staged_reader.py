"""Tests of the reader of staged records."""

import pytest
import trio
from trio.testing import MockClock

from tests.broker.broker_requests import create_topic
from tests.broker.world import World, settle
from tests.simulation.transactions.requests import begin, replica, stage
from tidelog.broker.partitions.log_reader import SliceReader
from tidelog.broker.transactions.staged_reader import PieceReader, PiecesLostError
from tidelog.wire.errors import LeaderNotAvailableError
from tidelog.wire.messages.transactions import StagedPiece


async def test_a_piece_is_the_batches_of_its_producer_in_its_range(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        await create_topic(client)
        number = (await begin(client)).number
        staging = replica(broker, "staged@orders")
        for sequence in range(4):
            await stage(client, staging, number, b"mine", producer_id=1, sequence=sequence)
            await stage(client, staging, number, b"other", producer_id=2, sequence=sequence)
        reader = PieceReader(SliceReader(world.env), staging)
        piece = StagedPiece(1, 2, 5, 2)  # Without the first and the last one of this producer.

        await reader.wait_readable([piece])
        await reader.check([piece])
        batches, end = await reader.read(piece, 2)

        offsets = [header.base_offset for header, _ in batches]
        assert end == 5
        assert offsets == [2, 4]
        with pytest.raises(PiecesLostError, match="2 of 3 records"):
            await reader.check([StagedPiece(1, 2, 5, 3)])


async def test_a_piece_that_the_log_has_deleted_or_never_had_is_lost(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        await create_topic(client)
        number = (await begin(client)).number
        staging = replica(broker, "staged@orders")
        await stage(client, staging, number, b"a", b"b")
        await stage(client, staging, number, b"c", sequence=2)
        reader = PieceReader(SliceReader(world.env), staging)

        staging.log.delete_records(2, high_watermark=staging.high_watermark)
        with pytest.raises(PiecesLostError):
            await reader.check([StagedPiece(1, 0, 3, 3)])
        with pytest.raises(PiecesLostError, match="ends before offset 4"):
            await reader.wait_readable([StagedPiece(1, 2, 4, 2)])


async def test_reading_a_piece_waits_for_a_lagging_replica_up_to_a_timeout(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        await create_topic(client)
        number = (await begin(client)).number
        staging = replica(broker, "staged@orders")
        await stage(client, staging, number, b"a")
        staging.follow(2, 9)
        reader = PieceReader(SliceReader(world.env), staging)
        failures: list[Exception] = []

        async def wait() -> None:
            try:
                await reader.wait_readable([StagedPiece(1, 0, 2, 2)])
            except LeaderNotAvailableError as error:
                failures.append(error)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            await settle()
            assert not failures
            await world.pass_time(6)

        assert len(failures) == 1
