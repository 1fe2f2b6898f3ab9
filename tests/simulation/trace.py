"""Trace of a run, line by line, and its fingerprint.

Two runs are the same when their fingerprints are: these cover every event of network, disk and
process, and every step of every task. If they differ, the first different line shows where the
real world leaked in.
"""

import hashlib
from collections.abc import Callable
from typing import final

_LINES_AT_ONCE = 512


@final
class Trace:
    """The lines of one run.

    Invariant: nothing in a line depends on an address, a hash or the real time.
    """

    def __init__(
        self,
        now: Callable[[], float],
        *,
        show: Callable[[str], None] | None = None,
        shows_steps: bool = False,
    ) -> None:
        """Stamp lines with `now`, and show each to `show`; steps of tasks only if told to."""
        self.line_count = 0
        self.is_aside = False
        """Whether events are shown only, since they are not part of the run."""
        self._now = now
        self._show = show
        self._show_step = show if shows_steps else None
        self._hash = hashlib.blake2b(digest_size=16)
        self._pending: list[str] = []

    def note(self, subject: str, what: str) -> None:
        """Add an event of a node, a link, or the world."""
        assert " at 0x" not in what, f"an address is different in every process: {what}"
        aside = "aside " if self.is_aside else ""
        line = f"{self._now():.6f} {aside}{subject} {what}"
        self._add(line)
        if self._show is not None:
            self._show(line)

    def spawned(self, number: int, name: str) -> None:
        """See `tests.simulation.machine.scheduler.StepRecorder`."""
        line = f"{self._now():.6f} scheduler task {number} is {name}"
        self._add(line)
        if self._show_step is not None:
            self._show_step(line)

    def step(self, number: int) -> None:
        """See `tests.simulation.machine.scheduler.StepRecorder`."""
        self._add(str(number))
        if self._show_step is not None and not self.is_aside:
            self._show_step(f"{self._now():.6f} scheduler step of {number}")

    def fingerprint(self) -> str:
        """Return what is equal for equal runs, in hexadecimal digits."""
        self._digest()
        return self._hash.hexdigest()

    def _add(self, line: str) -> None:
        if self.is_aside:
            return
        self.line_count += 1
        self._pending.append(line)
        if len(self._pending) >= _LINES_AT_ONCE:
            self._digest()

    def _digest(self) -> None:
        if self._pending:
            self._hash.update("\n".join(self._pending).encode())
            self._hash.update(b"\n")
            self._pending.clear()
