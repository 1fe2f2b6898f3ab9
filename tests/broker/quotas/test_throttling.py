"""Throttling by a whole broker: which requests wait, for how long, and what the replies say."""

# Reads private state of brokers.
# pyright: reportPrivateUsage=false

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
import trio
from trio.testing import MockClock

from tests.broker.broker_requests import (
    batch_of,
    create_topic,
    submit,
    submit_fetch,
    submit_produce,
)
from tests.broker.world import World, settle
from tidelog.broker.requests.identity import ClientIdentity
from tidelog.wire.config.quota_rates import QuotaRate
from tidelog.wire.errors import (
    ErrorCode,
    InvalidRequestError,
    QuotaExceededError,
    ThrottledError,
)
from tidelog.wire.messages.metadata import MetadataRequest
from tidelog.wire.messages.queue_admin import CreateQueueRequest, CreateQueuesRequest
from tidelog.wire.messages.quotas import (
    AlterQuotasRequest,
    ListQuotasReply,
    ListQuotasRequest,
)
from tidelog.wire.messages.topics import AddPartitionsRequest
from tidelog.wire.protocol import api
from tidelog.wire.security.principal import Principal, PrincipalKind
from tidelog.wire.transport.rpc import RpcConnection

KiB = 1024
MiB = 1024 * KiB
BATCH = batch_of(bytes(100 * KiB))


async def set_quotas(
    client: RpcConnection, principal: str = "anonymous", **values: int
) -> dict[str, int]:
    """Set quotas of a principal; return all of its quotas."""
    request = AlterQuotasRequest(principal, values)
    return (await submit(client, api.ALTER_QUOTAS, request).reply()).values


@asynccontextmanager
async def served(clock: MockClock) -> AsyncGenerator[tuple[World, RpcConnection]]:
    """Run a broker with one client."""
    world = World(clock)
    async with world.broker(), world.client() as client:
        await world.pass_time(1)  # The controller sets the first feature level.
        yield world, client


async def test_a_produce_beyond_its_rate_is_answered_at_once_and_the_next_one_waits(
    mock_clock: MockClock,
) -> None:
    async with served(mock_clock) as (world, client):
        topic_id = await create_topic(client)
        await set_quotas(client, produce_bytes_per_s=10 * KiB)

        first = submit_produce(client, topic_id, BATCH)
        second = submit_produce(client, topic_id, BATCH)
        await settle()

        assert first.is_answered
        assert not second.is_answered
        assert 8.5 < client.throttled_until(QuotaRate.PRODUCE_BYTES) - trio.current_time() < 9.5
        await world.pass_time(5)
        assert not second.is_answered
        for _ in range(5):
            await world.pass_time(1)
        assert second.is_answered


async def test_a_throttled_producer_keeps_reading_metadata_and_records_on_another_connection(
    mock_clock: MockClock,
) -> None:
    async with served(mock_clock) as (world, client), world.client() as reader:
        topic_id = await create_topic(client)
        await set_quotas(client, produce_bytes_per_s=10 * KiB)
        submit_produce(client, topic_id, BATCH)
        await settle()

        metadata = submit(reader, api.METADATA, MetadataRequest(None))
        fetch = submit_fetch(reader, [(topic_id, 0, 0)])
        produce = submit_produce(reader, topic_id, BATCH)
        await settle()

        assert metadata.is_answered
        assert fetch.is_answered
        assert not produce.is_answered


async def test_a_fetch_beyond_its_rate_delays_the_next_fetch(mock_clock: MockClock) -> None:
    async with served(mock_clock) as (world, client):
        topic_id = await create_topic(client)
        await submit_produce(client, topic_id, BATCH).reply()
        await set_quotas(client, fetch_bytes_per_s=50 * KiB)

        first = submit_fetch(client, [(topic_id, 0, 0)])
        await settle()
        assert first.is_answered
        second = submit_fetch(client, [(topic_id, 0, 0)])
        await settle()

        assert not second.is_answered
        assert client.throttled_until(QuotaRate.FETCH_BYTES) > trio.current_time()
        for _ in range(3):
            await world.pass_time(1)
        assert second.is_answered


