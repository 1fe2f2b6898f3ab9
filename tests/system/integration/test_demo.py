"""Tests of the demo, as `make demo` runs it."""

import json
import os
import signal
import subprocess
from pathlib import Path

import trio

from tests.paths import ROOT
from tests.system.integration.processes import DEADLINE_S, TIDELOG, environment, run_tidelog


def left_behind(directory: Path) -> list[str]:
    """Return the files in a directory, and the processes that use it."""
    return [*map(str, directory.iterdir()), *processes_with(str(directory))]


def processes_with(argument: str) -> list[str]:
    """Return the processes with an argument that contains this text."""
    found: list[str] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                arguments = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if argument.encode() in arguments:
                found.append(entry.name)
    return found


async def test_the_demo_loses_no_record_after_a_kill_and_leaves_nothing_behind(
    tmp_path: Path,
) -> None:
    result = await run_tidelog("demo", "--no-spark", "--json", TMPDIR=str(tmp_path))

    assert result.returncode == 0, result.stderr.decode()
    report = json.loads(result.stdout)
    counts = {name: report[name] for name in ("produced", "acknowledged", "consumed", "kills")}
    assert counts == {"produced": 27_004, "acknowledged": 27_004, "consumed": 27_004, "kills": 1}
    assert report["under_way_at_kill"] > 0
    assert report["recovery_seconds"] > 0
    assert (report["queue"]["deleted"], report["queue"]["dead"]) == (26_483, 521)
    assert report["replayed"] == 27_004
    assert left_behind(tmp_path) == []


async def test_the_demo_explains_its_steps_and_its_result() -> None:
    result = await run_tidelog("demo", "--no-spark")

    said = result.stderr.decode()
    assert result.returncode == 0, said
    assert "killed the broker (SIGKILL)" in said
    assert "restarted it on the same data" in said
    assert result.stdout.decode().endswith(
        "No acknowledged record is missing, duplicated or out of order.\n"
    )


async def test_ctrl_c_ends_the_demo_quietly_and_leaves_nothing_behind(tmp_path: Path) -> None:
    with trio.fail_after(DEADLINE_S):
        process = await trio.lowlevel.open_process(
            [*TIDELOG, "demo", "--no-spark"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            cwd=ROOT,
            env=environment(TMPDIR=str(tmp_path)),
        )
        assert process.stderr is not None
        said = b""
        while b"a broker listens on" not in said:
            said += bytes(await process.stderr.receive_some())
        process.send_signal(signal.SIGINT)
        status = await process.wait()
        rest = await process.stderr.receive_some()

    assert status == 128 + signal.SIGINT
    assert b"Traceback" not in rest
    assert left_behind(tmp_path) == []
