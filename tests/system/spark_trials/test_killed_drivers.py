"""Drivers are killed while they write: nothing of it is seen, and each row is there once later."""

import pytest

from tests.system.spark_trials import jobs
from tests.system.spark_trials.driver import DriverDiedError
from tests.system.spark_trials.trial import ROW_COUNT, Trial, is_each_once


def test_a_job_whose_driver_is_killed_leaves_nothing_and_can_be_run_again(trial: Trial) -> None:
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
def test_a_stream_whose_driver_is_killed_goes_on_from_its_checkpoint(trial: Trial) -> None:
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
