"""Tests of the process that creates and deletes topics for the benchmark of other systems."""

from collections.abc import Iterator

import pytest

from bench.peers.load import Errands
from bench.peers.orders import Order


@pytest.fixture
def errands() -> Iterator[Errands]:
    """Return errands whose process ends with the test."""
    found = Errands()
    yield found
    found.close()


def test_one_process_creates_and_deletes_topics_and_is_replaced_after_a_failure(
    broker_address: str, topic: str, errands: Errands
) -> None:
    def run(role: str, name: str) -> None:
        order = Order(
            system="tidelog", role=role, addresses=broker_address, name=name, promise="memory-one"
        )
        errands.run(order)

    for _ in range(3):
        run("create", topic)
        run("delete", topic)
    with pytest.raises(RuntimeError, match="delete ended with status 1"):
        run("delete", topic)
    run("create", topic)
