"""What Spark says is believed if it is what was produced."""

import zlib

import pytest

from tidelog.demo.errors import DemoFailedError
from tidelog.demo.spark_story import SparkReport, judged

VALUES = [b"a", b"b"]
FOUND = {
    "rows": 2,
    "checksum": zlib.crc32(b"a") + zlib.crc32(b"b"),
    "events": {"receive": 2, "delete": 1},
    "start_seconds": 5.0,
    "replay_seconds": 1.0,
}


def test_rows_and_deletions_are_reported() -> None:
    expected = SparkReport(rows=2, deleted=1, start_seconds=5.0, replay_seconds=1.0)

    assert judged(FOUND, VALUES) == expected


def test_what_is_missing_is_passed_on() -> None:
    assert judged({"missing": "Spark needs Java 17"}, VALUES) == "Spark needs Java 17"


@pytest.mark.parametrize("wrong", [{"rows": 3}, {"checksum": 1}])
def test_other_rows_than_were_produced_fail_it(wrong: dict[str, int]) -> None:
    with pytest.raises(DemoFailedError, match="not the 2 that were produced"):
        judged({**FOUND, **wrong}, VALUES)
