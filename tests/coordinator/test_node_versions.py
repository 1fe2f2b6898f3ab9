"""Nodes of versions with and without feature levels in one cluster."""

import pytest

from tests.coordinator.raft_clients import until
from tests.coordinator.test_node import Member, leading, learners, play, three, voters
from tests.simulation.machine.world import World
from tidelog.coordinator import node
from tidelog.coordinator.controller import broker_lifecycle
from tidelog.coordinator.metadata.feature_commands import obstacles
from tidelog.wire.errors import InvalidRequestError, UnsupportedVersionError
from tidelog.wire.messages.features import OWN_LEVELS, NodeFeatures

NODES = (1, 2, 3)
LEVELS = OWN_LEVELS
NEWEST = OWN_LEVELS.max_level


def run_older_version(patched: pytest.MonkeyPatch) -> None:
    """Let all nodes report no feature levels from now on, as versions without any."""
    patched.setattr(node, "OWN_LEVELS", None)
    patched.setattr(broker_lifecycle, "OWN_LEVELS", None)


def level_of(member: Member) -> int:
    return member.node.metadata.state.feature_level


def test_a_new_cluster_begins_at_the_newest_level_and_refuses_older_nodes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story(world: World) -> None:
        members = await three(world)
        await until(lambda: [level_of(member) for member in members] == [NEWEST] * 3)
        newer = Member(world, 4, (1, 4))
        newer.start()
        await until(lambda: newer.cluster is not None and level_of(newer) == NEWEST)
        run_older_version(monkeypatch)
        older = Member(world, 5, (1, 5))

        older.start()
        await until(lambda: older.error is not None)

        assert isinstance(older.error, UnsupportedVersionError)
        wanted = (
            f"node 5 supports feature level 0 alone, and the cluster has feature level {NEWEST}"
        )
        assert wanted in str(older.error)
        assert not {4, 5} & {*voters(members[0])}
        assert learners(members[0]) == [4]

    play(story)


def test_the_level_rises_by_request_when_the_last_node_has_reported_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story(world: World) -> None:
        with monkeypatch.context() as patched:
            run_older_version(patched)
            members = await three(world)
            controller = leading(members).node.controller
            found = await controller.update_features(None)
            assert (found.level, found.newest_level) == (0, NEWEST)
            assert found.nodes == [NodeFeatures(node_id, None) for node_id in NODES]
            assert len(found.obstacles) == 3
            with pytest.raises(InvalidRequestError, match="node 1 runs a version without feature"):
                await controller.update_features(NEWEST)

        state = leading(members).node.metadata
        await until(lambda: not obstacles(state.state, NODES, NEWEST))
        assert level_of(members[0]) == 0, "it began with older nodes: no node may decide that"
        found = await controller.update_features(NEWEST)

        assert (found.level, found.obstacles) == (NEWEST, [])
        assert found.nodes == [NodeFeatures(node_id, LEVELS) for node_id in NODES]
        await until(lambda: [level_of(member) for member in members] == [NEWEST] * 3)

    play(story)
