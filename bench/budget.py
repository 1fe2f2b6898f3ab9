"""The budget of a request: Python calls of broker and client, and turns of the client's loop. Pure.

It is a ratchet. A request that costs more than its budget fails the test; so does one that costs
much less, until its budget here is lowered. Where requests and replies can cross, costs depend on
the machine, and only the upper bound counts. The same holds for a sync of a slow disk.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from math import ceil
from typing import Final

_SLACK: Final = 0.15
"""Share of a budget that may be unused."""
_ROOM: Final = 0.05
"""Share of a measured cost by which its budget is higher."""
_CROSSING: Final = ("work", "flow", "tail")
"""Kinds whose requests and replies can cross, so that their costs vary."""
_MORE: Final = 0.15
"""Further room for these."""
_VARYING: Final = (*_CROSSING, "commit")
"""Those, and kinds with a sync: it runs in a thread while the disk is slow."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Costs of one request, or their upper bounds."""

    broker: float
    """Python calls in the broker, with each step of a coroutine."""
    client: float
    """Python calls in the client."""
    turns: float
    """Turns of the client's loop."""


BUDGET: Final = {
    "send": Cost(broker=116, client=152, turns=1.15),
    "fifo": Cost(broker=195, client=209, turns=1.15),
    "receive": Cost(broker=183, client=137, turns=1.1),
    "delete": Cost(broker=159, client=105, turns=1.2),
    "work": Cost(broker=55, client=130, turns=0.7),
    "flow": Cost(broker=600, client=520, turns=5.0),
    "produce": Cost(broker=111, client=135, turns=1.1),
    "fetch": Cost(broker=122, client=258, turns=2.1),
    "tail": Cost(broker=255, client=375, turns=3.6),
    "commit": Cost(broker=355, client=217, turns=2.1),
    "staged": Cost(broker=856, client=907, turns=7.35),
}
"""The budget of each kind of request, on Python `COUNTED_ON`."""
COUNTED_ON: Final = (3, 11)
"""Version of Python of the budget; later ones inline comprehensions, and make fewer calls."""


@dataclass(frozen=True, slots=True)
class Breach:
    """A cost that is not within its budget."""

    kind: str
    side: str
    """Field of `Cost`."""
    measured: float
    budget: float

    @property
    def is_too_high(self) -> bool:
        """Whether the request costs too much; otherwise its budget is too high."""
        return self.measured > self.budget

    @property
    def text(self) -> str:
        """Description in a sentence."""
        found = f"{self.kind}: {self.side} {self.measured:.2f}, and the budget is {self.budget:g}"
        if self.is_too_high:
            return f"{found}: more than it may cost"
        return f"{found}: an improvement, so lower it to {lowered(self.kind, self.measured):g}"


def lowered(kind: str, measured: float) -> float:
    """Return the budget of a kind for a measured cost."""
    high = measured * (1 + _ROOM + _more(kind))
    return ceil(high) if high >= 100 else ceil(high * 20) / 20  # noqa: PLR2004  (digits)


def _more(kind: str) -> float:
    return _MORE if kind in _CROSSING else 0.0


def breaches(kind: str, measured: Cost, budget: Cost, *, is_exact: bool = True) -> Sequence[Breach]:
    """Return the costs of a kind that are not within its budget.

    Args:
        kind: Name of the kind.
        measured: The measured costs.
        budget: Their bounds.
        is_exact: Whether budgets that are much too high are breaches as well.
    """
    found: list[Breach] = []
    has_slack = not is_exact or kind in _VARYING
    for field in fields(Cost):
        cost, bound = getattr(measured, field.name), getattr(budget, field.name)
        if cost > bound or (not has_slack and cost < bound * (1 - _SLACK)):
            found.append(Breach(kind, field.name, cost, bound))
    return found
