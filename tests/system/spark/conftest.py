"""Fixtures: one Spark session and one broker for all tests of a process.

`make test-spark` runs them in two processes: a session often has one thread at work.

The tests take minutes, nearly all of which Java and Spark spend on starting, so `make test`
excludes them; without Java they are skipped, and one line names the missing part.
"""

import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.system.installed import Installation, install_wheel
from tests.system.spark.world import World
from tests.tidelog.brokers import broker_in_a_thread
from tidelog import blocking

_OF_DRIVERS = "test_drivers.py"
"""Tests that start drivers of their own, which takes minutes: `make spark-trial` runs them."""
_files = {path.name for path in Path(__file__).parent.glob("test_*.py")}
_wanted = _files - {_OF_DRIVERS} if os.environ.get("TIDELOG_SPARK_TESTS") else set[str]()
_trials = {_OF_DRIVERS} if os.environ.get("TIDELOG_SPARK_TRIALS") else set[str]()
collect_ignore_glob = sorted(_files - _wanted - _trials)
_numbers = itertools.count()


@pytest.fixture(scope="session")
def shared_world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    pytest.importorskip("pyspark", reason="Spark tests are left out: pip install 'tidelog[spark]'")
    from pyspark_tidelog import prepare_java  # noqa: PLC0415
    from tidelog.spark_connector.java import JavaMissingError  # noqa: PLC0415

    try:
        prepare_java()
    except JavaMissingError as missing:
        pytest.skip(f"Spark tests are left out: {missing}")
    from tests.system.spark.session import session  # noqa: PLC0415

    data_dir = tmp_path_factory.mktemp("broker")
    with (
        session(tmp_path_factory.mktemp("spark")) as spark,
        broker_in_a_thread(data_dir) as address,
        blocking.connect(address) as client,
    ):
        yield World(spark, address, client, data_dir, "")


@pytest.fixture
def world(shared_world: World, tmp_path: Path) -> World:
    """Return Spark, a broker, and the name of a topic that does not exist yet."""
    del tmp_path
    return shared_world.named(f"topic-{next(_numbers)}")


@pytest.fixture(scope="session")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Installation:
    """Return an environment with the wheel of tidelog, which is not activated."""
    return install_wheel(tmp_path_factory.mktemp("installed"))