async def test_many_connections_of_a_principal_do_not_exceed_its_rate(
    mock_clock: MockClock,
) -> None:
    async with served(mock_clock) as (world, client), trio.open_nursery() as nursery:
        await set_quotas(client, requests_per_s=10)
        answered_count = 0

        async def flood() -> None:
            nonlocal answered_count
            async with world.client() as other:
                while True:
                    await submit(other, api.METADATA, MetadataRequest(None)).reply()
                    answered_count += 1

        for _ in range(20):
            nursery.start_soon(flood)
        for _ in range(200):
            await world.pass_time(0.05)

        assert 90 <= answered_count <= 115
        nursery.cancel_scope.cancel()


async def test_nodes_are_never_throttled(mock_clock: MockClock) -> None:
    async with served(mock_clock) as (world, client):
        await set_quotas(client, "default", requests_per_s=1)
        async with world.node(2) as node:
            replies = [submit(node, api.METADATA, MetadataRequest(None)) for _ in range(50)]
            await settle()

            assert all(reply.is_answered for reply in replies)


async def test_with_over_quota_error_a_request_gets_the_time_of_its_retry(
    mock_clock: MockClock,
) -> None:
    async with served(mock_clock) as (world, client):
        topic_id = await create_topic(client)
        await set_quotas(client, produce_bytes_per_s=10 * KiB, over_quota=1)
        await submit_produce(client, topic_id, BATCH).reply()

        with pytest.raises(ThrottledError, match="produce_bytes_per_s of anonymous") as refused:
            await submit_produce(client, topic_id, BATCH).reply()

        assert refused.value.retry_after_ms is not None
        await world.pass_time(refused.value.retry_after_ms / 1000)
        (result,) = (await submit_produce(client, topic_id, BATCH).reply()).results
        assert result.error is None
        assert not world.told("request_refused")


