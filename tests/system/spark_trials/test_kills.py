"""Tests that each row exists once when brokers, drivers and executors of Spark are killed.

A topic with one replica waits for its broker to come back; one with three gets another leader.
"""

import json
from collections import Counter

import pytest

from tests.system.spark_trials import jobs
from tests.system.spark_trials.driver import DriverDiedError
from tests.system.spark_trials.trial import PARTITIONS, ROW_COUNT, Trial, is_each_once


@pytest.mark.parametrize("replicas", [1, 3])
def test_a_batch_read_outlives_the_broker_that_it_reads_from(trial: Trial, replicas: int) -> None:
    trial.fill(replicas=replicas)
    gate = trial.gate()

    reading = trial.driver.start(jobs.read, trial.source(), gate)
    killed = trial.kill_leader(trial.topic, gate)
    if replicas == 3:
        assert is_each_once(reading.result()), "another broker leads"
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


def test_a_job_whose_driver_is_killed_writes_nothing_and_can_be_repeated(trial: Trial) -> None:
    trial.create()
    gate = trial.gate(ROW_COUNT // 8)
    sink = trial.sink(trial.topic, transactionalId=trial.topic)

    writing = trial.driver.start(jobs.write, sink, ROW_COUNT, gate)
    trial.kill_driver(gate, staged=trial.topic)
    with pytest.raises(DriverDiedError):
        writing.result()
    assert trial.numbers(trial.topic) == []
    trial.driver.do(jobs.write, sink, ROW_COUNT)

    assert is_each_once(trial.numbers(trial.topic))


@pytest.mark.statement("s26")
def test_a_stream_whose_driver_is_killed_resumes_from_its_checkpoint(trial: Trial) -> None:
    trial.fill()
    copied = f"{trial.topic}-copy"
    trial.create(copied)
    gate = trial.gate(ROW_COUNT * 3 // 4)
    source, sink = trial.source(maxOffsetsPerTrigger="20000"), trial.sink(copied)

    copying = trial.driver.start(jobs.copy, source, sink, str(trial.folder), gate)
    gate.wait_reached()
    trial.kill_driver(gate)
    with pytest.raises(DriverDiedError):
        copying.result()
    assert is_each_once(trial.numbers(copied), 20_000), "the first batch is there, not the second"
    trial.driver.do(jobs.copy, source, sink, str(trial.folder))

    assert is_each_once(trial.numbers(copied))


def test_a_batch_read_whose_executor_is_killed_has_each_row_once(trial: Trial) -> None:
    trial.fill()
    gate = trial.gate()

    reading = trial.driver.start(jobs.read, trial.source(), gate)
    trial.kill_executor(gate)

    assert is_each_once(reading.result())


def test_bad_values_are_dead_letters_at_least_once_when_an_executor_is_killed(
    trial: Trial,
) -> None:
    trial.create()
    letters = f"{trial.topic}-bad"
    trial.create(letters)
    bad = {b"bad %d" % number for number in range(0, ROW_COUNT, 100)}
    good = [number for number in range(ROW_COUNT) if number % 100]
    pad = "x" * 1000  # The rows exceed the buffers between the tasks' processes.
    values = [json.dumps({"number": number, "pad": pad}).encode() for number in good]
    trial.brokers.write(trial.topic, [*bad, *values], PARTITIONS)
    gate = trial.gate(ROW_COUNT // 4 + 1)

    reading = trial.driver.start(
        jobs.decode,
        trial.source(
            **{
                "value.format": "json",
                "value.schema": "number bigint, pad string",
                "value.badRows": "deadLetter",
                "value.deadLetterTopic": letters,
            }
        ),
        gate,
    )
    trial.kill_executor(gate)

    assert sorted(reading.result()) == good
    counts = Counter(trial.brokers.values(letters))
    assert set(counts) == bad
    assert max(counts.values()) <= 2, "once, and once more for a task that was repeated"


def test_a_batch_write_whose_executor_is_killed_has_each_row_once(trial: Trial) -> None:
    trial.create()
    gate = trial.gate(ROW_COUNT // 8)

    writing = trial.driver.start(jobs.write, trial.sink(trial.topic), ROW_COUNT, gate)
    trial.kill_executor(gate, staged=trial.topic)
    writing.result()

    assert is_each_once(trial.numbers(trial.topic))


def test_a_streaming_write_whose_executor_is_killed_has_each_row_once(trial: Trial) -> None:
    trial.fill()
    copied = f"{trial.topic}-copy"
    trial.create(copied)
    gate = trial.gate()

    source, sink = trial.source(maxOffsetsPerTrigger="20000"), trial.sink(copied)
    copying = trial.driver.start(jobs.copy, source, sink, str(trial.folder), gate)
    trial.kill_executor(gate, staged=copied)
    copying.result()

    assert is_each_once(trial.numbers(copied))


@pytest.mark.statement("s28")
def test_a_task_that_fails_after_staging_is_retried_and_each_row_exists_once(
    trial: Trial,
) -> None:
    trial.create()
    gate = trial.gate(ROW_COUNT // 8, failing=True)

    writing = trial.driver.start(jobs.write, trial.sink(trial.topic), ROW_COUNT, gate)
    gate.wait_reached()
    trial.wait_staged(trial.topic)
    gate.open()
    writing.result()

    assert is_each_once(trial.numbers(trial.topic))
