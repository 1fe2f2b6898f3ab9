"""How the tests are shared out: `make test` has a process for each core; each takes whole files.

A file is what shares set-ups, so it stays in one process. Some folders stay together as well: the
tests that start brokers of their own, because no two of them shall compete; and those of Spark,
which share what takes long to start.
"""

from typing import Final, final

import pytest
from xdist.scheduler import LoadScopeScheduling

_UNITS: Final = {
    "tests that start brokers": (
        "tests/system/histories/",
        "tests/system/integration/",
        "tests/system/netns/",
        "tests/system/powercut/",
        "tests/system/queue_trials/",
    ),
    "tests of Spark": ("tests/system/spark/",),
}
_ALONE: Final = "tests/system/docs/test_blocks.py"
"""The tests of this file share nothing: each runs another page of docs/."""

_TAKE_LONG: Final = ("tests/simulation/", "tests/broker/", "tests/coordinator/")
"""These come next and short files last: then all processes end at about the same time."""


def unit_of(test: str) -> str:
    """Return what runs one after the other in one process, of which a test is part."""
    for unit, folders in _UNITS.items():
        if test.startswith(folders):
            return unit
    return test if test.startswith(_ALONE) else test.partition("::")[0]


def place_of(test: str) -> int:
    """Return 0 for a test that is to begin early, and more for one that may come later."""
    units = list(_UNITS)
    if (unit := unit_of(test)) in units:
        return units.index(unit)
    return len(units) + (not test.startswith(_TAKE_LONG))


@final
class WholeFiles(LoadScopeScheduling):
    """Gives the next unit to whichever process has nothing left to do."""

    def __init__(self, config: pytest.Config, log: object) -> None:
        """Hand out units in the order in which their first tests were collected."""
        config.option.loadscopereorder = False
        super().__init__(config, log)

    def _split_scope(self, nodeid: str) -> str:
        return unit_of(nodeid)
