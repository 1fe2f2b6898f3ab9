"""Who has said last where a node is, is believed."""

from tests.coordinator.metadata.clusters import Cluster
from tidelog.coordinator.controller.address_book import AddressBook
from tidelog.coordinator.metadata.commands import RegisterBroker

CONFIGURED = {1: ("10.0.0.1", 1), 2: ("10.0.0.2", 2)}


def book(cluster: Cluster) -> AddressBook:
    return AddressBook(CONFIGURED, lambda: cluster.state)


def register(cluster: Cluster, node_id: int, host: str) -> None:
    process = f"process {cluster.draw()}"
    cluster.do(RegisterBroker(node_id, f"disk {node_id}", process, host, 9))


def test_without_any_other_word_it_is_what_this_node_was_started_with() -> None:
    assert book(Cluster()).address_of(2) == ("10.0.0.2", 2)
    assert book(Cluster()).address_of(3) is None


def test_a_registration_is_later_than_the_configuration() -> None:
    cluster = Cluster()
    addresses = book(cluster)

    register(cluster, 2, "moved")
    register(cluster, 3, "new")

    assert addresses.address_of(2) == ("moved", 9)
    assert addresses.address_of(3) == ("new", 9)
    assert addresses.address_of(1) == ("10.0.0.1", 1)


def test_what_a_node_says_when_it_starts_is_later_than_its_registration() -> None:
    cluster = Cluster()
    addresses = book(cluster)
    register(cluster, 2, "before")

    addresses.announced(2, ("now", 7))
    addresses.announced(3, ("here", 8))

    assert addresses.address_of(2) == ("now", 7)
    assert addresses.address_of(3) == ("here", 8)


def test_a_registration_since_then_is_later_still() -> None:
    cluster = Cluster()
    addresses = book(cluster)
    addresses.announced(2, ("now", 7))
    addresses.announced(3, ("here", 8))

    register(cluster, 2, "later")
    register(cluster, 2, "latest")

    assert addresses.address_of(2) == ("latest", 9)
    assert addresses.address_of(3) == ("here", 8)


def test_what_others_register_does_not_matter() -> None:
    cluster = Cluster()
    addresses = book(cluster)
    register(cluster, 2, "before")
    addresses.announced(2, ("now", 7))

    register(cluster, 1, "another")

    assert addresses.address_of(2) == ("now", 7)
