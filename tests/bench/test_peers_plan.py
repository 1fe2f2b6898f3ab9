"""Plan of the benchmark beside other systems: its measurements, their time, and failures."""

from collections.abc import Callable, Mapping
from math import inf
from pathlib import Path

import pytest

from bench.peers.asyncio_clients import ASYNCIO
from bench.peers.beanstalkd import BEANSTALKD
from bench.peers.cases import Case, Group, Wanted, Workload, make_groups
from bench.peers.drain import DRAIN
from bench.peers.elasticmq import ELASTICMQ
from bench.peers.footprint import FOOTPRINT
from bench.peers.goals import GOALS
from bench.peers.kafka import KAFKA
from bench.peers.late import LATE
from bench.peers.latency import LATENCY
from bench.peers.load import HangError
from bench.peers.measuring import Session
from bench.peers.native import NATIVE
from bench.peers.nats import NATS
from bench.peers.own import TIDELOG
from bench.peers.progress import Progress
from bench.peers.promises import Promise
from bench.peers.queue_work import QUEUES
from bench.peers.rabbitmq import RABBITMQ
from bench.peers.rates import RATES
from bench.peers.redis import REDIS
from bench.peers.report import make_report
from bench.peers.results import LeftOut, RowId, RowResult, Sample, Store
from bench.peers.running import Measure, Running
from bench.peers.servers import Servers
from bench.peers.spark import SPARK
from bench.peers.systems import Installed, System

_SYSTEMS = {system.name: system for system in (TIDELOG, KAFKA, NATS)}
_ALL = (RATES, QUEUES, LATENCY, NATIVE, DRAIN, LATE, FOOTPRINT)


def _fail(running: Running, name: str) -> Sample:
    raise AssertionError(f"{name} of {running.system.name}")


def _system(name: str) -> System:
    def start(installed: Installed, directory: Path, promise: Promise) -> Servers:
        del installed, promise
        if name == "broken":
            raise OSError("it does not start")
        return Servers(directory)

    return System(
        name=name,
        title=name,
        client=name,
        install=lambda root: Installed(root, "1"),
        start=start,
        settings={},
        promises={"queue": (Promise.MEMORY_ONE,)},
    )


class _Session:
    """Session of fake systems, with its stored results."""

    def __init__(self, directory: Path, names: str, seconds_max: float = inf) -> None:
        self.store = Store(directory / "results")
        systems = {name: _system(name) for name in names.split()}
        self.systems = systems
        installed = {name: (each, Installed(directory, "1")) for name, each in systems.items()}
        self.session = Session(installed, directory, self.store, repeats=2, seconds_max=seconds_max)

    def run(self, measures: Mapping[str, Measure]) -> None:
        cases = [Case(name, name, measure, 1.0) for name, measure in measures.items()]
        workload = Workload("work", "queue", lambda _promise, _is_quick: cases)
        groups = make_groups([workload], self.systems, Wanted([Promise.MEMORY_ONE]))
        assert [group.workload for group in self.session.run(groups)] == [workload] * len(groups)

    def measured(self) -> list[tuple[str, str]]:
        return [(each.row.case, each.peer) for each in self.store.load()]

    def left_out(self) -> list[tuple[str, str]]:
        return [(each.row.case, each.name) for each in self.store.left_out()]


def _failing(failing: str, error: Callable[[str], Exception] = RuntimeError) -> Measure:
    def measure(running: Running, name: str) -> Sample:
        if running.system.name == failing:
            raise error(name)
        return {"worked": 1.0}

    return measure


def test_a_failing_system_is_left_out_of_its_row(tmp_path: Path) -> None:
    session = _Session(tmp_path, "tidelog one two")
    session.run({"first": _failing("one", ValueError), "second": _failing("none")})
    assert session.measured() == [("first", "two"), ("second", "one"), ("second", "two")]
    assert session.left_out() == [("first", "one")]


def test_a_hanging_system_is_not_measured_again(tmp_path: Path) -> None:
    session = _Session(tmp_path, "tidelog one two")
    session.run({"first": _failing("one", HangError), "second": _failing("none")})
    assert session.measured() == [("first", "two"), ("second", "two")]


def test_a_row_without_tidelog_is_skipped(
    tmp_path: Path,
) -> None:
    session = _Session(tmp_path, "tidelog one")
    session.run({"first": _failing("tidelog"), "second": _failing("none")})
    assert session.measured() == [("second", "one")]
    assert session.left_out() == [("first", "tidelog")]


def test_a_system_that_does_not_start_is_left_out_with_its_reason(tmp_path: Path) -> None:
    session = _Session(tmp_path, "tidelog broken two")
    session.run({"first": _failing("none")})
    assert session.measured() == [("first", "two")]
    text = make_report(session.store.load(), [], session.store.left_out()).text
    assert "- work-memory-one: broken is left out: OSError: it does not start" in text


def test_rows_beyond_the_time_limit_are_listed_as_left_out(tmp_path: Path) -> None:
    session = _Session(tmp_path, "tidelog one", seconds_max=3.0)
    session.run({"first": _failing("none")})
    assert session.measured() == []
    assert session.left_out() == [("first", "")]


