"""Client of several brokers: leader changes, crashes, hanging and unready brokers."""

import pytest
import trio
from trio.testing import MockClock

from tests.client.fake_cluster import FakeCluster, fronted_client, fronted_cluster
from tidelog.client.client import Client
from tidelog.client.cluster.cluster_client import ClusterClient
from tidelog.wire.errors import (
    LeaderNotAvailableError,
    NotControllerError,
    OverloadedError,
    UnknownPartitionError,
)
from tidelog.wire.messages.groups import ListGroupsReply, ListGroupsRequest
from tidelog.wire.messages.offset_ranges import (
    ListOffsetsReply,
    ListOffsetsRequest,
    PartitionOffsets,
)
from tidelog.wire.protocol import api


async def read_values(client: Client, count: int) -> set[bytes | None]:
    found: set[bytes | None] = set()
    async with client.consumer("orders", auto_offset_reset="earliest") as consumer:
        async for record in consumer:
            found.add(record.value)
            if len(found) == count:
                break
    return found


def lead(cluster: FakeCluster, node_id: int, epoch: int) -> None:
    """Make one node the leader of all partitions."""
    cluster.leaders = {0: (node_id, epoch), 1: (node_id, epoch)}


async def test_records_are_written_to_and_read_from_the_leader_of_each_partition(
    autojump_clock: MockClock,
) -> None:
    async with fronted_cluster(autojump_clock, [1, 2]) as cluster:
        cluster.leaders[1] = (2, 0)
        async with fronted_client(cluster) as client, client.producer() as producer:
            await producer.send("orders", b"a", partition=0)
            await producer.send("orders", b"b", partition=1)

            assert await read_values(client, 2) == {b"a", b"b"}

        assert api.FETCH in cluster.fronts[1].asked
        assert api.FETCH in cluster.fronts[2].asked


async def test_a_leader_change_is_followed_without_an_error(
    autojump_clock: MockClock,
) -> None:
    async with (
        fronted_cluster(autojump_clock, [1, 2]) as cluster,
        fronted_client(cluster) as client,
        client.producer() as producer,
        client.consumer("orders", auto_offset_reset="earliest") as consumer,
    ):
        for number in range(6):
            lead(cluster, 1 + number % 2, epoch=number)
            await producer.send("orders", b"%d" % number, partition=0)

            record = await anext(consumer.records())

            assert record.value == b"%d" % number


async def test_a_new_leader_is_found_soon_after_a_crash(autojump_clock: MockClock) -> None:
    async with (
        fronted_cluster(autojump_clock, [1, 2, 3]) as cluster,
        fronted_client(cluster) as client,
        client.producer() as producer,
        client.consumer("orders", auto_offset_reset="earliest") as consumer,
    ):
        await producer.send("orders", b"before", partition=0)
        await anext(consumer.records())
        cluster.fronts[1].stop()
        await trio.sleep(9)  # The partition has no leader until the cluster detects the failure.
        lead(cluster, 3, epoch=1)
        moved_at = trio.current_time()

        await producer.send("orders", b"after", partition=0)
        record = await anext(consumer.records())

        assert record.value == b"after"
        assert trio.current_time() - moved_at < 2.5


async def test_a_new_leader_is_found_soon_after_a_host_failure(
    autojump_clock: MockClock,
) -> None:
    async with (
        fronted_cluster(autojump_clock, [1, 2]) as cluster,
        fronted_client(cluster) as client,
        client.producer() as producer,
    ):
        await producer.send("orders", b"before", partition=0)
        cluster.fronts[1].is_frozen = True  # Attempts to connect hang for `connect_timeout`.
        cluster.fronts[1].break_connections()
        with trio.move_on_after(5):
            await producer.send("orders", b"during", partition=0)
        lead(cluster, 2, epoch=1)
        moved_at = trio.current_time()

        await producer.send("orders", b"after", partition=0)

        assert trio.current_time() - moved_at < 2.5


async def test_a_hanging_leader_is_left_when_another_is_elected(
    autojump_clock: MockClock,
) -> None:
    async with (
        fronted_cluster(autojump_clock, [1, 2]) as cluster,
        fronted_client(cluster) as client,
        client.producer() as producer,
        client.consumer("orders", auto_offset_reset="earliest") as consumer,
    ):
        await producer.send("orders", b"before", partition=0)
        await anext(consumer.records())
        cluster.fronts[1].is_frozen = True
        with trio.move_on_after(9):
            await producer.send("orders", b"during", partition=0)
        lead(cluster, 2, epoch=1)
        moved_at = trio.current_time()

        during = await anext(consumer.records())
        await producer.send("orders", b"after", partition=0)
        after = await anext(consumer.records())

        assert (during.value, after.value) == (b"during", b"after")
        assert trio.current_time() - moved_at < 5


