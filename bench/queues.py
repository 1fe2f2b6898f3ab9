"""Benchmark of queues: messages a second through send, receive and delete, and their latency.

The ceiling is the log under the queue: the same programs produce the same bytes in batches of the
same size and fetch them, at the same time.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import trio

import tidelog
from bench.figures import Row, Settings, Spread, ratios
from bench.machine import broker_process
from bench.nodes import Nodes
from bench.queue_load import LoadOrder, run_loads

_PARTITIONS: Final = 4
_SENDERS: Final = 16
_WORKERS: Final = 32
_GROUPS: Final = 1_000
_BY_HUNDREDS_GOAL: Final = 100_000
_BY_TENS_GOAL: Final = 30_000
_FIFO_GOAL: Final = 3_000
_DELIVERED_GOAL_MS: Final = 50.0
_RECEIVE_GOAL_MS: Final = 100.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    """One way to use a queue."""

    what: str
    batch: int
    count: int
    goal: int = 0
    """Messages a second."""
    is_fifo: bool = False
    has_all_acks: bool = False


@dataclass(frozen=True, slots=True)
class _Measured:
    """One repetition; microseconds of CPU are for one message."""

    rate: float
    broker_us: float
    sender_us: float
    worker_us: float
    received: float
    """Messages that a receive returned, on average."""


Cpu = Callable[[], float]
"""Returns how many seconds of CPU all brokers have used."""


def _orders(name: str, addresses: str, case: _Case, *, roles: tuple[str, str]) -> list[LoadOrder]:
    group_count = _GROUPS if case.is_fifo else 0
    return [
        LoadOrder(
            role=role,
            addresses=addresses,
            name=name,
            count=case.count,
            batch=case.batch,
            tasks=tasks,
            group_count=group_count,
        )
        for role, tasks in zip(roles, (_SENDERS, _WORKERS), strict=True)
    ]


def _measure(cpu: Cpu, orders: Sequence[LoadOrder]) -> _Measured:
    cpu_before = cpu()
    sender, worker = run_loads(orders)
    count = orders[0].count
    return _Measured(
        count / (max(sender.ended, worker.ended) - min(sender.began, worker.began)),
        (cpu() - cpu_before) / count * 1e6,
        sender.cpu_seconds / count * 1e6,
        worker.cpu_seconds / count * 1e6,
        count / max(worker.calls, 1),
    )


async def _create(addresses: str, name: str, case: _Case) -> None:
    acks = "all" if case.has_all_acks else "leader"
    async with tidelog.connect(addresses) as client:
        await client.admin.create_queue(
            name,
            partitions=_PARTITIONS,
            fifo=case.is_fifo,
            receive_acks=acks,
        )


async def _delete(addresses: str, name: str) -> None:
    async with tidelog.connect(addresses) as client:
        left = sum(
            counts.visible + counts.in_flight + counts.delayed + counts.dead
            for counts in await client.queue(name).counts()
        )
        assert not left, f"{left} messages are left"
        await client.admin.delete_queue(name, with_topic=True)


async def _log(addresses: str, name: str, *, is_there: bool) -> None:
    async with tidelog.connect(addresses) as client:
        if is_there:
            await client.admin.create_topic(name, partitions=_PARTITIONS)
        else:
            await client.admin.delete_topic(name)


def _through_queue(cpu: Cpu, addresses: str, name: str, *, case: _Case) -> _Measured:
    trio.run(_create, addresses, name, case)
    measured = _measure(cpu, _orders(name, addresses, case, roles=("send", "work")))
    trio.run(_delete, addresses, name)
    return measured


def _through_log(cpu: Cpu, addresses: str, name: str, *, case: _Case) -> _Measured:
    trio.run(lambda: _log(addresses, name, is_there=True))
    measured = _measure(cpu, _orders(name, addresses, case, roles=("produce", "fetch")))
    trio.run(lambda: _log(addresses, name, is_there=False))
    return measured


def _rates(
    cpu: Cpu, addresses: str, cases: Sequence[_Case], *, repetitions: int
) -> dict[tuple[_Case, bool], list[_Measured]]:
    """Measure each case (false) and its ceiling (true), alternately."""
    found: dict[tuple[_Case, bool], list[_Measured]] = {}
    for number in range(repetitions + 1):
        for place, case in enumerate(cases):
            name = f"speed-{number}-{place}"
            ceiling = (
                None if case.is_fifo else _through_log(cpu, addresses, f"{name}-log", case=case)
            )
            measured = _through_queue(cpu, addresses, name, case=case)
            if number:  # The first round warms up.
                found.setdefault((case, False), []).append(measured)
                if ceiling is not None:
                    found.setdefault((case, True), []).append(ceiling)
    return found


def _rows(case: _Case, found: dict[tuple[_Case, bool], list[_Measured]]) -> list[Row]:
    queue, log = found[case, False], found.get((case, True), [])
    rate = Spread.of(each.rate for each in queue)
    received = Spread.of(each.received for each in queue)
    what = f"queues: {case.what}"
    rows = [
        Row(
            f"{what}: messages/s through send, receive and delete",
            rate.text(),
            f">= {case.goal:,}" if case.goal else "",
            rate.median >= case.goal if case.goal else None,
        ),
        Row(f"{what}: us of CPU a message: broker, sender, workers", _cpu_text(queue)),
        Row(f"{what}: messages that a receive gets", received.text()),
    ]
    if log:
        ratio = ratios([each.rate for each in queue], [each.rate for each in log])
        log_rate = Spread.of(each.rate for each in log)
        rows += [
            Row(f"{what}: the log alone, records/s produced and fetched", log_rate.text()),
            Row(f"{what}: the log alone, the same CPU", _cpu_text(log)),
            Row(f"{what}: the queue to the log alone", ratio.text(".2f")),
        ]
    return rows


def _cpu_text(measured: list[_Measured]) -> str:
    parts = [
        Spread.of(values).median
        for values in (
            [each.broker_us for each in measured],
            [each.sender_us for each in measured],
            [each.worker_us for each in measured],
        )
    ]
    return ", ".join(f"{part:.1f}" for part in parts)


def _latency(addresses: str, name: str, case: _Case, *, rate: float) -> list[Row]:
    """Offer `rate` messages a second; return rows of delivery and receive latency."""
    trio.run(_create, addresses, name, case)
    send, work = _orders(name, addresses, case, roles=("send", "work"))
    _, worker = run_loads([replace(send, rate=rate), work])
    delivered = worker.delivered_after
    # Receives are measured with as many messages again, sent before, at the same rate.
    run_loads([replace(send, batch=100)])
    (worker,) = run_loads([replace(work, rate=rate)])
    trio.run(_delete, addresses, name)
    what = f"queues: {case.what}, at {rate:,.0f} messages/s"
    return [
        _latency_row(f"{what}: from due to delivered", delivered, _DELIVERED_GOAL_MS),
        _latency_row(f"{what}: a receive", worker.received_in, _RECEIVE_GOAL_MS),
    ]


def _latency_row(what: str, seconds: tuple[float, float], goal_ms: float) -> Row:
    middle, last = seconds[0] * 1e3, seconds[1] * 1e3
    return Row(
        what,
        f"median {middle:.1f} ms, 99 % {last:.1f} ms",
        f"99 % < {goal_ms:.0f} ms",
        last < goal_ms,
    )


def _cases(settings: Settings) -> list[_Case]:
    hundreds, tens = settings.choose(400_000, 60_000), settings.choose(100_000, 20_000)
    return [
        _Case(what="by 100s", batch=100, count=hundreds, goal=_BY_HUNDREDS_GOAL),
        _Case(what="by 100s, `receive_acks = all`", batch=100, count=hundreds, has_all_acks=True),
        _Case(what="by 10s", batch=10, count=tens, goal=_BY_TENS_GOAL),
        _Case(
            what=f"FIFO, {_GROUPS:,} groups, by 10s, `receive_acks = all`",
            batch=10,
            count=settings.choose(20_000, 5_000),
            goal=_FIFO_GOAL,
            is_fifo=True,
            has_all_acks=True,
        ),
    ]


def run(settings: Settings) -> list[Row]:
    """Measure one broker."""
    with broker_process(settings.directory / "data") as server:
        host, port = server.address
        addresses = f"{host}:{port}"
        cases, repetitions = _cases(settings), settings.choose(5, 1)
        found = _rates(lambda: server.cpu_seconds, addresses, cases, repetitions=repetitions)
        rows = [row for case in cases for row in _rows(case, found)]
        tens = cases[2]
        rate = Spread.of(each.rate for each in found[tens, False]).median / 2
        case = replace(tens, count=int(rate * settings.choose(10, 3)))
        return rows + _latency(addresses, "latency", case, rate=rate)


def run_replicated(settings: Settings) -> list[Row]:
    """Measure three brokers on shared cores, with three replicas of each log."""
    with Nodes(settings.directory, 3) as nodes:
        nodes.wait_complete()

        def cpu() -> float:
            return sum(nodes.cpu_seconds(node_id) for node_id in nodes.ports)

        cases = [
            replace(each, what=f"3 replicas, {each.what}", goal=0, count=each.count // 4)
            for each in _cases(settings)
        ]
        found = _rates(cpu, nodes.addresses, cases, repetitions=settings.choose(3, 1))
        return [row for case in cases for row in _rows(case, found)]
