"""Feature levels of a cluster: rise and fall, the records that they gate, the admitted nodes."""

import msgspec
import pytest
from msgspec.structs import replace

from tests.coordinator.metadata.clusters import NOW_MS, Cluster
from tidelog.coordinator.controller.log_entries import (
    LevelSnapshot,
    decode_entry,
    decode_snapshot,
    decode_snapshot_records,
    encode_entry,
    encode_snapshot,
)
from tidelog.coordinator.groups.state_machine import ConsumerGroups
from tidelog.coordinator.metadata import features
from tidelog.coordinator.metadata.broker_sessions import BrokerHeartbeat, heartbeat_command
from tidelog.coordinator.metadata.commands import (
    DrainBroker,
    RegisterBroker,
    SetFeatureLevel,
    UnfenceBroker,
)
from tidelog.coordinator.metadata.feature_commands import (
    check_node,
    first_level,
    node_features,
    obstacles,
)
from tidelog.coordinator.metadata.features import batch_format, check_records
from tidelog.coordinator.metadata.records import (
    BrokerDrained,
    BrokerUnregistered,
    FeatureLevelSet,
)
from tidelog.coordinator.metadata.state_machine import MetadataStateMachine
from tidelog.wire.errors import InvalidRequestError, UnsupportedVersionError
from tidelog.wire.messages.features import OWN_LEVELS, NodeFeatures, SupportedLevels

NODES = [1, 2, 3]
NEW = SupportedLevels(0, 1)
NEWER = SupportedLevels(0, 2)
NEWEST = SupportedLevels(0, 8)


def started(*supported: SupportedLevels | None) -> Cluster:
    """Return a cluster whose nodes, from 1 on, have registered with these levels."""
    cluster = Cluster()
    for node_id, levels in enumerate(supported, start=1):
        restart(cluster, node_id, levels)
    return cluster


def restart(cluster: Cluster, node_id: int, supported: SupportedLevels | None) -> None:
    """Register a new process of a node."""
    cluster.supported_levels = supported
    cluster.start(node_id)


def test_the_level_rises_only_when_all_nodes_know_it() -> None:
    cluster = started(NEW, None, None)

    with pytest.raises(
        InvalidRequestError,
        match=r"level 1 is not possible: node 2 runs a version without feature levels; upgrade it;"
        r" node 3 runs a version without .*; the level stays 0$",
    ):
        cluster.do(SetFeatureLevel(1, NODES))
    restart(cluster, 2, NEW)
    with pytest.raises(InvalidRequestError, match="not possible: node 3 runs a version without"):
        cluster.do(SetFeatureLevel(1, NODES))
    restart(cluster, 3, NEW)
    cluster.do(SetFeatureLevel(1, NODES))

    assert cluster.state.feature_level == 1
    assert cluster.handle(SetFeatureLevel(1, NODES)).records == []


def test_a_fenced_node_and_a_member_that_has_not_registered_prevent_a_rise() -> None:
    cluster = started(NEW, None)
    restart(cluster, 1, NEW)
    cluster.fence(2)

    assert obstacles(cluster.state, [1, 4], 1) == [
        "node 2 runs a version without feature levels; upgrade it",
        "node 4 has not registered; start it",
    ]
    assert node_features(cluster.state, [1, 4]) == [
        NodeFeatures(1, NEW),
        NodeFeatures(2, None),
        NodeFeatures(4, None),
    ]


def test_a_process_that_returns_to_the_old_version_prevents_a_rise_again() -> None:
    cluster = started(None, None)
    restart(cluster, 1, NEW)
    restart(cluster, 2, NEW)
    assert not obstacles(cluster.state, [1, 2], 1)

    restart(cluster, 2, None)

    assert obstacles(cluster.state, [1, 2], 1)