async def test_a_slow_reply_of_the_current_leader_is_waited_for(
    autojump_clock: MockClock,
) -> None:
    async with (
        fronted_cluster(autojump_clock, [1, 2]) as cluster,
        fronted_client(cluster) as client,
        client.producer() as producer,
    ):
        await producer.send("orders", b"before", partition=0)
        cluster.world.work.hold_syncs()

        async def sync_late() -> None:
            await trio.sleep(20)
            cluster.world.work.let_all_sync()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(sync_late)
            receipt = await producer.send("orders", b"after", partition=0)

        assert receipt.offset == 1
        assert [asked.key for asked in cluster.fronts[1].asked].count(api.ApiKey.PRODUCE) == 2


async def test_a_leader_that_does_not_know_a_partition_yet_is_asked_again(
    autojump_clock: MockClock,
) -> None:
    async with fronted_cluster(autojump_clock, [1, 2]) as cluster:
        cluster.leaders[1] = (2, 0)
        async with (
            fronted_client(cluster, [1]) as client,
            client.producer() as producer,
            trio.open_nursery() as nursery,
        ):
            await producer.send("orders", b"a", partition=1)
            cluster.fronts[2].refused = {api.ApiKey.PRODUCE, api.ApiKey.FETCH}
            cluster.fronts[2].refusal = UnknownPartitionError("there is no partition 1")

            async def hear_of_it() -> None:
                await trio.sleep(3)
                cluster.fronts[2].refusal = None

            nursery.start_soon(hear_of_it)
            await producer.send("orders", b"b", partition=1)

            cluster.fronts[2].refusal = UnknownPartitionError("there is no partition 1")
            nursery.start_soon(hear_of_it)
            assert await read_values(client, 2) == {b"a", b"b"}


async def test_list_offsets_of_a_new_partition_is_retried(autojump_clock: MockClock) -> None:
    async with fronted_cluster(autojump_clock) as cluster:
        refusals = [UnknownPartitionError("there is no partition 1").to_wire()] * 3

        async def list_offsets(node_id: int, message: object) -> object:
            del node_id
            await trio.lowlevel.checkpoint()
            assert isinstance(message, ListOffsetsRequest)
            error = refusals.pop() if refusals else None
            return ListOffsetsReply(
                [PartitionOffsets(0, 7, 7, error=error) for _ in message.partitions]
            )

        cluster.answers[api.LIST_OFFSETS] = list_offsets  # type: ignore[index]
        async with (
            fronted_client(cluster) as client,
            client.consumer("orders", partitions=[1]) as consumer,
        ):
            assert await consumer.end_offsets() == {("orders", 1): 7}
        assert not refusals


async def test_a_silent_seed_costs_only_its_head_start(
    autojump_clock: MockClock,
) -> None:
    async with fronted_cluster(autojump_clock, [1, 2]) as cluster:
        cluster.fronts[1].is_frozen = True
        started = trio.current_time()

        async with fronted_client(cluster, [1, 2]) as client:
            assert await client.admin.list_topics() == ["orders"]

        assert trio.current_time() - started < 1


async def test_a_broker_that_is_not_ready_is_waited_for(autojump_clock: MockClock) -> None:
    async with fronted_cluster(autojump_clock) as cluster, trio.open_nursery() as nursery:
        front = cluster.fronts[1]
        front.refusal = LeaderNotAvailableError("the cluster is being formed")

        async def make_ready() -> None:
            await trio.sleep(5)
            front.refusal = None

        nursery.start_soon(make_ready)

        async with fronted_client(cluster) as client:
            assert await client.admin.list_topics() == ["orders"]


async def test_a_broker_that_stays_unready_fails_the_start(autojump_clock: MockClock) -> None:
    async with fronted_cluster(autojump_clock) as cluster:
        cluster.fronts[1].refusal = OverloadedError("for ever")

        with pytest.raises(OverloadedError, match="for ever"):
            async with fronted_client(cluster, request_timeout=10):
                pass


async def test_the_controller_is_followed_from_node_to_node(autojump_clock: MockClock) -> None:
    async with fronted_cluster(autojump_clock, [1, 2, 3]) as cluster:

        async def list_groups(node_id: int, message: object) -> object:
            await trio.lowlevel.checkpoint()
            assert isinstance(message, ListGroupsRequest)
            if node_id != cluster.controller_id:
                raise NotControllerError(f"node {node_id} does not decide")
            return ListGroupsReply([])

        cluster.answers[api.LIST_GROUPS] = list_groups  # type: ignore[index]
        async with fronted_client(cluster) as client:
            asking: ClusterClient = vars(client)["_cluster"]

            async def ask() -> float:
                started = trio.current_time()
                request = ListGroupsRequest()
                await asking.call_controller(api.LIST_GROUPS, request, is_repeatable=True)
                return trio.current_time() - started

            assert await ask() < 1
            cluster.controller_id = 2
            assert await ask() < 1
            cluster.fronts[2].stop()
            cluster.controller_id = 3
            assert await ask() < 2
            cluster.controller_id = None
            with trio.move_on_after(5):
                await ask()
            cluster.controller_id = 1
            assert await ask() < 2
