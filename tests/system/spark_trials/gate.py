"""Gate in the rows of a job, at which a task waits until it is opened, or fails.

Jobs run in other processes than tests, so a gate is a folder: its files show the state of both.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import final

from tests.system.spark_trials.waiting import wait_until


@final
@dataclass(frozen=True, slots=True)
class Gate:
    """Blocks the first task that arrives with a row; later tasks pass."""

    folder: str
    number: int
    """The row."""
    failing: bool = False
    """Whether the first task fails instead of waiting."""

    @property
    def _reached(self) -> Path:
        return Path(self.folder, "reached")

    @property
    def _opened(self) -> Path:
        return Path(self.folder, "opened")

    # -- in tests -------------------------------------------------------------------------------

    def wait_reached(self) -> int:
        """Wait until a task waits there; return the process of its executor."""
        wait_until(lambda: self._reached.exists() and bool(self._reached.read_text()), "the row")
        return int(self._reached.read_text())

    def open(self) -> None:
        """Let the task continue."""
        self._opened.touch()

    # -- in tasks -------------------------------------------------------------------------------

    def pass_by(self, number: int) -> None:
        """Pass with one row.

        Raises:
            OSError: This task was to fail.
        """
        if number != self.number or not self._is_first():
            return
        wait_until(self._opened.exists, "the gate to open")
        if self.failing:
            raise OSError("this task was to fail")

    def _is_first(self) -> bool:
        try:
            with self._reached.open("x") as file:
                file.write(str(_parent_of(os.getppid())))
        except FileExistsError:
            return False
        return True


def _parent_of(pid: int) -> int:
    """Return the parent of a process: an executor starts one that starts those for tasks."""
    stat = Path(f"/proc/{pid}/stat").read_text()
    return int(stat.rpartition(")")[2].split()[1])
