"""Fixtures of all tests of the broker: no defect stays unseen."""

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture
def defects() -> Iterator[list[str]]:
    """Return the defects that the broker's supervisors have caught so far."""
    found: list[str] = []

    class Collector(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            found.append(self.format(record))

    collector = Collector(logging.ERROR)
    logger = logging.getLogger("tidelog.broker")
    logger.addHandler(collector)
    yield found
    logger.removeHandler(collector)


@pytest.fixture(autouse=True)
def no_defect_is_overlooked(defects: list[str]) -> Iterator[None]:
    """Fail a test with a defect, unless the test has checked and cleared it."""
    yield
    assert defects == []
