"""Tests of transactions over the wire, with one broker."""

# Reads private state of a broker.
# pyright: reportPrivateUsage=false

import pytest
from trio.testing import MockClock

from tests.broker.broker_requests import create_topic, delete_topic, fetch, submit
from tests.broker.world import World
from tests.simulation.transactions.requests import begin, commit, replica, stage
from tidelog.broker.handlers import feature_level
from tidelog.broker.server import Broker
from tidelog.broker.transactions import server
from tidelog.coordinator.metadata import transaction_commands
from tidelog.wire.errors import (
    InvalidRequestError,
    InvalidTopicError,
    StagedRecordsLostError,
    StaleTransactionError,
    TransactionGoneError,
    UnknownTopicError,
)
from tidelog.wire.messages.features import OWN_LEVELS
from tidelog.wire.messages.metadata import MetadataRequest
from tidelog.wire.messages.transactions import (
    NAMES_MAX,
    AbortTransactionRequest,
    ForgetTransactionsRequest,
    ListTransactionsRequest,
    StagedPart,
    StagedPiece,
    TransactionStatus,
)
from tidelog.wire.protocol import api


async def test_a_committed_transaction_is_readable_when_the_reply_arrives(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        topic_id = await create_topic(client)
        begun = await begin(client)
        staging = replica(broker, "staged@orders")
        piece = await stage(client, staging, begun.number, b"a", b"b")
        assert (begun.status, begun.topic_ids) == (TransactionStatus.OPEN, [topic_id])
        assert replica(broker).high_watermark == 0

        reply = await commit(client, begun.number, StagedPart(topic_id, 0, [piece]))
        again = await commit(client, begun.number)

        assert (reply.was_committed, again.was_committed) == (False, True)
        assert replica(broker).high_watermark == 2
        assert (await begin(client)).status == TransactionStatus.COMPLETE


async def test_a_staging_log_has_metadata_by_its_name_and_cannot_be_fetched(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        await create_topic(client)
        before = await submit(client, api.METADATA, MetadataRequest(["staged@orders"])).reply()
        begun = await begin(client)
        after = await submit(client, api.METADATA, MetadataRequest(["staged@orders"])).reply()
        staging = replica(broker, "staged@orders")
        await stage(client, staging, begun.number, b"a")

        assert before.topics[0].error is not None
        assert "has no staging log" in before.topics[0].error.message
        assert after.topics[0].topic_id == staging.topic_id
        assert after.topics[0].partitions[0].leader_id == 1
        with pytest.raises(InvalidTopicError, match="only brokers read"):
            await fetch(client, staging.topic_id)


async def test_staging_for_an_ended_transaction_or_outside_a_staging_log_is_refused(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        await create_topic(client)
        number = (await begin(client)).number
        with pytest.raises(InvalidTopicError, match="staging logs only"):
            await stage(client, replica(broker), number, b"a")
        aborted = await submit(
            client, api.ABORT_TRANSACTION, AbortTransactionRequest("job", 0, number)
        ).reply()

        assert not aborted.is_committed
        with pytest.raises(TransactionGoneError, match="is over"):
            await stage(client, replica(broker, "staged@orders"), number, b"a")
        with pytest.raises(TransactionGoneError, match="begin and stage again"):
            await commit(client, number)


async def test_a_commit_of_missing_pieces_reports_lost_records(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        topic_id = await create_topic(client)
        number = (await begin(client)).number
        await stage(client, replica(broker, "staged@orders"), number, b"a", b"b")
        wrong = StagedPart(topic_id, 0, [StagedPiece(1, 0, 9, 3)])

        with pytest.raises(StagedRecordsLostError):
            await commit(client, number, wrong)

        assert replica(broker).log.log_end_offset == 0, "nothing of it was appended"
        assert world.told("staged_records_lost")
        number = (await begin(client, 1)).number
        piece = await stage(client, replica(broker, "staged@orders"), number, b"c", producer_id=2)
        await commit(client, number, StagedPart(topic_id, 0, [piece]), transaction_id=1)
        assert replica(broker).high_watermark == 1


async def test_transactions_are_listed_with_the_open_and_the_last_one(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        await create_topic(client)
        await commit(client, (await begin(client, 7, name="b")).number, transaction_id=7, name="b")
        await begin(client, 8, name="b")
        await begin(client, 1, name="a")

        reply = await submit(client, api.LIST_TRANSACTIONS, ListTransactionsRequest(None)).reply()
        some = await submit(
            client, api.LIST_TRANSACTIONS, ListTransactionsRequest(["a", "c"])
        ).reply()

        assert [
            (each.name, each.open_transaction_id, each.last_transaction_id, each.last_status)
            for each in reply.transactions
        ] == [("a", 1, None, None), ("b", 8, 7, TransactionStatus.COMPLETE)]
        assert [each.name for each in some.transactions] == ["a"]


async def until_level(world: World, broker: Broker) -> None:
    assert broker._cluster is not None
    while not broker._cluster.metadata.state.feature_level:
        await world.pass_time(0.1)


async def test_names_that_are_not_in_use_are_forgotten(
    mock_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        await until_level(world, broker)
        await create_topic(client)
        for name in ("a", "b"):
            await commit(
                client, (await begin(client, 7, name=name)).number, transaction_id=7, name=name
            )
        await begin(client, 8, name="b")
        monkeypatch.setattr(feature_level, "FORGET_NAMES_LEVEL", OWN_LEVELS.max_level + 1)
        request = ForgetTransactionsRequest(["a", "b"], 0)
        with pytest.raises(InvalidRequestError, match="feature level"):
            await submit(client, api.FORGET_TRANSACTIONS, request).reply()
        monkeypatch.undo()
        monkeypatch.setattr(transaction_commands, "UNUSED_MS_MIN", 0)

        reply = await submit(client, api.FORGET_TRANSACTIONS, request).reply()
        listed = await submit(client, api.LIST_TRANSACTIONS, ListTransactionsRequest(None)).reply()

        first, second = reply.results
        assert first.error is None
        assert second.error is not None
        assert "its transaction 8 is open" in second.error.message
        assert [each.name for each in listed.transactions] == ["b"]
        assert (await begin(client, 7, name="a")).status == TransactionStatus.OPEN


async def test_the_broker_logs_once_that_few_names_are_left(
    mock_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "NAMES_WARNED", 10)
    monkeypatch.setattr(transaction_commands, "UNUSED_MS_MIN", 0)
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        await until_level(world, broker)
        await create_topic(client)

        async def use(names: range) -> None:
            for number in names:
                name = f"job-{number}"
                await commit(client, (await begin(client, name=name)).number, name=name)

        await use(range(9))
        assert not world.told("transaction_names_many")
        await use(range(9, 12))
        (warning,) = world.told("transaction_names_many")
        assert (warning["count"], warning["limit"]) == (10, NAMES_MAX)

        names = [f"job-{number}" for number in range(4)]
        await submit(client, api.FORGET_TRANSACTIONS, ForgetTransactionsRequest(names, 0)).reply()
        await use(range(4))

        assert len(world.told("transaction_names_many")) == 2


async def test_a_commit_does_not_wait_for_a_deleted_topic(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        topic_id = await create_topic(client)
        number = (await begin(client)).number
        piece = await stage(client, replica(broker, "staged@orders"), number, b"a")
        await delete_topic(client)

        with pytest.raises(UnknownTopicError):
            await commit(client, number, StagedPart(topic_id, 0, [piece]))
        await create_topic(client, "other")
        await begin(client, 5, "other")
        with pytest.raises(StaleTransactionError):
            await begin(client, 4, "other")
