"""Defects that a broker only writes to its log do not go unheard."""

import logging

from tests.simulation.checkers.book import ViolationError
from tests.simulation.defects import no_defect_unheard
from tests.simulation.faulty_disk import StaleHandleError

LOGGER = logging.getLogger("tidelog.broker")


def test_a_defect_is_an_objection() -> None:
    heard: list[BaseException] = []

    with no_defect_unheard(heard.append):
        LOGGER.error("a request failed", exc_info=KeyError("what"))

    (objection,) = heard
    assert isinstance(objection, ViolationError)
    assert objection.checker == "NoDefects"
    assert "a request failed" in str(objection)
    assert "KeyError: 'what'" in str(objection)


def test_what_a_dead_process_says_is_none() -> None:
    heard: list[BaseException] = []

    with no_defect_unheard(heard.append):
        LOGGER.error("a request failed", exc_info=StaleHandleError("dead"))

    assert not heard


def test_nobody_listens_afterwards() -> None:
    before = (list(LOGGER.handlers), LOGGER.propagate)

    with no_defect_unheard(lambda _: None):
        assert (LOGGER.handlers, LOGGER.propagate) != before

    assert (LOGGER.handlers, LOGGER.propagate) == before
