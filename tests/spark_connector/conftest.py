"""Fixtures: one broker for the tests of a file, and a new topic for each test."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.spark_connector.spark_fixture import SparkFixture, close_idle
from tests.tidelog.brokers import broker_in_a_thread
from tidelog import blocking

_numbers = itertools.count()


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("spark")


@pytest.fixture(scope="module")
def shared_client(data_dir: Path) -> Iterator[tuple[str, blocking.Client]]:
    with broker_in_a_thread(data_dir) as address, blocking.connect(address) as client:
        yield address, client
        close_idle()


@pytest.fixture
def town(shared_client: tuple[str, blocking.Client], data_dir: Path) -> SparkFixture:
    """Return a broker, its client, and the name of a topic that does not exist yet."""
    return SparkFixture(*shared_client, data_dir, f"topic-{next(_numbers)}")
