"""Executors and drivers are killed, tasks fail and are done twice: each row is there once."""

import pytest

from tests.system.spark_trials import jobs
from tests.system.spark_trials.trial import ROW_COUNT, Trial, is_each_once


def test_a_batch_read_whose_executor_is_killed_has_each_row_once(trial: Trial) -> None:
    trial.fill()
    gate = trial.gate()

    reading = trial.driver.start(jobs.read, trial.source(), gate)
    trial.kill_executor(gate)

    assert is_each_once(reading.result())


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
def test_a_task_that_fails_when_it_has_staged_is_done_again_and_each_row_is_there_once(
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
