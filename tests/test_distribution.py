"""Tests that start brokers run in one process; other files run in any process."""

import re
from pathlib import Path

from tests.distribution import place_of, unit_of

TESTS = Path(__file__).parent


def test_a_file_is_one_unit() -> None:
    assert (
        unit_of("tests/wire/protocol/test_frame.py::test_a[x::y]")
        == "tests/wire/protocol/test_frame.py"
    )
    assert (
        unit_of("tests/wire/protocol/test_frame.py::TestA::test_b")
        == "tests/wire/protocol/test_frame.py"
    )


def test_all_tests_that_start_brokers_are_one_unit() -> None:
    starting = [
        path.relative_to(TESTS.parent).as_posix()
        for path in TESTS.rglob("test_*.py")
        if re.search(
            r"^from tests\.system\.integration\.\w+ import", path.read_text(), re.MULTILINE
        )
    ]

    assert len(starting) > 10
    units = {unit_of(f"{path}::test_a") for path in starting}
    # `make test-spark` runs the tests of Spark by themselves.
    assert units == {"tests that start brokers", "tests of Spark"}


def test_slow_files_start_first() -> None:
    places = [
        place_of(f"tests/{path}::test_a")
        for path in (
            "system/integration/test_kills.py",
            "system/spark/test_batches.py",
            "simulation/test_swarm.py",
            "wire/protocol/test_frame.py",
        )
    ]

    assert places == sorted(set(places))
