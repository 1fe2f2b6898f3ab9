"""Measurement of rows: all systems of a row in turn, many times."""

import os
import shutil
import sys
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from time import perf_counter
from typing import Final, final

from bench.peers.cases import Case, Group
from bench.peers.load import HangError
from bench.peers.progress import Progress
from bench.peers.promises import Promise
from bench.peers.results import OWN, LeftOut, RowId, RowResult, Sample, Store
from bench.peers.running import Running
from bench.peers.systems import Installed, System

_WARM_UP_BYTES: Final = 100
_WARM_UP_COUNT: Final = 100_000
_TIME_IS_UP: Final = "the time was up (--minutes)"


@final
@dataclass
class Session:
    """Session of the command: the systems to measure, and the store of results."""

    systems: Mapping[str, tuple[System, Installed]]
    """Systems by name; tidelog is always among them."""
    directory: Path
    """Directory on the disk to measure."""
    store: Store
    repeats: int
    """Repetitions for each system, without the warm-up."""
    is_quick: bool = False
    seconds_max: float = inf
    """Limit of the session; no row begins that would end after it."""
    progress: Progress = field(default_factory=lambda: Progress(0))
    _began: float = field(default_factory=perf_counter)
    _numbers: Iterator[int] = field(default_factory=lambda: iter(range(1 << 30)))

    @property
    def elapsed(self) -> float:
        """Seconds since the start of the session."""
        return perf_counter() - self._began

    def run(self, groups: Sequence[Group]) -> Generator[Group]:
        """Measure groups, and yield each at its end; a failure affects only its group."""
        self.progress = Progress(sum(group.seconds(self.repeats + 1) for group in groups))
        for group in groups:
            if self.elapsed >= self.seconds_max:
                for case in group.cases:
                    self._leave_out(_row(group, case), "", _TIME_IS_UP)
                continue
            self.store.begin(group.workload.name, group.promise.value)
            say(f"{group.workload.name}, {group.promise.value}: {', '.join(group.names)}")
            try:
                with self._running(group) as running:
                    for case in group.cases:
                        self._measure(group, case, running)
            except Exception as error:  # noqa: BLE001  (a failed peer must not stop the others)
                self._leave_out(RowId(group.workload.name, group.promise.value, ""), "", error)
            yield group

    @contextmanager
    def _running(self, group: Group) -> Generator[dict[str, Running]]:
        """Start the servers of all systems of a group that can be started."""
        found: dict[str, Running] = {}
        with ExitStack() as stack:
            for name in group.names:
                system, installed = self.systems[name]
                place = self.directory / f"{name}-{group.promise.value}-{next(self._numbers)}"
                stack.callback(shutil.rmtree, place, ignore_errors=True)
                try:
                    servers = stack.enter_context(system.start(installed, place, group.promise))
                    running = Running(system, installed, servers, group.promise)
                    stack.callback(running.errands.close)
                    if group.workload.role == "log" and group.workload.is_warmed_up:
                        self._warm_up(running)
                except Exception as error:  # noqa: BLE001  (a failed peer must not stop the others)
                    row = RowId(group.workload.name, group.promise.value, "")
                    self._leave_out(row, name, error)
                    continue
                found[name] = running
            yield found

    def _warm_up(self, running: Running) -> None:
        """Produce and consume for a while, so that no first-time work falls into a measurement."""
        seconds = running.system.warm_up_s
        until = perf_counter() + (seconds / 2 if self.is_quick else seconds)
        count = 1_000
        while perf_counter() < until:
            name = f"warm-up-{next(self._numbers)}"
            more = {"count": count, "value_bytes": _WARM_UP_BYTES, "way": "records"}
            running.errand("create", name)
            for role in ("produce", "consume"):
                running.do(running.order(role, name, **more))
            running.errand("delete", name)
            count = _WARM_UP_COUNT if running.promise is Promise.MEMORY_ONE else 10_000

    def _measure(self, group: Group, case: Case, running: dict[str, Running]) -> None:
        """Measure a row with all running systems, in turn, and store the results.

        A system that fails is left out of the row. A system that hangs or has died is left out of
        all later rows, so that they do not wait for it.
        """
        row = _row(group, case)
        names = [name for name in group.systems_of(case) if name in running]
        seconds = case.seconds * (self.repeats + 1) * len(group.systems_of(case))
        if self.elapsed + case.seconds * (self.repeats + 1) * len(names) > self.seconds_max:
            self._leave_out(row, "", _TIME_IS_UP)
            names = []
        samples: dict[str, list[Sample]] = {name: [] for name in names}
        for number in range(self.repeats + 1):  # The first round warms up.
            for name in rotated(names, number):
                if name not in samples or len({OWN, *samples}) < 2 or OWN not in samples:  # noqa: PLR2004
                    continue
                os.sync()  # No system pays for the dirty pages of another.
                try:
                    sample = case.measure(running[name], f"{row.slug}-{number}")
                except Exception as error:  # noqa: BLE001  (a failure is a line of the report)
                    self._leave_out(row, name, error)
                    del samples[name]
                    if isinstance(error, HangError) or not running[name].servers.are_alive:
                        del running[name]
                    continue
                if number:
                    samples[name].append(sample)
        self.progress.did(seconds)
        if OWN in samples:
            self._keep(row, case.what, samples)
        say(f"  {row.slug}: {self.progress.text(self.elapsed)}")

    def _keep(self, row: RowId, what: str, samples: Mapping[str, Sequence[Sample]]) -> None:
        for name, theirs in samples.items():
            if name != OWN:
                result = RowResult(row, what, name, samples[OWN], theirs, self.is_quick)
                self.store.keep(result)
                say(result.line())

    def _leave_out(self, row: RowId, name: str, why: object) -> None:
        text = str(why) if isinstance(why, str) else f"{type(why).__name__}: {why}"
        left_out = LeftOut(row, name, " ".join(text.split()))
        self.store.leave_out(left_out)
        say(left_out.line())


def _row(group: Group, case: Case) -> RowId:
    return RowId(group.workload.name, group.promise.value, case.name)


def rotated(names: list[str], number: int) -> list[str]:
    """Return the names rotated by `number`, so that no system is always first."""
    first = number % len(names) if names else 0
    return names[first:] + names[:first]


def say(text: str) -> None:
    """Write a line of progress."""
    print(text, file=sys.stderr, flush=True)


def scaled(rate: float, seconds: float, *, low: int, high: int) -> int:
    """Return a round number of messages for about `seconds`, within limits."""
    wanted = min(max(int(rate * seconds), low), high)
    step = int("1" + "0" * max(len(str(wanted)) - 2, 0))
    return max(wanted // step * step, 1)
