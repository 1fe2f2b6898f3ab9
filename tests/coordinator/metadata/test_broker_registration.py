"""Processes of brokers register: who is let in, and who is told to stop or to ask again."""

import pytest
from msgspec.structs import replace

from tests.coordinator.metadata.clusters import Cluster
from tidelog.coordinator.metadata.broker_commands import REPLACED_INCARNATIONS_KEPT
from tidelog.coordinator.metadata.commands import RegisterBroker, Registered
from tidelog.wire.errors import DuplicateBrokerError, InvalidRequestError, StaleBrokerEpochError


def test_a_broker_that_registers_is_fenced_until_it_has_caught_up() -> None:
    cluster = Cluster()

    cluster.register(1)
    assert cluster.broker(1).is_fenced

    cluster.unfence(1)
    assert cluster.broker(1).can_lead


def test_a_registration_that_is_given_again_is_one_registration() -> None:
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


def test_a_disk_of_another_broker_is_refused_whether_that_one_lives_or_not() -> None:
    cluster = Cluster(1)

    for _ in range(2):
        with pytest.raises(DuplicateBrokerError, match=r"belongs to broker 1; start it with that"):
            cluster.register(2, disk_id="disk-1")
        cluster.fence(1)


@pytest.mark.parametrize(
    ("node_id", "disk", "process"), [(0, "disk", "process"), (1, "", "process"), (1, "disk", "")]
)
def test_a_broker_must_say_who_it_is(node_id: int, disk: str, process: str) -> None:
    with pytest.raises(InvalidRequestError, match="does not say who it is"):
        Cluster().do(RegisterBroker(node_id, disk, process, "host", 8433))


@pytest.mark.parametrize(("host", "port"), [("", 8433), ("host", 0), ("host", 65536)])
def test_a_broker_must_say_where_it_can_be_reached(host: str, port: int) -> None:
    with pytest.raises(InvalidRequestError, match="it must say a host, and a port"):
        Cluster().do(RegisterBroker(1, "disk", "process", host, port))


def test_a_registration_that_was_long_on_its_way_does_not_take_the_place_of_a_later_process() -> (
    None
):
    """The process that sent it is dead, and the later one would be told to stop (seed 6100509)."""
    cluster = Cluster(1)
    on_its_way = cluster.registration(1)
    cluster.start(1)

    with pytest.raises(StaleBrokerEpochError, match="registered with epoch 2, of which this"):
        cluster.do(on_its_way)

    assert cluster.broker(1).can_lead


def test_a_process_that_has_heard_of_the_registration_before_it_is_let_in() -> None:
    cluster = Cluster(1)
    refused = cluster.registration(1)
    epoch = cluster.register(1)

    again = replace(refused, known_epoch=epoch)

    assert cluster.answer(Registered, again).broker_epoch == epoch + 1


def test_a_process_that_was_replaced_cannot_take_its_place_back() -> None:
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
