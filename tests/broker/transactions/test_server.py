"""Transactions of a broker: taken within limits, appended after whatever, dropped when over."""

# Looks into brokers, which nobody else has to.
# pyright: reportPrivateUsage=false

import pytest
from trio.testing import MockClock

from tests.broker.asking import create_topic, submit
from tests.broker.world import World, settle
from tests.simulation.transactions.stagers import begin, commit, replica, stage
from tidelog.broker.transactions import server as transaction_server
from tidelog.wire.errors import LeaderNotAvailableError, OverloadedError, RequestTimedOutError
from tidelog.wire.messages.transactions import (
    AbortTransactionRequest,
    CommitTransactionRequest,
    StagedPart,
)
from tidelog.wire.protocol import api


def _do_nothing(*args: object) -> None:
    del args


async def test_what_is_over_is_dropped_and_what_is_open_is_kept(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        topic_id = await create_topic(client)
        kept = (await begin(client, name="kept")).number
        staging = replica(broker, "staged@orders")
        first = (await begin(client, name="first")).number
        await stage(client, staging, first, b"dropped")
        piece = await stage(client, staging, kept, b"kept", producer_id=2)
        await stage(client, staging, first, b"dropped", sequence=1)

        await submit(
            client, api.ABORT_TRANSACTION, AbortTransactionRequest("first", 0, first)
        ).reply()
        assert staging.log.log_start_offset == 1
        await commit(client, kept, StagedPart(topic_id, 0, [piece]), name="kept")
        await settle()

        assert staging.log.log_start_offset == staging.log.log_end_offset == 3


async def test_what_is_open_survives_a_crash_and_can_be_committed_then(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.doomed_broker() as broker, world.client() as client:
        topic_id = await create_topic(client)
        number = (await begin(client)).number
        piece = await stage(client, replica(broker, "staged@orders"), number, b"a", b"b")
        other = (await begin(client, name="other")).number
        await stage(client, replica(broker, "staged@orders"), other, b"x", producer_id=2)
    world = world.after_crash()
    async with world.broker() as broker, world.client() as client:
        again = await begin(client)
        await submit(
            client, api.ABORT_TRANSACTION, AbortTransactionRequest("other", 0, other)
        ).reply()
        assert replica(broker, "staged@orders").log.log_start_offset == 0
        await commit(client, again.number, StagedPart(topic_id, 0, [piece]))

        assert again.number == number
        assert replica(broker).high_watermark == 2


async def test_a_commit_that_was_decided_before_a_crash_is_carried_out_after_it(
    mock_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(mock_clock)
    with monkeypatch.context() as held:
        held.setattr(transaction_server.TransactionServer, "_start_append", _do_nothing)
        async with world.doomed_broker() as broker, world.client() as client:
            topic_id = await create_topic(client)
            number = (await begin(client)).number
            piece = await stage(client, replica(broker, "staged@orders"), number, b"a", b"b")
            request = CommitTransactionRequest(
                "job", 0, number, [StagedPart(topic_id, 0, [piece])], 10
            )
            pending = submit(client, api.COMMIT_TRANSACTION, request)
            while not pending.is_answered:
                await world.pass_time(0.1)
            with pytest.raises(RequestTimedOutError, match="commit it again to know"):
                await pending.reply()
            assert replica(broker).log.log_end_offset == 0
    world = world.after_crash()
    async with world.broker() as broker, world.client() as client:
        request = CommitTransactionRequest("job", 0, number, [], 10_000)
        again = submit(client, api.COMMIT_TRANSACTION, request)
        while not again.is_answered:  # A broker that has just started may have to try again.
            await world.pass_time(0.1)

        assert (await again.reply()).was_committed
        assert replica(broker).high_watermark == 2
        await settle()
        assert replica(broker, "staged@orders").log.log_start_offset == 2


async def test_who_stages_too_much_is_told_to_wait(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with (
        world.broker(max_transaction_bytes_per_partition=1 << 20) as broker,
        world.client() as client,
    ):
        await create_topic(client)
        number = (await begin(client)).number
        staging = replica(broker, "staged@orders")
        for sequence in range(2):
            await stage(client, staging, number, bytes(600 << 10), sequence=sequence)

        with pytest.raises(OverloadedError, match="max_transaction_bytes_per_partition"):
            await stage(client, staging, number, b"more", sequence=2)


async def test_a_transaction_that_a_broker_has_not_heard_of_may_come_later(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        await create_topic(client)
        number = (await begin(client)).number

        with pytest.raises(LeaderNotAvailableError, match="not known here yet"):
            await stage(client, replica(broker, "staged@orders"), number + 1, b"a")
