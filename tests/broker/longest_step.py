"""The longest time for which a task holds the loop."""

from collections.abc import Generator
from contextlib import contextmanager
from time import thread_time
from typing import final

import trio


@final
class LongestStep(trio.abc.Instrument):
    """CPU time of the longest step of any task but the one that measures."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.task_name = ""
        self._own_task = trio.lowlevel.current_task()
        self._began_at = thread_time()

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        del task
        self._began_at = thread_time()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        seconds = thread_time() - self._began_at
        if seconds > self.seconds and task is not self._own_task:
            self.seconds, self.task_name = seconds, task.name


@contextmanager
def longest_step() -> Generator[LongestStep, None, None]:
    """Measure the steps of all other tasks of this loop during the block."""
    found = LongestStep()
    trio.lowlevel.add_instrument(found)
    try:
        yield found
    finally:
        trio.lowlevel.remove_instrument(found)
