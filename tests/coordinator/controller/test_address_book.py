"""The order of address sources: announcement, registration, configuration."""

from tests.coordinator.metadata.clusters import Cluster
from tidelog.coordinator.controller.address_book import AddressBook
from tidelog.coordinator.metadata.commands import RegisterBroker

CONFIGURED = {1: ("10.0.0.1", 1), 2: ("10.0.0.2", 2)}


def book(cluster: Cluster) -> AddressBook:
    return AddressBook(CONFIGURED, lambda: cluster.state)


def register(cluster: Cluster, node_id: int, host: str) -> None:
    process = f"process {cluster.draw()}"
    cluster.do(RegisterBroker(node_id, f"disk {node_id}", process, host, 9))


def test_the_default_address_is_the_configured_one() -> None:
    assert book(Cluster()).address_of(2) == ("10.0.0.2", 2)
    assert book(Cluster()).address_of(3) is None


def test_a_registered_address_replaces_the_configured_one() -> None:
    cluster = Cluster()
    addresses = book(cluster)

    register(cluster, 2, "moved")
    register(cluster, 3, "new")

    assert addresses.address_of(2) == ("moved", 9)
    assert addresses.address_of(3) == ("new", 9)
    assert addresses.address_of(1) == ("10.0.0.1", 1)


def test_an_announced_address_replaces_the_registered_one() -> None:
    cluster = Cluster()
    addresses = book(cluster)
    register(cluster, 2, "before")

    addresses.announced(2, ("now", 7))
    addresses.announced(3, ("here", 8))

    assert addresses.address_of(2) == ("now", 7)
    assert addresses.address_of(3) == ("here", 8)


def test_a_later_registration_replaces_the_announced_address() -> None:
    cluster = Cluster()
    addresses = book(cluster)
    addresses.announced(2, ("now", 7))
    addresses.announced(3, ("here", 8))

    register(cluster, 2, "later")
    register(cluster, 2, "latest")

    assert addresses.address_of(2) == ("latest", 9)
    assert addresses.address_of(3) == ("here", 8)


def test_registrations_of_other_nodes_do_not_change_an_announced_address() -> None:
    cluster = Cluster()
    addresses = book(cluster)
    register(cluster, 2, "before")
    addresses.announced(2, ("now", 7))

    register(cluster, 1, "another")

    assert addresses.address_of(2) == ("now", 7)