def test_a_node_that_does_not_know_the_level_cannot_register_or_join() -> None:
    cluster = started(NEW, NEW)
    cluster.do(SetFeatureLevel(1, [1, 2]))

    for old in (None, SupportedLevels(0, 0)):
        command = replace(cluster.registration(2), supported_levels=old)
        with pytest.raises(
            UnsupportedVersionError,
            match=r"node 2 supports feature level 0 alone, and the cluster has feature level 1;"
            r" start node 2 with a version of tidelog that supports level 1, ",
        ):
            cluster.do(command)
        with pytest.raises(UnsupportedVersionError, match="node 9 supports feature level 0 alone"):
            check_node(cluster.state, 9, old)
    with pytest.raises(UnsupportedVersionError, match="supports feature levels 2 to 3, and"):
        check_node(cluster.state, 9, SupportedLevels(2, 3))

    restart(cluster, 2, NEW)
    check_node(cluster.state, 9, NEW)


def test_a_level_above_that_of_a_node_is_refused() -> None:
    cluster = started(NEWER, NEW)

    with pytest.raises(InvalidRequestError, match="node 2 supports feature levels 0 to 1; change"):
        cluster.do(SetFeatureLevel(2, [1, 2]))


def test_a_new_cluster_begins_at_the_level_that_all_its_first_nodes_know() -> None:
    cluster = started(NEWER, NEW)
    assert first_level(cluster.state, NODES) is None, "node 3 is missing"
    restart(cluster, 1, NEWER)  # Not new, but it knew levels from the beginning.
    restart(cluster, 3, NEWER)

    assert cluster.state.feature_level == 0
    assert first_level(cluster.state, NODES) == 1
    cluster.do(SetFeatureLevel(1, NODES))
    assert first_level(cluster.state, NODES) is None
    restart(cluster, 2, NEWER)
    assert first_level(cluster.state, NODES) is None, "from now on an administrator decides"


@pytest.mark.parametrize("first", [(None, NEW), (NEW, None)])
def test_a_cluster_that_began_with_an_older_version_waits_for_an_administrator(
    first: tuple[SupportedLevels | None, ...],
) -> None:
    cluster = started(*first)
    restart(cluster, 1, NEW)
    restart(cluster, 2, NEW)

    assert first_level(cluster.state, [1, 2]) is None
    assert not obstacles(cluster.state, [1, 2], 1)
    restored = MetadataStateMachine.from_snapshot(cluster.machine.snapshot())
    assert first_level(restored.state, [1, 2]) is None


def test_a_node_that_an_old_controller_registered_reports_its_levels_by_heartbeat() -> None:
    cluster = started(None)
    broker = cluster.broker(1)
    heartbeat = BrokerHeartbeat(1, broker.broker_epoch, supported_levels=NEW)

    report = UnfenceBroker(1, broker.broker_epoch, None, NEW)

    assert heartbeat_command(cluster.state, heartbeat, is_caught_up=True) == report
    cluster.do(report)
    assert cluster.broker(1) == replace(broker, supported_levels=NEW)
    assert heartbeat_command(cluster.state, heartbeat, is_caught_up=True) is None
    old = BrokerHeartbeat(1, broker.broker_epoch)
    assert heartbeat_command(cluster.state, old, is_caught_up=True) is None
    assert cluster.handle(UnfenceBroker(1, broker.broker_epoch)).records == []


def test_records_of_a_higher_level_are_not_written() -> None:
    check_records([BrokerUnregistered(1)], 0)
    check_records([FeatureLevelSet(1)], 0)
    check_records([FeatureLevelSet(1)], 1)
    with pytest.raises(InvalidRequestError, match="feature level 1 is needed, and the cluster has"):
        check_records([BrokerUnregistered(1), FeatureLevelSet(0)], 1)


