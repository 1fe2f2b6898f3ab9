"""Test of a Spark cluster with executor processes, one of which is killed."""

import os
import signal
from pathlib import Path

from tests.system.spark.world import World
from tests.system.spark_trials import jobs
from tests.system.spark_trials.driver import CLUSTER, Driver
from tests.system.spark_trials.gate import Gate
from tests.system.spark_trials.standalone import standalone

COUNT = 4000


def test_after_the_kill_of_a_standalone_executor_each_row_exists_once(
    world: World, tmp_path: Path
) -> None:
    world.create(2)
    copied = world.named(f"{world.topic}-copy")
    copied.create(2)
    servers = {"bootstrap.servers": world.address}
    source = {**servers, "subscribe": world.topic, "startingOffsets": "earliest"}
    gate = Gate(str(tmp_path), COUNT // 2)

    with standalone(tmp_path, ["127.0.0.1"]) as master:
        driver = Driver(tmp_path, master, CLUSTER)
        try:
            driver.do(jobs.write, {**servers, "topic": world.topic}, COUNT)
            sink = {**servers, "topic": copied.topic}
            copying = driver.start(jobs.copy, source, sink, str(tmp_path), gate)
            os.kill(gate.wait_reached(), signal.SIGKILL)
            gate.open()
            copying.result()
            numbers = driver.do(jobs.read, {**source, "subscribe": copied.topic})
        finally:
            driver.close()

    assert sorted(numbers) == list(range(COUNT))
