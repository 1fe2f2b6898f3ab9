"""Tests of the examples and their output."""

import os
import re
import subprocess
import sys
from pathlib import Path

import trio

from tests.paths import ROOT
from tests.system.integration.processes import DEADLINE_S, environment


async def run_example(name: str, *arguments: str) -> str:
    """Run an example that must succeed without errors; return its output."""
    paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    with trio.fail_after(DEADLINE_S):
        result: subprocess.CompletedProcess[bytes] = await trio.run_process(
            [sys.executable, str(ROOT / "examples" / name), *arguments],
            capture_stdout=True,
            capture_stderr=True,
            check=False,
            env=environment(PYTHONPATH=paths),
        )
    assert (result.returncode, result.stderr) == (0, b""), result.stderr.decode()
    return result.stdout.decode()


async def test_a_program_with_trio_produces_and_consumes(broker_address: str) -> None:
    first = await run_example("produce_and_consume.py", broker_address)
    again = await run_example("produce_and_consume.py", broker_address)

    assert first.endswith("read 1001 records\n")
    assert again.startswith("topic example-orders is there already\n")
    assert again.endswith("read 2002 records\n")


async def test_a_program_without_trio_produces_and_consumes(broker_address: str) -> None:
    said = await run_example("blocking_client.py", broker_address)

    assert said == "1000 records are on disk\nread 1000 records\n"


async def test_a_program_runs_a_broker_of_its_own() -> None:
    said = await run_example("embedded_broker.py")

    assert said.endswith("0 b'started' {'source': b'example'}\n")


async def test_an_afternoon_is_replayed_by_timestamp() -> None:
    said = await run_example("replay_by_time.py")

    assert "278 flights from 17:00 to 22:00 UTC" in said


async def test_at_least_once_skips_no_record() -> None:
    said = await run_example("at_least_once.py")

    found = re.search(r"(\d+) of (\d+) flights were processed, (\d+) of them", said)
    assert found is not None, said
    done_count, count, twice_count = map(int, found.groups())
    assert "a worker crashes after 5000 flights" in said
    assert done_count == count == 27_004
    assert 0 < twice_count < 5_000


async def test_at_most_once_processes_no_record_twice() -> None:
    said = await run_example("at_most_once.py")

    found = re.search(r"(\d+) of (\d+) flights were left out, (\d+) came twice", said)
    assert found is not None, said
    left_out_count, count, twice_count = map(int, found.groups())
    assert "a worker crashes after 5000 flights" in said
    assert (count, twice_count) == (27_004, 0)
    assert 0 < left_out_count < 5_000


async def test_exactly_once_has_one_result_for_each_record() -> None:
    said = await run_example("exactly_once.py")

    assert said.splitlines() == [
        "a processor crashes after 15000 flights",
        "27004 flights: 26483 delays, 521 dead letters",
    ]


async def test_cancelled_flights_become_dead_letters_are_repaired_redriven_and_processed() -> None:
    said = await run_example("poison_flights.py")

    assert said.splitlines() == [
        "26483 of 27004 flights processed, 521 dead letters",
        "one came 3 times, from flights: ValueError: invalid literal for int() with base 10: b'NA'",
        "521 repaired and redriven, 27004 flights processed",
        "most delays: EV with 96649 minutes",
        "the queue is empty, and 27525 messages are in the log",
    ]


async def test_the_worker_accepts_other_flights(broker_address: str, tmp_path: Path) -> None:
    file = tmp_path / "flights.csv"
    file.write_text("carrier,dep_delay\nUA,5\nAA,\nUA,-2\nB6,1\n")

    said = await run_example("poison_flights.py", "--broker", broker_address, "--file", str(file))

    assert said.splitlines()[0] == "3 of 4 flights processed, 1 dead letters"
    assert said.splitlines()[2:4] == [
        "1 repaired and redriven, 4 flights processed",
        "most delays: UA with 3 minutes",
    ]
