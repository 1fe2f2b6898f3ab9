"""Report of a run of any kind, and the verdict on its end."""

from collections.abc import Callable, Sequence
from traceback import format_exception
from typing import Any, Generic, TypeVar

import msgspec
import trio

from tests.simulation.broker.plans import RunPlan
from tests.simulation.checkers.run_history import ViolationError
from tests.simulation.machine.clock import DeadlockError, EventBudgetError

PlanType = TypeVar("PlanType", bound=RunPlan[Any])


class RunReport(msgspec.Struct, Generic[PlanType], frozen=True):
    """Report of one run."""

    plan: PlanType
    checker: str | None
    """The checker that objected, `None` if none did."""
    problem: str
    """The objection."""
    sometimes: dict[str, int]
    """Counts of the reached probes."""
    counts: dict[str, int]
    """Counts of events, crashes, acknowledged and read records, and more."""
    simulated_s: float
    fingerprint: str
    objectors: list[str] = []
    """All checkers that objected, in order, if the run continues after objections."""


def judged(run: Callable[[], object], *, asserts: bool = False) -> tuple[str | None, str]:
    """Return the checker that objects to a run, and its objection; `None` if none does.

    With `asserts`, the run checks promises with assertions and time limits as well.
    """
    try:
        run()
    except ViolationError as error:
        return error.checker, str(error)
    except EventBudgetError as error:
        return "EventBudget", str(error)
    except DeadlockError as error:
        return "Liveness", str(error)
    except Exception as error:  # noqa: BLE001  (a defect of whatever raised it)
        return _judged_error(error, asserts=asserts)
    return None, ""


def _judged_error(error: Exception, *, asserts: bool) -> tuple[str, str]:
    violations = _violations_in(error)
    if violations:  # Several tasks objected at once.
        return violations[0].checker, str(violations[0])
    if asserts and isinstance(error, AssertionError):
        return "Assertion", f"an assertion failed: {error}"
    if asserts and isinstance(error, trio.TooSlowError):
        return "Liveness", "the run does not end"
    return type(error).__name__, "".join(format_exception(error)[-6:])


def _violations_in(error: BaseException) -> list[ViolationError]:
    if isinstance(error, ViolationError):
        return [error]
    inner: Sequence[BaseException] = getattr(error, "exceptions", ())
    return [violation for each in inner for violation in _violations_in(each)]