async def test_requests_that_wait_for_a_quota_keep_no_memory_that_others_need(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    sizes = {"queued_max_request_bytes": 4 * MiB, "socket_request_max_bytes": 2 * MiB}
    async with world.broker(**sizes) as broker, AsyncExitStack() as open_:
        await world.pass_time(1)
        other = await open_.enter_async_context(world.client())
        topic_id = await create_topic(other)
        await set_quotas(other, "user:alice", produce_bytes_per_s=1 * KiB)
        alice = ClientIdentity(Principal(PrincipalKind.USER, "alice"))
        for _ in range(8):
            known = set(broker._acceptor.connections)
            client = await open_.enter_async_context(world.client())
            for connection in set(broker._acceptor.connections) - known:
                connection.authenticated(alice)
            submit_produce(client, topic_id, batch_of(bytes(900 * KiB)))
        await settle()

        produced = submit_produce(other, topic_id, batch_of(bytes(900 * KiB)))
        for _ in range(5):
            await world.pass_time(1)

        assert produced.is_answered


async def test_a_quota_that_is_removed_releases_held_requests(mock_clock: MockClock) -> None:
    async with served(mock_clock) as (world, client), world.client() as admin:
        topic_id = await create_topic(client)
        await set_quotas(client, produce_bytes_per_s=10)
        submit_produce(client, topic_id, BATCH)
        held = submit_produce(client, topic_id, BATCH)
        await settle()
        assert not held.is_answered

        removal = AlterQuotasRequest("anonymous", {}, ["*"])
        assert (await submit(admin, api.ALTER_QUOTAS, removal).reply()).values == {}
        await world.pass_time(1.1)

        assert held.is_answered


async def test_counts_of_partitions_and_queues_are_refused_with_limit_and_use(
    mock_clock: MockClock,
) -> None:
    async with served(mock_clock) as (_, client):
        await set_quotas(client, partitions_max=4, queues_max=1)
        await create_topic(client, "a", 3)

        with pytest.raises(QuotaExceededError, match="partitions_max of anonymous is 4") as full:
            await create_topic(client, "b", 2)
        with pytest.raises(QuotaExceededError):
            await submit(client, api.ADD_PARTITIONS, AddPartitionsRequest("a", 5)).reply()

        assert (full.value.limit, full.value.used) == (4, 3)
        await create_topic(client, "c", 1)
        await set_quotas(client, partitions_max=100)
        queue = CreateQueueRequest("q", "q", None, [], False, {}, {})
        await submit(client, api.CREATE_QUEUE, queue).reply()
        other = CreateQueueRequest("r", "r", None, [], False, {}, {})
        with pytest.raises(QuotaExceededError, match="queues_max of anonymous is 1"):
            await submit(client, api.CREATE_QUEUE, other).reply()
        await set_quotas(client, queues_max=3)
        more = [CreateQueueRequest(name, name, None, [], False, {}, {}) for name in "stu"]
        created = await submit(client, api.CREATE_QUEUES, CreateQueuesRequest(more)).reply()
        codes = [each.error and each.error.code for each in created.results]
        assert codes == [None, None, ErrorCode.QUOTA_EXCEEDED]


async def test_connections_beyond_their_quota_are_refused_and_ended(mock_clock: MockClock) -> None:
    async with served(mock_clock) as (world, client):
        await set_quotas(client, connections_max=2)
        await submit(client, api.METADATA, MetadataRequest(None)).reply()
        async with world.client() as second, world.client() as third:
            await submit(second, api.METADATA, MetadataRequest(None)).reply()

            with pytest.raises(QuotaExceededError, match="connections_max of anonymous is 2"):
                await submit(third, api.METADATA, MetadataRequest(None)).reply()
            await settle()
            assert third.is_lost
        await settle()  # The places of both are free again.
        async with world.client() as fourth:
            await submit(fourth, api.METADATA, MetadataRequest(None)).reply()


async def test_topics_beyond_the_quota_of_storage_take_no_records(mock_clock: MockClock) -> None:
    async with served(mock_clock) as (world, client):
        topic_id = await create_topic(client)
        await set_quotas(client, storage_bytes_max=150 * KiB)
        for _ in range(2):
            (result,) = (await submit_produce(client, topic_id, BATCH).reply()).results
            assert result.error is None
        for _ in range(10):
            await world.pass_time(1)

        (result,) = (await submit_produce(client, topic_id, BATCH).reply()).results

        assert result.error is not None
        assert "storage_bytes_max of anonymous is 153,600" in result.error.message
        await set_quotas(client, storage_bytes_max=10**9)
        for _ in range(5):
            await world.pass_time(1)
        (result,) = (await submit_produce(client, topic_id, BATCH).reply()).results
        assert result.error is None


async def test_a_list_has_quotas_and_their_use(mock_clock: MockClock) -> None:
    async with served(mock_clock) as (world, client):
        topic_id = await create_topic(client, partitions=2)
        await set_quotas(client, "default", produce_bytes_per_s=20 * KiB, partitions_max=10)
        await submit_produce(client, topic_id, BATCH).reply()
        for _ in range(2):
            await world.pass_time(0.5)

        reply: ListQuotasReply = await submit(
            client, api.LIST_QUOTAS, ListQuotasRequest(None)
        ).reply()

        default, anonymous = reply.quotas
        assert (default.principal, default.is_own) == ("default", True)
        assert (anonymous.principal, anonymous.is_own) == ("anonymous", False)
        assert anonymous.values == default.values
        assert anonymous.use["partitions_max"] == 2
        assert anonymous.use["connections_max"] == 1
        assert anonymous.throttled_ms > 0


async def test_one_line_a_minute_says_which_principal_was_throttled(mock_clock: MockClock) -> None:
    async with served(mock_clock) as (world, client):
        topic_id = await create_topic(client)
        await set_quotas(client, produce_bytes_per_s=5 * KiB)
        for _ in range(3):
            submit_produce(client, topic_id, BATCH)

        for _ in range(65):
            await world.pass_time(1)

        (line,) = world.told("principal_throttled")
        assert line["principal"] == "anonymous"
        assert line["quota"] == "produce_bytes_per_s"
        percent = line["percent"]
        assert isinstance(percent, int)
        assert 80 <= percent <= 100


@pytest.mark.parametrize(
    ("principal", "values", "message"),
    [
        ("alice", {}, "is no principal"),
        ("node:1", {}, "never throttled"),
        ("user:alice", {"produce_bytes": 1}, "there is no quota 'produce_bytes'"),
        ("user:alice", {"busy_ms_per_s": 1001}, "busy_ms_per_s is 1001, it must be 1 to 1000"),
        ("user:alice", {"requests_per_s": 0}, "requests_per_s is 0"),
    ],
)
async def test_illegal_quotas_are_refused(
    principal: str, values: dict[str, int], message: str, mock_clock: MockClock
) -> None:
    async with served(mock_clock) as (_, client):
        with pytest.raises(InvalidRequestError, match=message):
            await set_quotas(client, principal, **values)
