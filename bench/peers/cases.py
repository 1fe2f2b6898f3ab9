"""What a workload is made of, and which of it is wanted. Pure: declarations."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from bench.peers.goals import GOALS
from bench.peers.promises import Promise
from bench.peers.results import OWN
from bench.peers.running import Measure
from bench.peers.systems import System


@dataclass(frozen=True, slots=True)
class Case:
    """A row, under each promise that it is made for."""

    name: str
    what: str
    """In words."""
    measure: Measure
    seconds: float
    """How long one repetition of one system takes, about."""
    peers: Sequence[str] = ()
    """Who is measured beside tidelog; empty: all that can."""
    is_in_quick: bool = True
    """Whether a quick run has it that asks for no row by its name."""


@dataclass(frozen=True, slots=True)
class Workload:
    """Cases that are measured with the same servers."""

    name: str
    role: str
    """What the servers are for: `log` or `queue`."""
    cases: Callable[[Promise, bool], Sequence[Case]]
    """By promise, and whether a quick run is wanted: what takes long is made smaller then."""
    is_warmed_up: bool = True
    """Whether log systems work for some seconds before they are measured."""


@dataclass(frozen=True, slots=True)
class Group:
    """Cases of one workload under one promise, and who is measured."""

    workload: Workload
    promise: Promise
    cases: Sequence[Case]
    names: Sequence[str]
    """Of systems, tidelog among them."""

    def systems_of(self, case: Case) -> list[str]:
        """Return who is measured in a case."""
        return [name for name in self.names if not case.peers or name in (OWN, *case.peers)]

    def seconds(self, repetitions: int) -> float:
        """Return about how long all of it takes."""
        each = (case.seconds * len(self.systems_of(case)) for case in self.cases)
        return sum(each) * repetitions


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the command asks for."""

    promises: Sequence[Promise]
    is_quick: bool = False
    text: str = ""
    """What the name of a case has to contain."""
    is_goals_only: bool = False
    """Whether only rows count that a goal is for."""


def make_groups(
    workloads: Sequence[Workload], systems: Mapping[str, System], wanted: Wanted
) -> list[Group]:
    """Return what is to be measured, in order; nothing that only one system can."""
    groups: list[Group] = []
    for workload in workloads:
        for promise in wanted.promises:
            cases = [
                case
                for case in workload.cases(promise, wanted.is_quick)
                if wanted.text in case.name
                and (case.is_in_quick or not wanted.is_quick or wanted.text)
                and (not wanted.is_goals_only or _goal_peers(workload.name, case.name))
            ]
            peers = {peer for case in cases for peer in _goal_peers(workload.name, case.name)}
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
    """Whether a system is measured in any case: nobody else is started."""
    return name == OWN or any(not case.peers or name in case.peers for case in cases)


def _goal_peers(workload: str, case: str) -> set[str]:
    """Return whom the goals of a row name; an empty name stands for everybody."""
    return {goal.peer for goal in GOALS if goal.workload == workload and case.startswith(goal.case)}
