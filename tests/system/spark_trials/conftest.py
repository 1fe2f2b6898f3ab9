"""Fixtures: a Spark cluster and three brokers, which are killed in turn: `make spark-trial`.

The trials take minutes even on a quiet machine, so `make test` and `make test-spark` exclude them.
Without Java they are skipped, and one line names the missing part.
"""

import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.system.spark_trials.brokers import Brokers
    from tests.system.spark_trials.driver import Drivers
    from tests.system.spark_trials.trial import Trial

collect_ignore_glob = [] if os.environ.get("TIDELOG_SPARK_TRIALS") else ["test_*.py"]
_numbers = itertools.count()


@pytest.fixture(scope="session")
def java() -> None:
    pytest.importorskip("pyspark", reason="Spark trials are left out: pip install 'tidelog[spark]'")
    from pyspark_tidelog import prepare_java  # noqa: PLC0415
    from tidelog.spark_connector.java import JavaMissingError  # noqa: PLC0415

    try:
        prepare_java()
    except JavaMissingError as missing:
        pytest.skip(f"Spark trials are left out: {missing}")


@pytest.fixture(scope="session")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[Brokers]":
    from tests.system.spark_trials.brokers import three_brokers  # noqa: PLC0415

    with three_brokers(tmp_path_factory.mktemp("brokers")) as brokers:
        yield brokers


@pytest.fixture(scope="session")
def drivers(java: None, tmp_path_factory: pytest.TempPathFactory) -> "Iterator[Drivers]":
    """Return sessions of a Spark cluster, one at a time."""
    del java
    from tests.system.spark_trials.driver import Drivers  # noqa: PLC0415
    from tests.system.spark_trials.standalone import standalone  # noqa: PLC0415

    with (
        standalone(tmp_path_factory.mktemp("standalone")) as master,
        Drivers(tmp_path_factory.mktemp("driver"), master) as drivers,
    ):
        yield drivers


@pytest.fixture
def trial(brokers: "Brokers", drivers: "Drivers", tmp_path: Path) -> "Trial":
    """Return all of them, and the name of a topic that does not exist yet."""
    from tests.system.spark_trials.trial import Trial  # noqa: PLC0415

    return Trial(brokers, drivers, tmp_path, f"topic-{next(_numbers)}")
