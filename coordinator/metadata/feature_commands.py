"""Commands about the feature level of a cluster, and the levels of its nodes (KIP-584).

Pure: no clock, no I/O. The level rises only when all nodes know it. It falls only to a level that
is enough for all records so far: nodes of that level must be able to apply the log.
"""

from collections.abc import Collection, Sequence
from typing import Final

from tidelog.coordinator.metadata.commands import CommandOutcome, Done, SetFeatureLevel
from tidelog.coordinator.metadata.records import FeatureLevelSet
from tidelog.coordinator.metadata.state import ClusterState
from tidelog.wire.errors import InvalidRequestError, UnsupportedVersionError
from tidelog.wire.messages.features import NodeFeatures, SupportedLevels

_WITHOUT_LEVELS: Final = SupportedLevels(0, 0)
"""The levels of a version that reports none."""


def handle_feature_command(state: ClusterState, command: SetFeatureLevel) -> CommandOutcome:
    """Return the outcome of a change of the feature level.

    Raises:
        InvalidRequestError: A node does not know the level, or a record needs a higher one.
    """
    level = command.level
    if level == state.feature_level and not state.is_first_level_open:
        return CommandOutcome([], Done())
    if level < state.used_level:
        raise InvalidRequestError(
            f"feature level {level} is not possible: the metadata has records of level"
            f" {state.used_level}, which versions of level {level} cannot read; the level stays"
            f" {state.feature_level}"
        )
    found = obstacles(state, command.member_ids, level)
    if found:
        raise InvalidRequestError(
            f"feature level {level} is not possible: {'; '.join(found)}; the level stays"
            f" {state.feature_level}"
        )
    return CommandOutcome([FeatureLevelSet(level)], Done())


def node_features(state: ClusterState, member_ids: Collection[int]) -> list[NodeFeatures]:
    """Return the feature levels of all members and registered brokers, by node id."""
    found: list[NodeFeatures] = []
    for node_id in sorted({*member_ids, *state.brokers}):
        broker = state.brokers.get(node_id)
        found.append(NodeFeatures(node_id, None if broker is None else broker.supported_levels))
    return found


def obstacles(state: ClusterState, member_ids: Collection[int], level: int) -> Sequence[str]:
    """Return why a feature level is not possible, one line for each node that does not know it.

    Args:
        state: The state of the controller.
        member_ids: The nodes that get the metadata log, registered or not.
        level: The wanted level.
    """
    found: list[str] = []
    for each in node_features(state, member_ids):
        name = f"node {each.node_id}"
        if each.node_id not in state.brokers:
            found.append(f"{name} has not registered; start it")
        elif each.supported is None and level > 0:
            found.append(f"{name} runs a version without feature levels; upgrade it")
        elif not _supports(each.supported, level):
            found.append(f"{name} supports {levels_text(each.supported)}; change its version")
    return found


def first_level(state: ClusterState, member_ids: Collection[int]) -> int | None:
    """Return the first feature level of a new cluster: the highest that all its nodes know.

    `None` until all members have registered, and for a cluster that has a level, or whose first
    nodes did not know any.
    """
    if not state.is_first_level_open or not state.brokers.keys() >= set(member_ids):
        return None
    supported = [each.supported_levels or _WITHOUT_LEVELS for each in state.brokers.values()]
    return min((each.max_level for each in supported), default=None)


def check_node(state: ClusterState, node_id: int, supported: SupportedLevels | None) -> None:
    """Check that a node that wants to join or to register knows the feature level.

    Raises:
        UnsupportedVersionError: It does not; the text names the level that it needs.
    """
    level = state.feature_level
    if not _supports(supported, level):
        known = supported or _WITHOUT_LEVELS
        raise UnsupportedVersionError(
            f"node {node_id} supports {levels_text(supported)}, and the cluster has feature level"
            f" {level}; start node {node_id} with a version of tidelog that supports level {level},"
            " such as that of the other nodes",
            min_version=known.min_level,
            max_version=known.max_level,
        )


def levels_text(supported: SupportedLevels | None) -> str:
    """Return the supported feature levels of a node in words."""
    known = supported or _WITHOUT_LEVELS
    if known.min_level == known.max_level:
        return f"feature level {known.min_level} alone"
    return f"feature levels {known.min_level} to {known.max_level}"


def _supports(supported: SupportedLevels | None, level: int) -> bool:
    known = supported or _WITHOUT_LEVELS
    return known.min_level <= level <= known.max_level
