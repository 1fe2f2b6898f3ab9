"""Distribution of tests over processes, one more than cores; each process takes whole files.

The tests of a file share fixtures, so a file stays in one process. Some folders stay together as
well: tests that start brokers of their own, because they must not compete; and tests of Spark,
which share a slow start.
"""

from typing import Final, final

import pytest
from xdist.scheduler import LoadScopeScheduling

_UNITS: Final = {
    "tests that start brokers": (
        "tests/fuzz/",
        "tests/system/histories/",
        "tests/system/integration/",
        "tests/system/netns/",
        "tests/system/postgresql/",
        "tests/system/powercut/",
        "tests/system/prometheus/",
        "tests/system/queue_trials/",
        "tests/system/sqs/",
        "tests/system/sqs_trials/",
        "tests/system/versions/",
    ),
    "tests of Spark": ("tests/system/spark/",),
}
_ALONE: Final = "tests/system/docs/test_blocks.py"
"""The tests of this file share nothing: each runs another page of docs/."""

_TAKE_LONG: Final = ("tests/simulation/", "tests/broker/", "tests/coordinator/")
"""Folders that come next; short files come last, so that all processes end at about the same time.
"""


def unit_of(test: str) -> str:
    """Return the unit of a test; the tests of a unit run in one process."""
    for unit, folders in _UNITS.items():
        if test.startswith(folders):
            return unit
    return test if test.startswith(_ALONE) else test.partition("::")[0]


def place_of(test: str) -> int:
    """Return the rank of a test in the order of starts; 0 starts first."""
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
