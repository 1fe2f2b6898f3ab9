"""Test of tasks that run twice at the same time."""

import pytest

from tests.system.spark_trials import jobs
from tests.system.spark_trials.trial import ROW_COUNT, Trial, is_each_once

_SPECULATION = {
    "spark_speculation": "true",
    "spark_speculation_interval": "50ms",
    "spark_speculation_multiplier": "1",
    "spark_speculation_quantile": "0.5",
}


@pytest.mark.statement("s30")
def test_a_second_attempt_beside_a_slow_one_adds_no_row(trial: Trial) -> None:
    trial.create()
    gate = trial.gate(ROW_COUNT // 8)
    driver = trial.drivers.get(**_SPECULATION)

    writing = driver.start(jobs.write, trial.sink(trial.topic), ROW_COUNT, gate)
    gate.wait_reached()
    # The first attempt waits until a second one has completed the job.
    writing.result()
    gate.open()

    assert is_each_once(trial.numbers(trial.topic))
