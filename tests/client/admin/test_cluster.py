"""Administration of the cluster through the client, executed by a real broker."""

import pytest
import trio
from msgspec.structs import replace
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.broker.world import World
from tests.client.clients import client_of
from tests.client.hostile_broker import HELLO, always, deceived_client
from tidelog.wire.errors import (
    InvalidConfigError,
    InvalidRequestError,
    InvalidTopicError,
    UnknownTopicError,
    UnsupportedVersionError,
)
from tidelog.wire.messages.cluster_admin import LeaderElected
from tidelog.wire.messages.features import OWN_LEVELS, NodeFeatures
from tidelog.wire.messages.handshake import ApiVersions
from tidelog.wire.protocol import api


async def test_a_single_broker_describes_its_cluster(autojump_clock: MockClock) -> None:
    world = World(autojump_clock)
    async with client_of(world) as client:
        await client.admin.create_topic("orders", 3)

        found = await client.admin.describe_cluster(with_partitions=True)

    (node,) = found.nodes
    assert (found.controller_id, found.partition_count, found.partitions) == (1, 3, [])
    assert (node.role, node.status, node.leader_count) == ("voter", "alive", 3)


async def test_leaders_of_a_topic_of_some_partitions_and_of_all_are_elected(
    autojump_clock: MockClock,
) -> None:
    world = World(autojump_clock)
    async with client_of(world) as client:
        await client.admin.create_topic("orders", 2)
        both = [LeaderElected("orders", number, 1, 1) for number in range(2)]

        assert await client.admin.elect_leaders("orders") == both
        assert await client.admin.elect_leaders([("orders", 1)]) == both[1:]
        assert await client.admin.elect_leaders() == []


async def test_electing_leaders_of_an_unknown_topic_fails(autojump_clock: MockClock) -> None:
    world = World(autojump_clock)
    async with client_of(world) as client:
        with pytest.raises(UnknownTopicError, match="there is no topic 'orders'"):
            await client.admin.elect_leaders("orders", accept_data_loss=True)


async def test_cluster_settings_are_altered_and_described(autojump_clock: MockClock) -> None:
    world = World(autojump_clock)
    async with client_of(world) as client:
        changed = await client.admin.alter_cluster(
            set={"reassignment_max_bytes_per_second": 20_000_000}
        )
        described = await client.admin.describe_cluster()
        reset = await client.admin.alter_cluster(reset=["reassignment_max_bytes_per_second"])

        with pytest.raises(InvalidConfigError, match="there is no cluster setting 'colour'"):
            await client.admin.alter_cluster(set={"colour": "red"})

    assert changed["reassignment_max_bytes_per_second"] == "20000000"
    assert described.config == changed
    assert reset["reassignment_max_bytes_per_second"] == "unlimited"


async def test_the_only_broker_can_neither_be_drained_nor_unregistered(
    autojump_clock: MockClock,
) -> None:
    world = World(autojump_clock)
    async with client_of(world) as client:
        with pytest.raises(InvalidRequestError, match="the last one that is not drained"):
            await client.admin.drain(1)
        with pytest.raises(InvalidRequestError, match="is alive"):
            await client.admin.unregister_broker(1)
        with pytest.raises(InvalidRequestError, match="there is no broker 2"):
            await client.admin.replace_broker(1, 2)
        await client.admin.end_drain(1)

        assert await client.admin.drain(1, plan_only=True) == []
        assert not await client.admin.unregister_broker(9)
        assert await client.admin.list_reassignments() == []


async def test_a_cluster_without_losses_has_no_events(autojump_clock: MockClock) -> None:
    world = World(autojump_clock)
    async with client_of(world) as client:
        assert await client.admin.cluster_events() == []
        assert await client.admin.acknowledge_events(up_to_id=7) == 0

        with pytest.raises(InvalidRequestError, match="no event 7: the cluster has no events"):
            await client.admin.acknowledge_events([7])


async def test_a_new_broker_has_the_newest_feature_level_and_keeps_it(
    autojump_clock: MockClock,
) -> None:
    world = World(autojump_clock)
    async with client_of(world) as client:
        while (found := await client.admin.describe_features()).level < found.newest_level:  # noqa: ASYNC110
            await trio.sleep(0.1)

        assert found == await client.admin.update_features(found.newest_level)
        with pytest.raises(InvalidRequestError, match="node 1 supports feature levels 0 to 7; cha"):
            await client.admin.update_features(8)
        with pytest.raises(InvalidRequestError, match="0 is not possible: the metadata has record"):
            await client.admin.update_features(0)

    newest = OWN_LEVELS.max_level
    assert (found.level, found.newest_level, found.obstacles) == (newest, newest, [])
    assert found.nodes == [NodeFeatures(1, OWN_LEVELS)]


async def test_a_broker_that_would_balance_the_load_instead_is_not_asked(
    autojump_clock: MockClock,
) -> None:
    async with deceived_client(autojump_clock) as (client, broker, _):
        older = [ApiVersions(each.key, each.min_version, 2) for each in api.APIS]
        broker.answer(api.HELLO, always(replace(HELLO, apis=older)))
        broker.break_connections()
        await wait_all_tasks_blocked()

        with pytest.raises(UnsupportedVersionError, match="version 2, and the request needs"):
            await client.admin.alter_replication_factor(None, 3)
        assert not broker.count(api.REASSIGN)


async def test_without_names_of_topics_no_topic_is_altered(autojump_clock: MockClock) -> None:
    world = World(autojump_clock)
    async with client_of(world) as client:
        await client.admin.create_topic("orders")

        with pytest.raises(InvalidTopicError, match="'orders' cannot have 2 replicas"):
            await client.admin.alter_replication_factor(None, 2)
        assert await client.admin.alter_replication_factor([], 2) == []
        assert await client.admin.alter_replication_factor(["orders"], 1) == []
