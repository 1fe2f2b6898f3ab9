"""Test of a job that is cancelled in the middle of a range."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.system.spark.sockets import established, held_by_tasks
from tests.system.spark.world import World
from tests.system.spark_trials import jobs
from tests.system.spark_trials.gate import Gate
from tests.system.spark_trials.waiting import wait_until

COUNT = 20_000
"""Records of a thousand bytes: more than buffers hold, so the task is in the middle of its
range."""


@pytest.mark.statement("s38")
def test_a_cancelled_job_frees_its_connections_and_the_next_one_works(
    world: World, tmp_path: Path
) -> None:
    world.create()
    world.write([jobs.value_of(number) for number in range(COUNT)])
    # Under another name tasks do not reuse the connections of earlier ones.
    source = world.options(**{"client.id": "cancelled"})
    gate = Gate(str(tmp_path), 1000)
    port = int(world.address.rpartition(":")[2])
    before = established(port)

    with ThreadPoolExecutor(1) as thread:
        reading = thread.submit(jobs.read, world.spark, source, gate)
        executor = gate.wait_reached()
        held = (established(port) & held_by_tasks(executor)) - before
        world.spark.sparkContext.cancelAllJobs()
        with pytest.raises(Exception, match="cancelled"):
            reading.result()

    assert held, "the task was connected"
    wait_until(lambda: not held & established(port), "the connections are gone")
    assert sorted(jobs.read(world.spark, source)) == list(range(COUNT))
