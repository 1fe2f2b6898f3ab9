"""Scenarios of a queue, step by step, in `scenarios/*.txt`.

`tests/queue_layer/queue_scenario.py` documents the commands. After a change of the core that is
meant to change the output, rewrite the files, and read the difference before you commit it:

    python -m tests.queue_layer.queue_scenario
"""

from pathlib import Path

import pytest

from tests.queue_layer.queue_scenario import perform

SCENARIOS = sorted((Path(__file__).parent / "scenarios").glob("*.txt"))


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_a_scenario_gives_its_expected_output(path: Path) -> None:
    told = path.read_text(encoding="utf-8")

    assert perform(told) == told


def test_there_are_scenarios() -> None:
    assert len(SCENARIOS) >= 10
