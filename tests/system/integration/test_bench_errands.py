"""Topics come and go, for the benchmark beside other systems, by a process that stays."""

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


def test_topics_come_and_go_by_one_process_and_another_one_after_a_failure(
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
