"""Scenarios: stories of a queue, told step by step in `scenarios/*.txt`.

`tests/queue_layer/queue_scenario.py` documents the commands. After a change of the core that is
meant to change the output, rewrite the files, and read the difference before you commit it:

    python -m tests.queue_layer.rewrite
"""

from pathlib import Path

import pytest

from tests.queue_layer.queue_scenario import perform

SCENARIOS = sorted((Path(__file__).parent / "scenarios").glob("*.txt"))


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_a_story_goes_as_it_is_told(path: Path) -> None:
    told = path.read_text(encoding="utf-8")

    assert perform(told) == told


def test_there_are_stories() -> None:
    assert len(SCENARIOS) >= 10
