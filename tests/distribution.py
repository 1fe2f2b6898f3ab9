"""How the tests are shared out: `make test` has a process for each core; each takes whole files.

A file is what shares set-ups, so it stays in one process. The tests that start processes of their
own are one unit: never do two of them run at once, however many cores there are.
"""

from typing import Final, final

import pytest
from xdist.scheduler import LoadScopeScheduling

PROCESSES: Final = "tests that start processes"
_START_PROCESSES: Final = (
    "tests/histories/",
    "tests/integration/",
    "tests/netns/",
    "tests/powercut/",
    "tests/queue_trials/",
)
_TAKE_LONG: Final = ("tests/simulation/", "tests/broker/", "tests/coordinator/")
"""These come next and short files last: then all processes end at about the same time."""


def unit_of(test: str) -> str:
    """Return what runs one after the other in one process, of which a test is part."""
    return PROCESSES if test.startswith(_START_PROCESSES) else test.partition("::")[0]


def place_of(test: str) -> int:
    """Return 0 for a test that is to begin early, and more for one that may come later."""
    if test.startswith(_START_PROCESSES):
        return 0
    return 1 if test.startswith(_TAKE_LONG) else 2


@final
class WholeFiles(LoadScopeScheduling):
    """Gives the next unit to whichever process has nothing left to do."""

    def __init__(self, config: pytest.Config, log: object) -> None:
        """Hand out units in the order in which their first tests were collected."""
        config.option.loadscopereorder = False
        super().__init__(config, log)

    def _split_scope(self, nodeid: str) -> str:
        return unit_of(nodeid)
