"""Tests of other modes of Spark; the other tests here use a cluster."""

from tests.system.spark_trials import jobs
from tests.system.spark_trials.driver import Driver
from tests.system.spark_trials.trial import Trial, is_each_once

COUNT = 1000


def write_copy_and_read(trial: Trial, driver: Driver) -> None:
    """Write numbers, copy them by a stream, and read the copy."""
    copied = f"{trial.topic}-copy"
    trial.create()
    trial.create(copied)
    source = trial.source(maxOffsetsPerTrigger="600")

    driver.do(jobs.write, trial.sink(trial.topic), COUNT)
    driver.do(jobs.copy, source, trial.sink(copied), str(trial.folder))

    assert is_each_once(driver.do(jobs.read, {**trial.source(), "subscribe": copied}), COUNT)


def test_writes_and_reads_work_in_spark_connect(trial: Trial) -> None:
    driver = Driver(trial.folder, "connect", {})
    try:
        write_copy_and_read(trial, driver)
    finally:
        driver.close()


def test_writes_and_reads_work_in_a_local_cluster(trial: Trial) -> None:
    driver = Driver(trial.folder, "local-cluster[2,1,512]", {"spark.executor.memory": "512m"})
    try:
        write_copy_and_read(trial, driver)
    finally:
        driver.close()
