"""Deficit round robin: turns of the event loop, shared between principals.

Pure: no clock, no I/O (Shreedhar and Varghese, 1995). A cost is known only after a turn, so a turn
may leave a debt, which later rounds pay back.
"""

from collections import deque
from typing import Final, Generic, TypeVar, final

Waiter = TypeVar("Waiter")

QUANTUM_S: Final = 0.001
"""Seconds of the event loop that each principal gets in a round."""
_TURNS_MAX: Final = 16
"""Turns of one principal in a round."""
_NEWEST: Final = 0.2
"""Weight of the newest cost in the mean cost of a turn."""


@final
class _Line(Generic[Waiter]):
    """The waiting turns of one principal."""

    __slots__ = ("cost_s", "credit_s", "waiting")

    def __init__(self) -> None:
        self.waiting: deque[Waiter] = deque()
        self.credit_s = QUANTUM_S
        self.cost_s = QUANTUM_S / _TURNS_MAX


@final
class DeficitRoundRobin(Generic[Waiter]):
    """Lines of waiting turns, by principal.

    Invariant: in each round, a principal without debt that waits gets a turn. A principal with
    credit needs no turn while none of its own turns waits: its credit is that of the round.
    """

    def __init__(self) -> None:
        """Start without lines."""
        self._lines: dict[str, _Line[Waiter]] = {}
        self._waiting_count = 0

    def __len__(self) -> int:
        """Return the number of waiting turns."""
        return self._waiting_count

    def has_credit(self, key: str) -> bool:
        """Return whether a principal may go on without a turn."""
        line = self._lines.get(key)
        return line is None or (line.credit_s > 0 and not line.waiting)

    def clear(self) -> None:
        """Forget all credits and debts, if no turn waits."""
        if not self._waiting_count:
            self._lines.clear()

    def add(self, key: str, waiter: Waiter) -> None:
        """Queue a turn of a principal."""
        self._line(key).waiting.append(waiter)
        self._waiting_count += 1

    def discard(self, key: str, waiter: Waiter) -> None:
        """Drop a turn that waits no longer."""
        line = self._lines.get(key)
        if line is not None and waiter in line.waiting:
            line.waiting.remove(waiter)
            self._waiting_count -= 1

    def took(self, key: str, cost_s: float) -> None:
        """Charge the cost of a turn, or of work without one."""
        line = self._line(key)
        line.credit_s -= cost_s
        line.cost_s += _NEWEST * (cost_s - line.cost_s)

    def next_round(self) -> list[Waiter]:
        """Return the turns of the next round, one principal after the other, none if none wait."""
        if not self._waiting_count:
            self._lines.clear()
            return []
        # Rounds in which all waiting principals pay back their debts are skipped.
        debt_s = min(max(0.0, -line.credit_s) for line in self._lines.values() if line.waiting)
        granted: list[Waiter] = []
        for key, line in list(self._lines.items()):
            line.credit_s = min(QUANTUM_S, line.credit_s + debt_s + QUANTUM_S)
            if not line.waiting:
                if line.credit_s >= QUANTUM_S:
                    del self._lines[key]
                continue
            budget_s = line.credit_s
            for _ in range(_TURNS_MAX):
                if not line.waiting or budget_s <= 0:
                    break
                granted.append(line.waiting.popleft())
                budget_s -= line.cost_s
        self._waiting_count -= len(granted)
        return granted

    def _line(self, key: str) -> _Line[Waiter]:
        line = self._lines.get(key)
        if line is None:
            line = self._lines[key] = _Line()
        return line
