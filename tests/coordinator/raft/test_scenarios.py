"""Scenarios of small clusters, step by step, in `scenarios/*.txt`.

`tests/coordinator/raft/raft_scenario.py` documents the commands. After a change of the core that is
meant to change the output, rewrite the files, and read the difference before you commit it:

    python -m tests.coordinator.raft.raft_scenario
"""

from pathlib import Path

import pytest

from tests.coordinator.raft.raft_scenario import perform

SCENARIOS = sorted((Path(__file__).parent / "scenarios").glob("*.txt"))


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_a_scenario_has_its_expected_output(path: Path) -> None:
    told = path.read_text(encoding="utf-8")

    assert perform(told) == told
