"""A copy of a data directory cannot be a second broker."""

import pytest

from tests.coordinator.raft_clients import until
from tests.coordinator.test_node import Member, live_brokers, play, three
from tests.simulation.machine.world import World
from tidelog.wire.errors import DuplicateBrokerError
from tidelog.wire.messages.cluster import JoinRequest


def leading(members: list[Member]) -> Member:
    return next(member for member in members if member.node.raft.is_active_leader)


def test_a_copy_is_refused_while_the_original_lives_and_nobody_is_led_astray() -> None:
    async def story(world: World) -> None:
        members = await three(world)
        controller = leading(members)
        original = next(member for member in members if member is not controller)
        before = controller.node.addresses.address_of(original.node.node_id)
        join = JoinRequest(
            controller.node.raft.cluster_id, original.node.status.peer, "elsewhere", 8433
        )

        for asked in members:
            with pytest.raises(DuplicateBrokerError, match="copy of its data directory cannot"):
                await asked.node.command_client.join(join)

        for asked in members:
            assert asked.node.addresses.address_of(original.node.node_id) == before

    play(story)


def test_a_directory_that_was_moved_is_taken_when_the_old_session_is_over() -> None:
    async def story(world: World) -> None:
        members = await three(world)
        controller = leading(members)
        moved = next(member for member in members if member is not controller)
        node_id, peer = moved.node.node_id, moved.node.status.peer
        moved.machine.kill()
        await until(lambda: node_id not in live_brokers(controller))

        await controller.node.command_client.join(
            JoinRequest(controller.node.raft.cluster_id, peer, "elsewhere", 8433)
        )

        assert controller.node.addresses.address_of(node_id) == ("elsewhere", 8433)

    play(story)
