"""Tests of the examples, with the session that all tests share."""

import importlib.util
from pathlib import Path
from types import ModuleType

from tests.paths import ROOT
from tests.system.spark.world import World
from tidelog.demo.flights import load_flights


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_last_hour_is_replayed_into_a_table_and_checked_for_compaction(
    world: World, tmp_path: Path
) -> None:
    replay, compaction = example("spark_replay"), example("spark_compaction")
    flights = load_flights()
    keys = [key for key in flights.keys if key is not None]

    assert replay.produce_flights(world.topic, world.address) == len(flights.values)
    rows = replay.replay(world.spark, world.topic, world.address, folder=str(tmp_path / "table"))
    found = compaction.check(world.spark, world.topic, world.address)

    assert rows == len(flights.values)
    assert (found.records, found.keys, found.deleted) == (len(keys), len(set(keys)), 0)
    assert 0 < found.kept_bytes < found.size_bytes


def test_delays_are_aggregated_by_airline_and_window(world: World, tmp_path: Path) -> None:
    delays = example("spark_delays")
    delays.produce_flights(world.topic, world.address)

    windows = delays.stream_delays(world.spark, world.topic, world.address, folder=str(tmp_path))

    assert len(windows) > 1000
    assert {row.airline for row in windows} >= {"UA", "B6", "DL"}
    assert windows[0].mean_delay >= windows[-1].mean_delay


def test_dead_letters_are_repaired_in_bulk(world: World) -> None:
    letters = example("spark_dead_letters")
    queue = f"{world.topic}-queue"

    rejected = letters.work(queue, world.address)
    table = letters.dead_letters(world.spark, queue, world.address)
    sent = letters.write_back(letters.repair(table), world.address)

    assert 0 < rejected == table.count()
    assert sent == {queue: rejected}
    (partition,) = world.client.admin.describe_topics([queue])[0].partitions
    assert partition.high_watermark == letters.FLIGHT_COUNT + rejected
