"""Test of one power cut on a real file system, if available; `make powercut` does many."""

import subprocess
import sys
from pathlib import Path

from tests.paths import ROOT
from tests.system.integration.processes import environment
from tests.system.powercut.__main__ import missing_here


def left_behind(directory: Path) -> list[str]:
    """Return mounts, loop devices and files that are left in a directory."""
    mounts = Path("/proc/mounts").read_text(encoding="utf-8").splitlines()
    loops = [
        file.read_text(encoding="utf-8")
        for file in Path("/sys/block").glob("loop*/loop/backing_file")
    ]
    found = [line for line in [*mounts, *loops] if str(directory) in line]
    return found + [str(path) for path in directory.iterdir()]


def test_acknowledged_records_survive_real_power_cuts_and_nothing_is_left_behind(
    tmp_path: Path,
) -> None:
    result = subprocess.run(
        [sys.executable, "-m", "tests.system.powercut", "--cuts", "2", "--without-controls"],
        cwd=ROOT,
        env=environment(TMPDIR=str(tmp_path)),
        capture_output=True,
        text=True,
        check=False,
        timeout=280,  # Below the global limit of a test, so that the child process is killed.
    )

    said = result.stdout.splitlines()
    assert result.returncode == 0, result.stdout + result.stderr
    if missing_here():
        assert said == [f"power cuts: skipped, for this needs {missing_here()}"]
    else:
        assert said[-1].startswith("2 power cuts, ")
        assert " 0 lost, 0 cuts with problems" in said[-1]
    assert not left_behind(tmp_path)
