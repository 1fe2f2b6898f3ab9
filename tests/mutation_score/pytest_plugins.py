"""Plugins of pytest: recording of the tests of each line, and a choice of tests."""

from collections.abc import Generator, Sequence
from time import process_time
from typing import Final, final

import hypothesis
import pytest
from coverage import Coverage

PYTEST_OPTIONS: Final = (
    *("-q", "-p", "no:randomly", "-p", "no:cacheprovider"),
    *("-W", "ignore::pytest.PytestAssertRewriteWarning"),  # this process has imported hypothesis
)
"""Options of pytest in this process."""


@final
class LineRecorder:
    """Gives each test a coverage context of its own, and measures its CPU time."""

    def __init__(self, coverage: Coverage) -> None:
        """Switch contexts of `coverage`, which is started."""
        self._coverage = coverage
        self.seconds: dict[str, float] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Switch to the context of a test."""
        self._coverage.switch_context(item.nodeid)
        began_at = process_time()
        result = yield
        self.seconds[item.nodeid] = process_time() - began_at
        self._coverage.switch_context("")
        return result


@final
class ChosenTests:
    """Runs these tests only, in their order, without shrinking of examples."""

    def __init__(self, tests: Sequence[str]) -> None:
        """Run these node ids."""
        self._ranks = {test: rank for rank, test in enumerate(tests)}

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self) -> None:
        """Replace the profile of the conftest, before tests are imported."""
        hypothesis.settings.load_profile("mutants")

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Deselect all other tests.

        The id of a parametrized test may contain a constant that is mutated. So all variants of a
        test run if one of them is missing.
        """
        missing = {_function_of(test) for test in self._ranks.keys() - {i.nodeid for i in items}}
        items[:] = [
            item
            for item in items
            if item.nodeid in self._ranks or _function_of(item.nodeid) in missing
        ]
        items.sort(key=lambda item: self._ranks.get(item.nodeid, len(self._ranks)))


def _function_of(test: str) -> str:
    """Return a node id without parameters."""
    return test.partition("[")[0]