def test_a_row_measured_later_is_not_listed_as_left_out(tmp_path: Path) -> None:
    store = Store(tmp_path)
    rows = [RowId("work", "memory-one", case) for case in ("first", "second")]
    for row in rows:
        store.leave_out(LeftOut(row, "kafka", "it rained"))
        store.leave_out(LeftOut(row, "kafka", "it snowed"))
    store.keep(RowResult(rows[0], "", "kafka", [{}], [{}], is_quick=True))
    assert store.left_out() == [LeftOut(rows[1], "kafka", "it snowed")]


def _groups(**more: object) -> list[Group]:
    return make_groups(_ALL, _SYSTEMS, Wanted(tuple(Promise), **more))  # type: ignore[arg-type]


def test_a_row_of_a_single_system_is_not_measured() -> None:
    for group in _groups():
        assert len(group.names) > 1
        for case in group.cases:
            assert group.systems_of(case)[0] == "tidelog"
            assert len(group.systems_of(case)) > 1


def test_only_rows_of_goals_are_measured_when_only_goals_are_wanted() -> None:
    found = {
        (group.workload.name, group.promise.value): (
            [case.name for case in group.cases],
            list(group.names),
        )
        for group in _groups(is_goals_only=True)
    }
    cases, names = found["rates", "fsync-three"]
    assert cases == ["100 B 01 batches", "64 KB 01 batches"]
    assert names == ["tidelog", "kafka"]
    assert found["queues", "memory-one"][1] == ["tidelog", "nats"]
    assert {workload for workload, _ in found} == {"rates", "queues", "latency", "late"}


def test_only_measured_systems_are_started() -> None:
    (group,) = make_groups([DRAIN], _SYSTEMS, Wanted([Promise.MEMORY_ONE]))
    assert group.names == ["tidelog", "kafka"]


def test_cases_are_chosen_by_a_part_of_their_name() -> None:
    assert {case.name for group in _groups(text="64 KB") for case in group.cases} == {
        "64 KB 01 batches"
    }


def test_a_quick_run_excludes_slow_cases_unless_named() -> None:
    for text in ("own highest", "1000", "batch 001 workers 64"):
        quick = _groups(is_quick=True)
        assert not [case for group in quick for case in group.cases if text in case.name]
        assert _groups(is_quick=True, text=text)


def test_three_replicas_are_compared_with_systems_of_three_replicas() -> None:
    systems = {each.name: each for each in (TIDELOG, KAFKA, NATS, RABBITMQ, REDIS)}
    three = [Promise.MEMORY_THREE, Promise.FSYNC_THREE]
    found = {
        (group.workload.name, group.promise, case.name): group.systems_of(case)
        for group in make_groups([RATES, QUEUES], systems, Wanted(three))
        for case in group.cases
    }
    memory, fsync = Promise.MEMORY_THREE, Promise.FSYNC_THREE
    assert found["rates", memory, "100 B 01 batches"] == list(systems)
    assert found["rates", fsync, "100 B 01 batches"] == ["tidelog", "kafka", "nats"]
    assert found["queues", memory, "batch 010 workers 08"] == ["tidelog", "nats", "redis"]
    assert found["queues", fsync, "batch 100 workers 64"] == ["tidelog", "nats", "rabbitmq"]


def test_a_group_takes_as_long_as_all_repetitions_of_all_its_systems() -> None:
    alone = Case("a", "a", _fail, 2.0, peers=("kafka",))
    group = Group(RATES, Promise.MEMORY_ONE, [alone, Case("b", "b", _fail, 1.0)], list(_SYSTEMS))
    assert group.seconds(6) == (2 * 2.0 + 3 * 1.0) * 6


def test_the_remaining_time_follows_the_pace_so_far() -> None:
    progress = Progress(100)
    assert progress.left(0) == 100
    progress.did(25)
    assert progress.left(50) == pytest.approx(150)
    progress.did(1_000)
    assert progress.left(120) == 0
    assert progress.text(120) == "100 %, about 0 minutes left"


def test_single_messages_are_measured_by_calls_and_by_the_worker() -> None:
    one, three = (
        {case.name for case in QUEUES.cases(promise, False) if " 001 " in case.name}
        for promise in (Promise.FSYNC_ONE, Promise.FSYNC_THREE)
    )

    assert len(one) == 6
    assert three == {"batch 001 workers 01", "worker 001 workers 01"}


def test_each_goal_has_a_row_with_its_peer() -> None:
    peers = (KAFKA, NATS, RABBITMQ, REDIS, BEANSTALKD, ELASTICMQ)
    systems = {each.name: each for each in (TIDELOG, *peers)}
    measured = [
        (group.workload.name, group.promise, case.name, group.systems_of(case))
        for group in make_groups((*_ALL, ASYNCIO, SPARK), systems, Wanted(tuple(Promise)))
        for case in group.cases
    ]

    for goal in GOALS:
        rows = [
            (promise, names)
            for workload, promise, case, names in measured
            if goal.covers(workload, promise.value, case) and (not goal.peer or goal.peer in names)
        ]
        assert rows, f"no row is for {goal}"
        if goal.promises != tuple(Promise):
            assert {promise for promise, _ in rows} == {*goal.promises}, goal
