"""One power cut on a real file system, where that can be had; `make powercut` does many."""

import subprocess
import sys
import tempfile
from pathlib import Path

from tests.integration.processes import ROOT
from tests.powercut.__main__ import missing_here


def left_behind() -> list[str]:
    mounts = Path("/proc/mounts").read_text(encoding="utf-8").splitlines()
    loops = [
        str(file.read_text(encoding="utf-8"))
        for file in Path("/sys/block").glob("loop*/loop/backing_file")
    ]
    here = [str(path) for path in Path(tempfile.gettempdir()).glob("tidelog-powercut-*")]
    return [line for line in [*mounts, *loops, *here] if "tidelog-powercut" in line]


def test_what_was_acknowledged_survives_real_power_cuts_and_nothing_is_left_behind() -> None:
    result = subprocess.run(
        [sys.executable, "-m", "tests.powercut", "--cuts", "2", "--without-controls"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )

    said = result.stdout.splitlines()
    assert result.returncode == 0, result.stdout + result.stderr
    if missing_here():
        assert said == [f"power cuts: skipped, for this needs {missing_here()}"]
    else:
        assert said[-1].startswith("2 power cuts, ")
        assert " 0 lost, 0 cuts with problems" in said[-1]
    assert not left_behind()
