"""A broker for the tests of this folder."""

from collections.abc import Iterator

import pytest

import tidelog.testing
from tidelog import blocking
from tidelog.testing import EphemeralBroker


@pytest.fixture(scope="module")
def broker() -> Iterator[EphemeralBroker]:
    with tidelog.testing.broker() as broker:
        yield broker


@pytest.fixture(scope="module")
def client(broker: EphemeralBroker) -> Iterator[blocking.Client]:
    with blocking.connect(broker.address) as client:
        yield client
