"""The demonstration on a few flights; `tests/system/integration` shows all of it."""

from pathlib import Path

import pytest

from tidelog.demo.errors import DemoFailedError
from tidelog.demo.flights import Flights
from tidelog.demo.story import run_demo


class Listener:
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def started(self, address: str, data_dir: str) -> None:
        del address, data_dir
        self.told.append("started")

    def progressed(self, verb: str, count: int, total: int) -> None:
        if count == total and f"{verb} all {count}" not in self.told:
            self.told.append(f"{verb} all {count}")

    def killed(self, under_way_count: int, acknowledged_count: int) -> None:
        assert under_way_count > 0
        self.told.append(f"killed after {acknowledged_count}")

    def started_again(self, seconds: float) -> None:
        assert seconds > 0
        self.told.append("started again")

    def spark_starts(self) -> None:
        self.told.append("Spark starts")


def some_flights(count: int) -> Flights:
    return Flights(
        ["number", "dep_delay"],
        [b"N%d" % (n % 30) for n in range(count)],
        [b"%d,%s" % (n, b"-3" if n % 100 else b"NA") for n in range(count)],
    )


async def test_it_kills_half_way_goes_on_and_accounts_for_everything(tmp_path: Path) -> None:
    listener = Listener()

    report = await run_demo(some_flights(2000), str(tmp_path), listener)

    killed = listener.told.pop(1)
    # The one that is half way may be acknowledged with the next one, before anybody is told.
    assert 1000 <= int(killed.removeprefix("killed after ")) < 2000
    assert listener.told == [
        "started",
        "started again",
        "produced all 2000",
        "consumed all 2000",
        "worked through all 2000",
        "replayed all 2000",
    ]
    assert (report.produced, report.acknowledged, report.consumed) == (2000, 2000, 2000)
    assert report.kills == 1
    assert 0 < report.under_way_at_kill <= 1000
    assert (report.queue.deleted, report.queue.dead, report.replayed) == (1980, 20, 2000)
    assert (report.spark, report.without_spark) == (None, "")
    assert 0 < report.recovery_seconds < report.produce_seconds


async def test_a_broker_that_does_not_start_fails_it_in_one_line(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"")

    with pytest.RaisesGroup(pytest.RaisesExc(DemoFailedError, match="the broker did not start")):
        await run_demo(some_flights(2000), str(file), Listener())