def test_a_new_kind_of_record_is_rolled_out_and_rolled_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A later version knows level 8, to which a kind of record belongs."""
    monkeypatch.setattr(features, "RECORD_LEVELS", {FeatureLevelSet: 1, BrokerDrained: 8})
    cluster = started(NEWEST, NEWEST)
    cluster.do(SetFeatureLevel(7, [1, 2]))
    with pytest.raises(InvalidRequestError, match="feature level 8 is needed, and the cluster has"):
        cluster.do(DrainBroker(1))

    cluster.do(SetFeatureLevel(8, [1, 2]))
    cluster.do(SetFeatureLevel(7, [1, 2]))  # Nothing needs level 8.
    restart(cluster, 2, OWN_LEVELS)
    restart(cluster, 2, NEWEST)
    cluster.do(SetFeatureLevel(8, [1, 2]))
    cluster.do(DrainBroker(1))

    assert cluster.state.used_level == 8
    with pytest.raises(
        InvalidRequestError, match=r"7 is not possible: the metadata has records of level 8, which"
    ):
        cluster.do(SetFeatureLevel(7, [1, 2]))
    with pytest.raises(msgspec.ValidationError, match="<= 7"):
        MetadataStateMachine.from_snapshot(cluster.machine.snapshot())


def test_the_level_does_not_fall_below_that_of_columnar_batches() -> None:
    """From level 6 on logs may have batches of format version 2, which the metadata do not show."""
    cluster = started(NEWEST, NEWEST)
    cluster.do(SetFeatureLevel(5, [1, 2]))
    assert batch_format(cluster.state.feature_level) == 1
    cluster.do(SetFeatureLevel(6, [1, 2]))

    assert batch_format(cluster.state.feature_level) == 2
    restored = MetadataStateMachine.from_snapshot(cluster.machine.snapshot())
    for machine in (cluster.machine, restored):
        with pytest.raises(
            InvalidRequestError, match="5 is not possible: the metadata has records of level 6"
        ):
            machine.handle(SetFeatureLevel(5, [1, 2]), now_ms=NOW_MS)


def test_the_level_does_not_fall_while_a_redrive_to_sources_may_run() -> None:
    """A leader of level 6 would move messages to any topic that a header names."""
    cluster = started(NEWEST)
    cluster.do(SetFeatureLevel(7, [1]))

    with pytest.raises(
        InvalidRequestError, match="6 is not possible: the metadata has records of level 7"
    ):
        cluster.do(SetFeatureLevel(6, [1]))


def test_the_level_cannot_fall_below_the_record_of_the_level() -> None:
    cluster = started(NEW)
    cluster.do(SetFeatureLevel(1, [1]))

    with pytest.raises(InvalidRequestError, match="level 0 is not possible: the metadata has rec"):
        cluster.do(SetFeatureLevel(0, [1]))


class OldBroker(msgspec.Struct, array_like=True, tag="broker-registered"):
    """A kind of record that a version without levels knows."""

    broker: list[object]


class OldSnapshot(msgspec.Struct, array_like=True, tag="snapshot"):
    """The snapshot of a version without levels."""

    cluster: object
    groups: object


def test_a_version_without_levels_reads_the_log_and_snapshot_until_the_rise_only() -> None:
    entries = msgspec.msgpack.Decoder(list[OldBroker])
    snapshots = msgspec.msgpack.Decoder(OldSnapshot)
    cluster = started(NEW)
    entries.decode(encode_entry(cluster.records[:1]))
    snapshots.decode(encode_snapshot(cluster.state, ConsumerGroups()))

    cluster.do(SetFeatureLevel(1, [1]))

    with pytest.raises(msgspec.ValidationError, match="feature-level-set"):
        entries.decode(encode_entry(cluster.records[-1:]))
    data = encode_snapshot(cluster.state, ConsumerGroups())
    with pytest.raises(msgspec.ValidationError, match="snapshot-with-level"):
        snapshots.decode(data)
    assert isinstance(decode_snapshot_records(data), LevelSnapshot)
    restored, _ = decode_snapshot(data)
    assert restored.state.feature_level == restored.state.used_level == 1


def test_a_snapshot_of_a_version_without_levels_is_of_level_0() -> None:
    fields = msgspec.msgpack.decode(started(NEW).machine.snapshot())

    restored = MetadataStateMachine.from_snapshot(msgspec.msgpack.encode(fields[:-3]))

    assert restored.state.feature_level == 0
    assert not restored.state.is_first_level_open


def test_this_version_applies_the_change_to_a_level_that_it_does_not_know() -> None:
    """The level may have fallen since; a record of that level would be refused by its tag."""
    machine = MetadataStateMachine()
    for level in (OWN_LEVELS.max_level + 1, OWN_LEVELS.max_level):
        (record,) = decode_entry(encode_entry([FeatureLevelSet(level)])).cluster
        machine.apply(record)

    assert machine.state.feature_level == OWN_LEVELS.max_level
    register = RegisterBroker(1, "disk", "process", "host", 8433, supported_levels=OWN_LEVELS)
    assert machine.handle(register, now_ms=NOW_MS).records
