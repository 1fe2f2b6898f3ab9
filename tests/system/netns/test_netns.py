"""Test with a short run in network namespaces, if available; `make netns` is a long one."""

import signal
import subprocess
import sys
from pathlib import Path

from tests.paths import ROOT
from tests.system.integration.processes import environment
from tests.system.netns.namespaces import missing_here

COMMAND = [sys.executable, "-m", "tests.system.netns", "--minutes"]


def left_running(directory: Path) -> list[str]:
    """Return the commands of processes that work in a directory."""
    found: list[str] = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = file.read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue  # The process has ended meanwhile.
        if str(directory) in command:
            found.append(command)
    return found


def test_acknowledged_records_are_on_every_replica_and_nothing_is_left_behind(
    tmp_path: Path,
) -> None:
    result = subprocess.run(
        [*COMMAND, "0.08"],
        cwd=ROOT,
        env=environment(TMPDIR=str(tmp_path)),
        capture_output=True,
        text=True,
        check=False,
        timeout=280,  # Below the global limit of a test, so that the child process is killed.
    )

    said = result.stdout.splitlines()
    assert result.returncode == 0, result.stdout + result.stderr
    if missing := missing_here():
        assert said == [f"network namespaces: skipped, for this needs {missing}"]
    else:
        assert said[-1].endswith(" 0 problems")
        assert " 18 replicas read" in said[-1]
    assert not left_running(tmp_path)
    assert not list(tmp_path.iterdir())


def test_an_interrupted_run_leaves_nothing_behind(tmp_path: Path) -> None:
    if missing_here():
        return  # The test above checks the message.
    with subprocess.Popen(
        [*COMMAND, "1"],
        cwd=ROOT,
        env=environment(TMPDIR=str(tmp_path)),
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "all brokers serve\n"
        process.send_signal(signal.SIGINT)
        assert process.stdout.read() == "interrupted\n"

    assert process.returncode == 130
    assert not left_running(tmp_path)
    assert not list(tmp_path.iterdir())
