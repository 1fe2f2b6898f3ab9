"""Tests of the transaction server: limits of staging, appends after crashes, and deletion."""

# Reads private state of brokers.
# pyright: reportPrivateUsage=false

from random import Random

import pytest
import trio
from trio.testing import MockClock

from tests.broker.broker_requests import create_topic, submit
from tests.broker.world import World
from tests.simulation.transactions.requests import begin, commit, replica, stage
from tidelog.broker.transactions import server as transaction_server

# Reads private state of brokers.
# pyright: reportPrivateUsage=false
from tidelog.broker.transactions.low_watermark import StagingLowWatermark
from tidelog.wire.errors import LeaderNotAvailableError, OverloadedError, RequestTimedOutError
from tidelog.wire.messages.transactions import (
    AbortTransactionRequest,
    CommitTransactionRequest,
    StagedPart,
)
from tidelog.wire.protocol import api


def _do_nothing(*args: object) -> None:
    del args


async def test_staged_records_of_ended_transactions_are_deleted_and_open_ones_kept(
    mock_clock: MockClock,
) -> None:
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
        await world.pass_time(transaction_server._DELETE_S)
        assert staging.log.log_start_offset == 1
        await commit(client, kept, StagedPart(topic_id, 0, [piece]), name="kept")
        while staging.log.log_start_offset == 1:
            await world.pass_time(0.1)

        assert staging.log.log_start_offset == staging.log.log_end_offset == 3


async def test_an_open_transaction_survives_a_crash_and_can_be_committed(
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


async def test_a_commit_decided_before_a_crash_is_appended_after_it(
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
        while not again.is_answered:  # A broker that has just started may have to retry.
            await world.pass_time(0.1)

        assert (await again.reply()).was_committed
        assert replica(broker).high_watermark == 2
        while replica(broker, "staged@orders").log.log_start_offset < 2:
            await world.pass_time(0.1)


async def test_a_new_leader_deletes_the_records_of_finished_transactions(
    mock_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The leader before it may have died first, and no later transaction may ever come."""
    world = World(mock_clock)
    with monkeypatch.context() as held:
        held.setattr(transaction_server.TransactionServer, "_delete_finished", _do_nothing)
        async with world.doomed_broker() as broker, world.client() as client:
            await create_topic(client)
            number = (await begin(client)).number
            await stage(client, replica(broker, "staged@orders"), number, b"aborted")
            request = AbortTransactionRequest("job", 0, number)
            await submit(client, api.ABORT_TRANSACTION, request).reply()
            assert replica(broker, "staged@orders").log.log_start_offset == 0
    world = world.after_crash()
    async with world.broker() as broker:
        staging = replica(broker, "staged@orders").log
        assert staging.log_end_offset == 1
        while staging.log_start_offset < staging.log_end_offset:
            await world.pass_time(0.1)


async def test_staging_above_the_limit_is_refused_until_a_transaction_ends(
    mock_clock: MockClock,
) -> None:
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

        refused = r"the limit is 1048576 \(max_transaction_bytes_per_partition\); commit or abort"
        with pytest.raises(OverloadedError, match=refused):
            await stage(client, staging, number, b"more", sequence=2)

        await submit(
            client, api.ABORT_TRANSACTION, AbortTransactionRequest("job", 0, number)
        ).reply()
        number = (await begin(client, 1)).number
        with trio.fail_after(90):
            while staging.log.size_bytes > 1 << 20:
                await world.pass_time(1)
        await stage(client, staging, number, b"more", producer_id=2)


async def test_staging_for_an_unknown_transaction_is_retriable(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        await create_topic(client)
        number = (await begin(client)).number

        with pytest.raises(LeaderNotAvailableError, match="not known here yet"):
            await stage(client, replica(broker, "staged@orders"), number + 1, b"a")


def test_staged_records_that_no_transaction_needs_are_below_the_low_watermark() -> None:
    watermark = StagingLowWatermark(leader_epoch=3, inherited_below=5)

    assert watermark.low_watermark([], log_start_offset=10, log_end_offset=90) == 90


def test_the_low_watermark_is_the_start_of_the_first_needed_transaction() -> None:
    watermark = StagingLowWatermark(leader_epoch=3, inherited_below=5)
    watermark.on_append(6, 20)
    watermark.on_append(5, 30)
    watermark.on_append(6, 40)

    assert watermark.low_watermark([5, 6], log_start_offset=10, log_end_offset=90) == 20
    assert watermark.low_watermark([5, 9], log_start_offset=20, log_end_offset=90) == 30
    assert watermark.low_watermark([9], log_start_offset=30, log_end_offset=90) == 90, (
        "the transaction staged elsewhere"
    )


def test_records_staged_under_earlier_leaders_are_kept_while_they_may_be_needed() -> None:
    watermark = StagingLowWatermark(leader_epoch=3, inherited_below=5)
    watermark.on_append(7, 80)

    assert watermark.low_watermark([4, 7], log_start_offset=10, log_end_offset=90) == 10
    assert watermark.low_watermark([7], log_start_offset=10, log_end_offset=90) == 80


@pytest.mark.parametrize("seed", range(20))
def test_no_needed_record_is_below_the_low_watermark(seed: int) -> None:
    random = Random(seed)
    staged: dict[int, list[int]] = {}
    needed: set[int] = set()
    number, start, end = 1, 0, 0
    watermark = StagingLowWatermark(leader_epoch=0, inherited_below=number)
    for _ in range(300):
        kind = random.choice(["begin", "stage", "stage", "stage", "close", "lead"])
        if kind == "begin":
            needed.add(number)
            number += 1
        elif kind == "stage" and needed:
            chosen = random.choice(sorted(needed))
            watermark.on_append(chosen, end)
            staged.setdefault(chosen, []).append(end)
            end += random.randint(1, 9)
        elif kind == "close" and needed:
            needed.discard(random.choice(sorted(needed)))
        elif kind == "lead":
            watermark = StagingLowWatermark(leader_epoch=0, inherited_below=number)
        offset = watermark.low_watermark(needed, log_start_offset=start, log_end_offset=end)
        assert start <= offset <= end
        start = offset
        assert all(first >= start for each in needed for first in staged.get(each, ()))
    assert watermark.low_watermark((), log_start_offset=start, log_end_offset=end) == end
