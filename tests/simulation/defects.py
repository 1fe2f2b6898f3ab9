"""Detector of defects that brokers write to their log.

A broker continues after a defect of its own, so other checkers may miss it. In a simulated run it
ends the run.
"""

import logging
from collections.abc import Callable, Generator
from contextlib import contextmanager
from traceback import format_exception
from typing import final

from tests.simulation.checkers.run_history import ViolationError
from tests.simulation.machine.faulty_disk import StaleHandleError

_LOGGER = logging.getLogger("tidelog.broker")


@contextmanager
def no_defect_unheard(fail: Callable[[BaseException], None]) -> Generator[None]:
    """Call `fail` with an objection of `NoDefects` for each defect logged while the block runs."""
    listener = _Listener(fail)
    propagates = _LOGGER.propagate
    _LOGGER.addHandler(listener)
    _LOGGER.propagate = False
    try:
        yield
    finally:
        _LOGGER.propagate = propagates
        _LOGGER.removeHandler(listener)


@final
class _Listener(logging.Handler):
    def __init__(self, fail: Callable[[BaseException], None]) -> None:
        super().__init__(logging.ERROR)
        self._fail = fail

    def emit(self, record: logging.LogRecord) -> None:
        error = None if record.exc_info is None else record.exc_info[1]
        if isinstance(error, StaleHandleError):
            return  # A dead process logs it, without any effect.
        if isinstance(error, ViolationError):
            self._fail(error)  # An observer of the broker objected, in a task of its own.
            return
        shown = "" if error is None else "".join(format_exception(error)[-4:])
        self._fail(ViolationError("NoDefects", f"{record.getMessage()}: {shown}"))
