"""Deterministic scheduler of trio, observed, and able to hold tasks back.

This is the only module that uses private names of trio: the switch and the random numbers of its
scheduler (which Hypothesis uses too), its queue of runnable tasks, and the way in which it
interrupts a waiting task. `test_scheduler.py` and `test_clock.py` fail when they change.
"""

# pyright: reportPrivateUsage=false

from collections import deque
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from random import Random
from typing import Any, Final, NoReturn, Protocol, final

import trio
from trio._core import _run

_ASIDE: Final = -1
"""The number of tasks that are not part of the run."""

_tasks_of: "ContextVar[ProcessTasks | None]" = ContextVar("_tasks_of", default=None)


@final
class ProcessTasks(trio.abc.Instrument):
    """The tasks of one simulated process, which pause and resume together.

    A task that is held back is like one without a processor: its deadlines pass and its events may
    arrive, and it sees them when it resumes.

    Invariant: it is an instrument of the run just while tasks are held back.
    """

    def __init__(self) -> None:
        """Start without tasks."""
        self._is_holding = False
        self._held: list[trio.lowlevel.Task] = []

    def adopt_this_task(self) -> None:
        """Adopt the calling task, and all tasks that it starts from now on."""
        _tasks_of.set(self)

    def hold(self) -> None:
        """Hold all tasks; a step in progress is finished."""
        if self._is_holding:
            return
        self._is_holding = True
        trio.lowlevel.add_instrument(self)
        runnable = _runnable_tasks()
        waiting = list(runnable)
        runnable.clear()
        for task in waiting:
            (self._held if self._has(task) else runnable).append(task)

    def release(self) -> None:
        """Resume all tasks."""
        if self._is_holding:
            self._is_holding = False
            trio.lowlevel.remove_instrument(self)
            held, self._held = self._held, []
            _runnable_tasks().extend(held)

    def task_scheduled(self, task: trio.lowlevel.Task) -> None:
        """See `trio.abc.Instrument`."""
        if self._has(task):
            assert _runnable_tasks().pop() is task
            self._held.append(task)

    def _has(self, task: trio.lowlevel.Task) -> bool:
        return task.context.get(_tasks_of) is self


class StepRecorder(Protocol):
    """Records the steps of tasks."""

    is_aside: bool
    """Whether the steps are not part of the run; see `World.call_aside`."""

    def step(self, number: int) -> None:
        """Record a step of task `number`."""
        ...

    def spawned(self, number: int, name: str) -> None:
        """Record the first step of task `number`."""
        ...


@final
class Scheduler(trio.abc.Instrument):
    """Numbers the tasks of a run and records every step."""

    def __init__(self, recorder: StepRecorder, on_step: Callable[[], None]) -> None:
        """Call `recorder` for every step, and then `on_step`."""
        self._recorder = recorder
        self._on_step = on_step
        self._numbers: dict[trio.lowlevel.Task, int] = {}
        self._next_number = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        """See `trio.abc.Instrument`."""
        number = self._numbers.get(task)
        if number is None and self._recorder.is_aside:
            number = _ASIDE
        elif number is None:
            number = self._numbers[task] = self._next_number
            self._next_number += 1
            self._recorder.spawned(number, task.name)
        self._recorder.step(number)
        self._on_step()

    def task_exited(self, task: trio.lowlevel.Task) -> None:
        """See `trio.abc.Instrument`."""
        self._numbers.pop(task, None)


@contextmanager
def deterministic_scheduling(random: Random) -> Generator[None]:
    """Let `random` alone decide the order of runnable tasks, in every `trio.run` of the block."""
    switch, dice = _run._ALLOW_DETERMINISTIC_SCHEDULING, _run._r.getstate()
    _run._ALLOW_DETERMINISTIC_SCHEDULING = True  # type: ignore[misc]
    _run._r.setstate(random.getstate())
    try:
        yield
    finally:
        _run._ALLOW_DETERMINISTIC_SCHEDULING = switch  # type: ignore[misc]
        _run._r.setstate(dice)


def keep_order() -> Callable[[], None]:
    """Return a function that undoes all decisions of the scheduler from now on."""
    dice = _run._r.getstate()
    return lambda: _run._r.setstate(dice)


def has_runnable_tasks() -> bool:
    """Return whether a task can make a step now."""
    return bool(_runnable_tasks())


def is_waiting_for_idle() -> bool:
    """Return whether a task is in `trio.testing.wait_all_tasks_blocked`."""
    return bool(_runner().waiting_for_idle)


def describe_waiting_tasks() -> str:
    """Return a line for every task of the run: its name, and where it waits."""
    lines: list[str] = []
    for task in _all_tasks():
        frames = [f"{frame.f_code.co_qualname}:{line}" for frame, line in task.iter_await_frames()]
        lines.append(f"  {task.name} in {' > '.join(frames)}")
    return "\n".join(sorted(lines))


def interrupt_waiting_tasks(error: BaseException) -> None:
    """Raise `error` in all waiting tasks, even if they are shielded."""

    def raise_error() -> NoReturn:
        raise error

    for task in _all_tasks():
        if task._abort_func is not None:
            task._attempt_abort(raise_error)


def _all_tasks() -> list[trio.lowlevel.Task]:
    root = trio.lowlevel.current_root_task()
    tasks = [] if root is None else [root]
    for task in tasks:  # It grows during the walk.
        for nursery in task.child_nurseries:
            tasks.extend(sorted(nursery.child_tasks, key=lambda task: task._counter))
    return [task for task in tasks if not task.name.startswith("<")]


def _runnable_tasks() -> deque[trio.lowlevel.Task]:
    return _runner().runq


def _runner() -> _run.Runner:
    context: Any = _run.GLOBAL_RUN_CONTEXT  # Type checkers see nothing in it.
    runner: _run.Runner = context.runner
    return runner
