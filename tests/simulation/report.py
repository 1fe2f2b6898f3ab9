"""What there is to say of a run of any kind, and how an end of it is judged."""

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
    """What there is to say of one run."""

    plan: PlanType
    checker: str | None
    """Which checker objected, `None` when none did."""
    problem: str
    """What it said."""
    sometimes: dict[str, int]
    """The probes that it has reached, and how often."""
    counts: dict[str, int]
    """Events, crashes, acknowledged and read records, and whatever else is counted."""
    simulated_s: float
    fingerprint: str
    objectors: list[str] = []
    """All checkers that objected, the first one first, if the run was to go on."""


def judged(run: Callable[[], object], *, asserts: bool = False) -> tuple[str | None, str]:
    """Return which checker objects to a run, and what it says; `None` if none does.

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
        return "Liveness", "the run does not come to its end"
    return type(error).__name__, "".join(format_exception(error)[-6:])


def _violations_in(error: BaseException) -> list[ViolationError]:
    if isinstance(error, ViolationError):
        return [error]
    inner: Sequence[BaseException] = getattr(error, "exceptions", ())
    return [violation for each in inner for violation in _violations_in(each)]
