"""Brokers are killed while Spark reads and writes: no row is missing, and none is there twice.

A topic with one replica waits for its broker to come back; one with three gets another leader.
"""

import pytest

from tests.system.spark_trials import jobs
from tests.system.spark_trials.trial import Trial, is_each_once


@pytest.mark.parametrize("replicas", [1, 3])
def test_a_batch_read_outlives_the_broker_that_it_reads_from(trial: Trial, replicas: int) -> None:
    trial.fill(replicas=replicas)
    gate = trial.gate()

    reading = trial.driver.start(jobs.read, trial.source(), gate)
    killed = trial.kill_leader(trial.topic, gate)
    if replicas == 3:
        assert is_each_once(reading.result()), "another one leads"
    trial.brokers.start(killed)

    assert is_each_once(reading.result())


@pytest.mark.parametrize("replicas", [1, 3])
def test_a_streaming_copy_outlives_the_broker_that_it_reads_from_and_writes_to(
    trial: Trial, replicas: int
) -> None:
    trial.fill(replicas=replicas)
    copied = f"{trial.topic}-copy"
    trial.create(copied, replicas=replicas)
    gate = trial.gate()

    source, sink = trial.source(maxOffsetsPerTrigger="20000"), trial.sink(copied)
    copying = trial.driver.start(jobs.copy, source, sink, str(trial.folder), gate)
    killed = trial.kill_leader(copied, gate)
    if replicas == 3:
        copying.result()
    trial.brokers.start(killed)
    copying.result()

    assert is_each_once(trial.numbers(copied))
