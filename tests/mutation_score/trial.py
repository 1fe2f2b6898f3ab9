"""Trials of one mutant, each in a process of its own.

The process gets the mutated module when something imports it; no file changes. It imports nothing
of tidelog before that. The limit is CPU time, which a busy machine does not use up.
"""

import importlib
import importlib.util
import os
import resource
import sys
import time
from collections.abc import Callable, Sequence
from enum import IntEnum
from functools import partial
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from multiprocessing import get_context
from pathlib import Path
from types import CodeType, ModuleType
from typing import Final, NoReturn, final

import hypothesis
import pytest

from tests.mutation_score.pytest_plugins import PYTEST_OPTIONS, ChosenTests

_CONTEXT: Final = get_context("forkserver")
_PRELOADED: Final = ("pytest", "pytest_trio", "hypothesis", "msgspec", "trio", __name__)
_MEMORY_MAX_BYTES: Final = 6 << 30
_WALL_MAX_S: Final = 900.0


class Outcome(IntEnum):
    """Exit codes of a trial."""

    SURVIVED = 0
    KILLED = 11
    STILLBORN = 12
    """The mutated module cannot be imported; the mutant does not count."""
    TIMED_OUT = 13
    """It used up its CPU time: an endless loop."""


@final
class _MutantLoader(SourceFileLoader):
    def __init__(self, name: str, path: str, code: str) -> None:
        super().__init__(name, path)
        self._code = code

    def get_code(self, fullname: str) -> CodeType:
        return compile(self._code, self.get_filename(fullname), "exec", dont_inherit=True)


@final
class _MutantFinder(MetaPathFinder):
    def __init__(self, module: str, code: str) -> None:
        self._module = module
        self._code = code

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._module:
            return None
        found = PathFinder.find_spec(fullname, path, target)
        assert found is not None
        assert found.origin is not None
        loader = _MutantLoader(fullname, found.origin, self._code)
        return importlib.util.spec_from_file_location(fullname, found.origin, loader=loader)


def try_tests(
    module: str, code: str, groups: Sequence[Sequence[str]], *, cpu_s: float, log: Path
) -> Outcome:
    """Return whether a test fails with a mutant; a group runs after the one before it passed."""
    return _run(partial(_run_tests, module, code, groups), cpu_s=cpu_s, log=log)


def try_simulation(
    module: str, code: str, kinds: Sequence[str], *, cpu_s: float, log: Path
) -> Outcome:
    """Return whether a run fails; each kind has as many seeds as `cpu_s` allows."""
    act = partial(_run_kinds, module, code, kinds, cpu_s=cpu_s)
    return _run(act, cpu_s=cpu_s * len(kinds) + 60, log=log)


def _run(act: Callable[[], NoReturn], *, cpu_s: float, log: Path) -> Outcome:
    _CONTEXT.set_forkserver_preload(list(_PRELOADED))
    child = _CONTEXT.Process(target=_in_child, args=(act, cpu_s, str(log)))
    child.start()
    child.join(_WALL_MAX_S)
    if child.is_alive():
        child.kill()
        child.join()
        return Outcome.TIMED_OUT
    if child.exitcode in {-24, -9}:  # SIGXCPU, and the hard limit behind it
        return Outcome.TIMED_OUT
    assert child.exitcode is not None
    if child.exitcode < 0:
        return Outcome.KILLED
    assert child.exitcode in set(Outcome), f"a trial failed to run: see {log}"
    return Outcome(child.exitcode)


def _in_child(act: Callable[[], NoReturn], cpu_s: float, log: str) -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (int(cpu_s) + 1, int(cpu_s) + 5))
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_MAX_BYTES, _MEMORY_MAX_BYTES))
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(file, 1)
    os.dup2(file, 2)
    act()


def _install(module: str, code: str) -> None:
    if not code:
        return
    sys.meta_path.insert(0, _MutantFinder(module, code))
    try:
        importlib.import_module(module)
    except Exception as error:  # noqa: BLE001 (a defect of the mutation)
        sys.stderr.write(f"{error!r}\n")
        _leave(Outcome.STILLBORN)


def _run_tests(module: str, code: str, groups: Sequence[Sequence[str]]) -> NoReturn:
    _install(module, code)
    # A failure is enough; the smallest one takes long to find.
    hypothesis.settings.register_profile(
        "mutants",
        derandomize=True,
        deadline=None,
        phases=(hypothesis.Phase.explicit, hypothesis.Phase.generate),
    )
    for tests in groups:
        files = sorted({test.partition("::")[0] for test in tests})
        arguments = [*PYTEST_OPTIONS, "-x", *files]
        code_of_tests = pytest.main(arguments, plugins=[ChosenTests(tests)])
        if code_of_tests in {pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.INTERRUPTED}:
            _leave(Outcome.KILLED)
        assert code_of_tests == pytest.ExitCode.OK, "not a result of tests"
    _leave(Outcome.SURVIVED)


def _run_kinds(module: str, code: str, kinds: Sequence[str], *, cpu_s: float) -> NoReturn:
    _install(module, code)
    run_seeds = importlib.import_module("tests.simulation.swarm").run_seeds
    known = importlib.import_module("tests.simulation.kinds").KINDS
    for kind in kinds:
        until = time.process_time() + cpu_s
        runs = 0
        while time.process_time() < until and runs < known[kind].mutation_seeds:
            try:
                (report,) = run_seeds(kind, [runs], known[kind].mutation_seconds)
            except Exception as error:  # noqa: BLE001 (a defect of the mutation)
                sys.stderr.write(f"{kind} {runs}: {error!r}\n")
                _leave(Outcome.KILLED)
            if report.checker is not None:
                sys.stderr.write(f"{kind} {runs}: {report.checker}: {report.problem}\n")
                _leave(Outcome.KILLED)
            runs += 1
        sys.stderr.write(f"{kind}: {runs} clean runs\n")
    _leave(Outcome.SURVIVED)


def _leave(outcome: Outcome) -> NoReturn:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(outcome)  # threads and processes of tests must not keep it
