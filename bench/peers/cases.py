"""Cases of a workload, and their selection. Pure: declarations."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from bench.peers.goals import GOALS
from bench.peers.promises import Promise
from bench.peers.results import OWN
from bench.peers.running import Measure
from bench.peers.systems import System


@dataclass(frozen=True, slots=True)
class Case:
    """A row of the report, under each promise that it supports."""

    name: str
    what: str
    """Description of the case."""
    measure: Measure
    seconds: float
    """Approximate seconds of one repetition of one system."""
    peers: Sequence[str] = ()
    """Systems to measure beside tidelog; empty: all that support the case."""
    is_in_quick: bool = True
    """Whether a quick run without names of rows includes the case."""


@dataclass(frozen=True, slots=True)
class Workload:
    """Cases that share servers."""

    name: str
    role: str
    """Role of the servers: `log` or `queue`."""
    cases: Callable[[Promise, bool], Sequence[Case]]
    """Cases by promise; the flag selects smaller cases for a quick run."""
    is_warmed_up: bool = True
    """Whether log systems warm up for some seconds before the measurement."""


@dataclass(frozen=True, slots=True)
class Group:
    """Cases of one workload under one promise, with the systems to measure."""

    workload: Workload
    promise: Promise
    cases: Sequence[Case]
    names: Sequence[str]
    """Names of the systems, tidelog among them."""

    def systems_of(self, case: Case) -> list[str]:
        """Return the systems that a case measures."""
        return [name for name in self.names if not case.peers or name in (OWN, *case.peers)]

    def seconds(self, repetitions: int) -> float:
        """Return the approximate seconds of the group."""
        each = (case.seconds * len(self.systems_of(case)) for case in self.cases)
        return sum(each) * repetitions


@dataclass(frozen=True, slots=True)
class Wanted:
    """Selection of the command."""

    promises: Sequence[Promise]
    is_quick: bool = False
    text: str = ""
    """Text that the name of a case must contain."""
    is_goals_only: bool = False
    """Whether to measure only rows with a goal."""


def make_groups(
    workloads: Sequence[Workload], systems: Mapping[str, System], wanted: Wanted
) -> list[Group]:
    """Return the groups to measure, in order, without cases that only one system supports."""
    groups: list[Group] = []
    for workload in workloads:
        for promise in wanted.promises:
            cases = [
                case
                for case in workload.cases(promise, wanted.is_quick)
                if wanted.text in case.name
                and (case.is_in_quick or not wanted.is_quick or wanted.text)
                and (not wanted.is_goals_only or _goal_peers(workload.name, promise, case.name))
            ]
            peers = {
                peer for case in cases for peer in _goal_peers(workload.name, promise, case.name)
            }
            only = peers if wanted.is_goals_only and "" not in peers else set(systems)
            able = [
                name
                for name, system in systems.items()
                if promise in system.promises.get(workload.role, ())
                and (name == OWN or name in only)
            ]
            cases = [case for case in cases if _is_compared(case, able)]
            if cases:
                needed = [name for name in able if _is_needed(name, cases)]
                groups.append(Group(workload, promise, cases, needed))
    return groups


def _is_compared(case: Case, able: Sequence[str]) -> bool:
    peers = [name for name in able if name != OWN and (not case.peers or name in case.peers)]
    return OWN in able and bool(peers)


def _is_needed(name: str, cases: Sequence[Case]) -> bool:
    """Return whether any case measures a system; other systems are not started."""
    return name == OWN or any(not case.peers or name in case.peers for case in cases)


def _goal_peers(workload: str, promise: Promise, case: str) -> set[str]:
    """Return the peers that the goals of a row name; an empty name stands for all."""
    return {goal.peer for goal in GOALS if goal.covers(workload, promise.value, case)}
