"""Tests of the detector of defects that a broker only logs."""

import logging

from tests.simulation.checkers.run_history import ViolationError
from tests.simulation.defects import no_defect_unheard
from tests.simulation.machine.faulty_disk import StaleHandleError
from tidelog.broker.queues.supervisor import supervising
from tidelog.wire.errors import BrokerError, UnexpectedServerError

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


def test_a_log_entry_of_a_dead_process_is_no_defect() -> None:
    heard: list[BaseException] = []

    with no_defect_unheard(heard.append):
        LOGGER.error("a request failed", exc_info=StaleHandleError("dead"))

    assert not heard


def fail(error: Exception) -> None:
    raise error


class Served:
    """A partition of a queue with a failure."""

    name = "orders"

    def __init__(self) -> None:
        self.number = 3
        self.error: BrokerError | None = None

    def drop(self, error: BrokerError) -> None:
        self.error = error


def test_a_defect_of_a_queue_partition_is_an_objection() -> None:
    heard: list[BaseException] = []
    hosted = Served()

    with no_defect_unheard(heard.append), supervising(hosted):
        fail(LookupError("what"))

    (objection,) = heard
    assert isinstance(objection, ViolationError)
    assert objection.checker == "NoDefects"
    assert "partition 3 of queue 'orders' failed unexpectedly" in str(objection)
    assert "LookupError: what" in str(objection)
    assert isinstance(hosted.error, UnexpectedServerError)


def test_an_objection_that_a_broker_logs_as_a_defect_is_unchanged() -> None:
    heard: list[BaseException] = []
    objection = ViolationError("JournalIsBelieved", "it is not")

    with no_defect_unheard(heard.append), supervising(Served()):
        fail(objection)

    assert heard == [objection]


def test_the_detector_is_removed_at_the_end() -> None:
    before = (list(LOGGER.handlers), LOGGER.propagate)

    with no_defect_unheard(lambda _: None):
        assert (LOGGER.handlers, LOGGER.propagate) != before

    assert (LOGGER.handlers, LOGGER.propagate) == before
