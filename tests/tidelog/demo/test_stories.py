"""The parts of the demonstration."""

import zlib
from pathlib import Path

import pytest

from tidelog.demo.errors import DemoFailedError
from tidelog.demo.flights import Flights, load_flights
from tidelog.demo.queue_story import DEAD_LETTER_QUEUE, QUEUE, work_through
from tidelog.demo.spark_story import SparkReport, judged
from tidelog.demo.story import run_demo
from tidelog.embedded import open_broker
from tidelog.surface import connect


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


async def test_the_demo_kills_half_way_recovers_and_verifies_all_records(tmp_path: Path) -> None:
    listener = Listener()

    report = await run_demo(some_flights(2000), str(tmp_path), listener)

    killed = listener.told.pop(1)
    # The batch at the half may be acknowledged together with the next one, before the kill.
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


FLIGHTS = Flights(["number", "dep_delay"], [None] * 4, [b"0,5", b"1,NA", b"2,-1", b"3,"])


async def test_flights_are_deleted_and_cancelled_ones_are_dead_letters(tmp_path: Path) -> None:
    told: list[int] = []
    async with open_broker(tmp_path) as broker, connect(broker.address) as client:
        await client.admin.create_topic("flights", 2)
        async with client.producer() as producer:
            await producer.send_many("flights", FLIGHTS.values)

        report = await work_through(client, "flights", FLIGHTS, progressed=told.append)

        dead = await client.queue(DEAD_LETTER_QUEUE).peek()
        assert (report.deleted, report.dead) == (2, 2)
        assert sorted(each.record.value or b"" for each in dead) == [b"1,NA", b"3,"]
        assert {each.origin and each.origin.reason for each in dead} == {
            "a cancelled flight has no delay"
        }
        assert told[-1] == 4
        assert await client.queue(QUEUE).peek() == []


async def test_a_message_delivered_twice_is_a_failure(tmp_path: Path) -> None:
    async with open_broker(tmp_path) as broker, connect(broker.address) as client:
        async with client.producer() as producer:
            await client.admin.create_topic("flights", 1)
            await producer.send_many("flights", [*FLIGHTS.values, FLIGHTS.values[0]])

        with pytest.RaisesGroup(pytest.RaisesExc(DemoFailedError, match="delivered twice")):
            await work_through(client, "flights", FLIGHTS, progressed=lambda _: None)


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
    with pytest.raises(DemoFailedError, match="differ from the 2 produced records"):
        judged({**FOUND, **wrong}, VALUES)


def test_a_month_of_flights_comes_with_the_package() -> None:
    flights = load_flights()

    assert len(flights.values) == len(flights.keys) == 27_004
    assert flights.columns[:4] == ["year", "month", "day", "dep_time"]
    assert flights.values[0].startswith(b"2013,1,1,517,515,")
    assert flights.keys[:2] == [b"N14228", b"N24211"]


def test_an_unknown_tail_number_is_no_key() -> None:
    assert load_flights().keys.count(None) == 155


def test_values_tell_flights_apart() -> None:
    values = load_flights().values

    assert len(set(values)) == len(values)
