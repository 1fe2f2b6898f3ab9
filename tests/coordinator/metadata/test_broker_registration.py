"""Registrations of broker processes: accepted ones, fenced ones and refused ones."""

import pytest
from msgspec.structs import replace

from tests.coordinator.metadata.clusters import Cluster
from tidelog.coordinator.metadata.broker_commands import REPLACED_INCARNATIONS_KEPT
from tidelog.coordinator.metadata.commands import RegisterBroker, Registered
from tidelog.wire.errors import DuplicateBrokerError, InvalidRequestError, StaleBrokerEpochError


def test_a_registered_broker_is_fenced_until_it_has_caught_up() -> None:
    cluster = Cluster()

    cluster.register(1)
    assert cluster.broker(1).is_fenced

    cluster.unfence(1)
    assert cluster.broker(1).can_lead


def test_a_repeated_registration_is_one_registration() -> None:
    cluster = Cluster()
    command = cluster.registration(1)
    first = cluster.answer(Registered, command)
    cluster.unfence(1)

    assert cluster.handle(command).records == []
    assert cluster.answer(Registered, command) == first
    assert cluster.broker(1).can_lead


def test_broker_epochs_rise_with_every_registration_of_the_cluster() -> None:
    cluster = Cluster()

    assert [cluster.register(node) for node in (1, 2, 1, 3, 1)] == [1, 2, 3, 4, 5]


def test_a_live_node_id_with_another_disk_is_refused() -> None:
    cluster = Cluster(1)

    with pytest.raises(DuplicateBrokerError, match="node id 1 belongs to a live broker at host-1:"):
        cluster.register(1, disk_id="another")


def test_a_disk_of_another_broker_is_refused_alive_or_fenced() -> None:
    cluster = Cluster(1)

    for _ in range(2):
        with pytest.raises(DuplicateBrokerError, match=r"belongs to broker 1; start it with that"):
            cluster.register(2, disk_id="disk-1")
        cluster.fence(1)


@pytest.mark.parametrize(
    ("node_id", "disk", "process"), [(0, "disk", "process"), (1, "", "process"), (1, "disk", "")]
)
def test_a_registration_must_have_node_id_disk_id_and_incarnation(
    node_id: int, disk: str, process: str
) -> None:
    with pytest.raises(InvalidRequestError, match=r"registration of broker \d+ is incomplete"):
        Cluster().do(RegisterBroker(node_id, disk, process, "host", 8433))


@pytest.mark.parametrize(("host", "port"), [("", 8433), ("host", 0), ("host", 65536)])
def test_a_registration_must_have_host_and_port(host: str, port: int) -> None:
    with pytest.raises(InvalidRequestError, match="its registration must have a host, and a port"):
        Cluster().do(RegisterBroker(1, "disk", "process", host, port))


def test_a_delayed_registration_does_not_replace_a_later_process() -> None:
    """The sending process is dead, and the later one would be told to stop (seed 6100509)."""
    cluster = Cluster(1)
    on_its_way = cluster.registration(1)
    cluster.start(1)

    with pytest.raises(StaleBrokerEpochError, match="registered with epoch 2, which this"):
        cluster.do(on_its_way)

    assert cluster.broker(1).can_lead


def test_a_process_that_knows_the_previous_registration_is_accepted() -> None:
    cluster = Cluster(1)
    refused = cluster.registration(1)
    epoch = cluster.register(1)

    again = replace(refused, known_epoch=epoch)

    assert cluster.answer(Registered, again).broker_epoch == epoch + 1


def test_a_replaced_process_cannot_register_again() -> None:
    cluster = Cluster(1)
    old = cluster.registration(1)
    cluster.do(old)
    cluster.start(1)

    with pytest.raises(DuplicateBrokerError, match="a newer process of broker 1 has registered"):
        cluster.do(old)


def test_only_the_last_replaced_processes_are_remembered() -> None:
    cluster = Cluster(1)

    for _ in range(REPLACED_INCARNATIONS_KEPT + 3):
        cluster.start(1)

    assert len(cluster.broker(1).replaced_incarnation_ids) == REPLACED_INCARNATIONS_KEPT
