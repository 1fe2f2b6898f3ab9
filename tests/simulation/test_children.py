"""Tests of worker processes: each has its own process, and ends with its parent."""

import os
import select
import signal
import subprocess
import sys

import pytest

from tests.simulation.children import in_fresh_process

PARENT = """
import os, time
from tests.simulation.children import workers

if __name__ == "__main__":
    with workers(1) as pool:
        print(pool.submit(os.getpid).result(), flush=True)
        pool.submit(time.sleep, 3600).result()
"""


def test_each_piece_of_work_has_a_process_of_its_own() -> None:
    processes = {os.getpid(), in_fresh_process(os.getpid), in_fresh_process(os.getpid)}

    assert len(processes) == 3


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends processes with their parent")
def test_a_worker_does_not_outlive_a_parent_that_is_killed() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,  # Python warns about leftovers of a killed process.
        text=True,
    ) as parent:
        assert parent.stdout is not None
        worker = os.pidfd_open(int(parent.stdout.readline()))
        try:
            parent.send_signal(signal.SIGKILL)

            assert select.select([worker], [], [], 30.0)[0] == [worker], "it still runs"
        finally:
            os.close(worker)
