"""Registrations of brokers whose data directory went back in time."""

import pytest
from msgspec.structs import replace

from tests.coordinator.metadata.clusters import Cluster
from tidelog.coordinator.metadata.broker_sessions import BrokerHeartbeat, heartbeat_command
from tidelog.coordinator.metadata.commands import Registered, UnfenceBroker
from tidelog.coordinator.metadata.records import BrokerRegistration


def start(cluster: Cluster, node_id: int, *, holds: int | None) -> int:
    """Register a process whose directory holds an epoch, and let it write its own."""
    epoch = register(cluster, node_id, holds=holds).broker_epoch
    cluster.do(UnfenceBroker(node_id, epoch, None if holds is None else epoch))
    return epoch


def register(cluster: Cluster, node_id: int, *, holds: int | None) -> Registered:
    command = replace(cluster.registration(node_id), directory_epoch=holds)
    return cluster.answer(Registered, command)


def known(cluster: Cluster, node_id: int = 1) -> int | None:
    broker: BrokerRegistration = cluster.broker(node_id)
    return broker.directory_epoch


def three_with_a_topic() -> tuple[Cluster, int]:
    """Return a cluster whose broker 1 was restarted once, and the epoch before that."""
    cluster = Cluster()
    first, *_ = (start(cluster, node_id, holds=0) for node_id in (1, 2, 3))
    cluster.create("orders", [1, 2, 3])
    cluster.create("alone", [1])
    start(cluster, 1, holds=first)
    cluster.in_sync(1, 2, 3)
    return cluster, first


def test_an_old_directory_counts_as_a_lost_disk() -> None:
    cluster, first = three_with_a_topic()
    expected = known(cluster)

    reply = register(cluster, 1, holds=first)

    assert reply.directory_epoch == expected
    assert cluster.partition().in_sync_replicas == (2, 3)
    assert cluster.partition().wiped_replicas == (1,)
    (event,) = cluster.state.events.unacknowledged
    assert (event.kind, event.node_id, event.partition) == ("old_directory", 1, None)
    assert f"(epoch {first}, known {expected})" in event.detail


def test_the_only_replica_in_an_old_directory_waits_for_an_operator() -> None:
    cluster, first = three_with_a_topic()

    start(cluster, 1, holds=first)

    only = cluster.partition("alone")
    assert only.leader is None
    assert only.in_sync_or_eligible == ()
    assert only.wiped_replicas == (1,)


def test_a_directory_with_the_known_epoch_is_current() -> None:
    cluster, _ = three_with_a_topic()

    register(cluster, 1, holds=known(cluster))

    assert cluster.partition().wiped_replicas == ()
    assert cluster.partition("alone").eligible_leader_replicas == (1,)
    assert list(cluster.state.events.unacknowledged) == []


def test_a_process_that_died_before_it_wrote_its_epoch_has_no_old_directory() -> None:
    cluster, _ = three_with_a_topic()
    held = known(cluster)
    for _ in range(2):
        register(cluster, 1, holds=held)

    assert known(cluster) == held
    assert cluster.partition().wiped_replicas == ()


def test_a_process_that_died_before_it_was_unfenced_has_a_newer_directory() -> None:
    cluster, _ = three_with_a_topic()
    written = register(cluster, 1, holds=known(cluster)).broker_epoch

    register(cluster, 1, holds=written)

    assert cluster.partition().wiped_replicas == ()


def test_an_old_directory_stays_old_until_it_holds_the_epoch_of_its_registration() -> None:
    cluster, first = three_with_a_topic()
    expected = known(cluster)

    for _ in range(2):
        assert register(cluster, 1, holds=first).directory_epoch == expected
    epoch = start(cluster, 1, holds=first)

    assert known(cluster) == epoch
    assert register(cluster, 1, holds=epoch).directory_epoch == epoch


@pytest.mark.parametrize("holds", [None, 0])
def test_a_version_without_epochs_is_not_checked(holds: int | None) -> None:
    cluster = Cluster()
    start(cluster, 1, holds=None)
    cluster.create("orders", [1])

    start(cluster, 1, holds=holds)

    assert cluster.partition().leader == 1
    register(cluster, 1, holds=None)
    assert cluster.partition().wiped_replicas == ()


def test_another_disk_has_no_known_epoch() -> None:
    cluster, _ = three_with_a_topic()
    cluster.fence(1)
    command = replace(cluster.registration(1, disk_id="another"), directory_epoch=0)

    assert cluster.answer(Registered, command).directory_epoch is None
    assert cluster.partition().wiped_replicas == (1,)


def test_a_heartbeat_reports_an_epoch_that_was_written_late() -> None:
    cluster = Cluster()
    epoch = register(cluster, 1, holds=0).broker_epoch
    cluster.do(UnfenceBroker(1, epoch, 0))
    assert known(cluster) is None

    heartbeat = BrokerHeartbeat(1, epoch, directory_epoch=epoch)
    command = heartbeat_command(cluster.state, heartbeat, is_caught_up=True)

    assert command == UnfenceBroker(1, epoch, epoch)
    assert command is not None
    cluster.do(command)
    assert known(cluster) == epoch
    assert not cluster.broker(1).is_fenced
    assert heartbeat_command(cluster.state, heartbeat, is_caught_up=True) is None
    cluster.fence(1)
    assert known(cluster) == epoch
