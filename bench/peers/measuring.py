"""How rows are measured: all systems of a row in turn, many times."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Final, final

from bench.peers.load import run_loads
from bench.peers.orders import Order, Outcome
from bench.peers.promises import Promise
from bench.peers.results import RowId, RowResult, Sample, Store
from bench.peers.servers import Servers
from bench.peers.systems import Installed, System

OWN: Final = "tidelog"
_WARM_UP_BYTES: Final = 100
_WARM_UP_COUNT: Final = 100_000


@dataclass(frozen=True, slots=True)
class Running:
    """A system whose servers run."""

    system: System
    installed: Installed
    servers: Servers
    promise: Promise

    def order(self, role: str, name: str, **more: object) -> Order:
        """Return an order for a load process."""
        return Order(
            system=self.system.name,
            role=role,
            addresses=self.servers.addresses,
            name=name,
            promise=self.promise.value,
            **more,  # type: ignore[arg-type]
        )

    def do(self, *orders: Order) -> tuple[list[Outcome], float]:
        """Let load processes work at once; return what came of it, and the servers' CPU seconds."""
        before = self.servers.cpu_seconds
        outcomes = run_loads(orders)
        return outcomes, self.servers.cpu_seconds - before


Measure = Callable[[Running, str], Sample]
"""Measures once, on a topic or queue of the given name."""


@final
@dataclass
class Session:
    """One call of the command: what is to be measured, and where it goes."""

    systems: Mapping[str, tuple[System, Installed]]
    """By name; tidelog is always among them."""
    directory: Path
    """On the disk to be measured."""
    store: Store
    promises: Sequence[Promise]
    is_quick: bool
    cases: str = ""
    """What the case of a row has to contain, to be measured."""
    _numbers: Iterator[int] = field(default_factory=lambda: iter(range(1 << 30)))

    def choose(self, full: int, quick: int) -> int:
        """Return a number of repetitions, bytes or seconds."""
        return quick if self.is_quick else full

    @property
    def repetitions(self) -> int:
        """How often each system is measured; what warms up is not counted."""
        return self.choose(5, 3)

    @contextmanager
    def running(self, role: str, promise: Promise) -> Generator[dict[str, Running]]:
        """Start all systems that can play a role and keep a promise; none if that is one alone."""
        able = {
            name: each
            for name, each in self.systems.items()
            if promise in each[0].promises.get(role, ())
        }
        found: dict[str, Running] = {}
        with ExitStack() as stack:
            for name, (system, installed) in able.items() if len(able) > 1 else ():
                place = self.directory / f"{name}-{promise.value}-{next(self._numbers)}"
                stack.callback(shutil.rmtree, place, ignore_errors=True)
                try:
                    servers = stack.enter_context(system.start(installed, place, promise))
                    running = Running(system, installed, servers, promise)
                    if role == "log":
                        self._warm_up(running)
                except (RuntimeError, OSError, subprocess.SubprocessError) as error:
                    say(f"{name} is left out: {error}")
                    continue
                found[name] = running
            yield found

    def _warm_up(self, running: Running) -> None:
        """Produce and consume for a while: a JVM compiles what it does often."""
        until = perf_counter() + self.choose(10, 4)
        count = 1_000
        while perf_counter() < until:
            name = f"warm-up-{next(self._numbers)}"
            more = {"count": count, "value_bytes": _WARM_UP_BYTES, "way": "records"}
            for role in ("create", "produce", "consume", "delete"):
                running.do(running.order(role, name, **more))
            count = _WARM_UP_COUNT if running.promise is Promise.MEMORY_ONE else 10_000

    def measure(
        self, row: RowId, what: str, measure: Measure, running: Mapping[str, Running]
    ) -> None:
        """Measure a row with all systems that run, in turn, and keep what came of it."""
        if self.cases not in row.case:
            return
        samples: dict[str, list[Sample]] = {name: [] for name in running}
        failed: set[str] = set()
        for number in range(self.repetitions + 1):  # The first one warms up.
            for name in rotated(list(running), number):
                if name in failed:
                    continue
                os.sync()  # Nobody pays for what another one has left to write.
                began = perf_counter()
                try:
                    sample = measure(running[name], f"{row.slug}-{number}")
                except (RuntimeError, AssertionError) as error:
                    say(f"{row.slug}: {name} failed: {error}")
                    failed.add(name)
                    continue
                say(f"  {row.slug}: {name}, {number}: {perf_counter() - began:.1f} s")
                if number:
                    samples[name].append(sample)
        whole = {name: found for name, found in samples.items() if name not in failed}
        for name, theirs in whole.items():
            if name != OWN and OWN in whole:
                result = RowResult(row, what, name, whole[OWN], theirs, self.is_quick)
                self.store.keep(result)
                say(result.line())


def rotated(names: list[str], number: int) -> list[str]:
    """Return names in turn, so that nobody always comes first."""
    first = number % len(names) if names else 0
    return names[first:] + names[:first]


def say(text: str) -> None:
    """Write a line for whoever waits."""
    print(text, file=sys.stderr, flush=True)


def scaled(rate: float, seconds: float, *, low: int, high: int) -> int:
    """Return how many messages take about so many seconds, within limits, in round numbers."""
    wanted = min(max(int(rate * seconds), low), high)
    step = int("1" + "0" * max(len(str(wanted)) - 2, 0))
    return max(wanted // step * step, 1)
