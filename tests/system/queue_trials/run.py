"""One trial: three brokers, a standard and a FIFO queue, their users, and faults of leaders."""

from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final

import trio

import tidelog
from tests.system.integration.nodes import Nodes
from tests.system.integration.processes import DEADLINE_S
from tests.system.queue_trials.ledger import Fate, Ledger, Name, name_of, problems
from tests.system.queue_trials.workload import Trial

QUEUES: Final = {"trial": False, "trial-fifo": True}
"""By name, whether it is FIFO."""
_PARTITIONS: Final = 3
_SENDERS: Final = 2
_WORKERS: Final = 4
_RECEIVES_MAX: Final = 4
_REQUEST_TIMEOUT_S: Final = 8.0
_RESTART_S: Final = 1.0
_STOPS_S: Final = (0.3, 1.0, 3.0, 11.0)
"""Seconds of a pause; other brokers take over after 9 seconds."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Duration and faults of a trial."""

    seconds: float
    random: Random
    gap_s: float = 4.0
    """Mean seconds between two faults."""
    stops_s: tuple[float, ...] = _STOPS_S
    least_faults: int = 0
    """Minimum number of faults, however slow the machine is."""


@dataclass(slots=True)
class Report:
    """Result of a trial."""

    ledgers: dict[str, Ledger] = field(default_factory=dict[str, Ledger])
    faults: Counter[str] = field(default_factory=Counter[str])
    dead: dict[str, list[Name]] = field(default_factory=dict[str, list[Name]])
    problems: list[str] = field(default_factory=list[str])

    def lines(self) -> list[str]:
        """Return a line for each queue."""
        return [self._line(name, ledger) for name, ledger in self.ledgers.items()]

    def _line(self, name: str, ledger: Ledger) -> str:
        deliveries = sum(1 for _ in ledger.deliveries)
        return (
            f"{name}: {len(ledger.accepted)} accepted ({len(ledger.uncertain - ledger.accepted)}"
            f" more without a reply), {deliveries} deliveries, {ledger.count(Fate.DELETED)}"
            f" deleted ({ledger.count(Fate.DELETED_PERHAPS)} more without a reply),"
            f" {len(self.dead[name])} dead"
        )


async def run(plan: Plan, data_dir: Path) -> Report:
    """Run a trial.

    Raises:
        trio.TooSlowError: Work was not finished after the faults.
    """
    report = Report()
    async with trio.open_nursery() as machines:
        nodes = Nodes(data_dir, machines)
        await nodes.start(*nodes.ids)
        async with _client(nodes) as admin, AsyncExitStack() as stack:
            trials: dict[str, Trial] = {}
            for name, is_fifo in QUEUES.items():
                await _create(admin, name, is_fifo=is_fifo)
                client = await stack.enter_async_context(_client(nodes))
                ledger = report.ledgers[name] = Ledger(is_fifo, _RECEIVES_MAX)
                trials[name] = Trial(client.queue(name), ledger, Random(plan.random.random()))
            async with trio.open_nursery() as working:
                for name, trial in trials.items():
                    for number in range(_SENDERS):
                        working.start_soon(trial.send, f"{name}-{number}")
                    for _ in range(_WORKERS):
                        working.start_soon(trial.work)
                await _inject_faults(plan, nodes, admin, faults=report.faults)
                for trial in trials.values():
                    await trial.end()
                with trio.fail_after(DEADLINE_S):
                    for name in QUEUES:
                        await _wait_empty(admin.queue(name))
                for trial in trials.values():
                    trial.leave()
            for name in QUEUES:
                await _judge(admin, name, report)
        machines.cancel_scope.cancel()
    return report


@asynccontextmanager
async def _client(nodes: Nodes) -> AsyncGenerator[tidelog.Client, None]:
    async with tidelog.connect(nodes.addresses, request_timeout=_REQUEST_TIMEOUT_S) as client:
        yield client


async def _create(admin: tidelog.Client, name: str, *, is_fifo: bool) -> None:
    await admin.admin.create_queue(f"{name}-dead", partitions=1, fifo=is_fifo)
    await admin.admin.create_queue(
        name,
        partitions=_PARTITIONS,
        fifo=is_fifo,
        visibility_timeout="2s",
        max_receive_count=_RECEIVES_MAX,
        dead_letter_queue=f"{name}-dead",
    )


async def _inject_faults(
    plan: Plan, nodes: Nodes, admin: tidelog.Client, *, faults: Counter[str]
) -> None:
    """Kill and pause leaders, one after the other, until the time is over."""
    until = trio.current_time() + plan.seconds
    while trio.current_time() < until or faults.total() < plan.least_faults:
        await trio.sleep(plan.random.expovariate(1 / plan.gap_s))
        node_id = await _leader(admin, plan.random)
        if plan.random.random() < 0.6 or not faults["kill"]:
            faults["kill"] += 1
            nodes.kill(node_id)
            await trio.sleep(plan.random.uniform(0, _RESTART_S))
            await nodes.start(node_id)
        else:
            faults["stop"] += 1
            nodes.stop(node_id)
            await trio.sleep(plan.random.choice(plan.stops_s))
            nodes.go_on(node_id)


async def _leader(admin: tidelog.Client, random: Random) -> int:
    """Return the leader of a random partition of a queue."""
    while True:
        try:
            (queue,) = await admin.admin.describe_queues([random.choice(list(QUEUES))])
        except tidelog.TidelogError:
            await trio.sleep(0.1)
            continue
        leader_id = random.choice(queue.partitions).leader_id
        if leader_id is not None:
            return leader_id
        await trio.sleep(0.1)


async def _wait_empty(queue: tidelog.Queue) -> None:
    """Wait until the queue is empty: there is no event for the last dead letter's move."""
    while True:
        try:
            counts = await queue.counts()
        except tidelog.TidelogError:
            counts = []
        if counts and not any(
            each.visible + each.in_flight + each.delayed + each.dead for each in counts
        ):
            return
        await trio.sleep(0.3)


async def _judge(admin: tidelog.Client, name: str, report: Report) -> None:
    """Compare the replies with the final contents."""
    ledger = report.ledgers[name]
    dead = await admin.queue(f"{name}-dead").peek(1_000_000)
    left = await admin.queue(name).peek(1_000_000)
    report.dead[name] = [name_of(each.record.value) for each in dead]
    found = problems(ledger, report.dead[name], [name_of(each.record.value) for each in left])
    found += [
        f"{name_of(each.record.value)} is a dead letter without a reason"
        for each in dead
        if each.origin is None or each.origin.queue != name or not each.origin.reason
    ]
    logged = Counter(await _replayed(admin, name))
    found += [f"{each} is {count} times in the log" for each, count in logged.items() if count > 1]
    found += [f"{each} is not in the log" for each in ledger.accepted - set(logged)]
    report.problems += [f"{name}: {problem}" for problem in found]


async def _replayed(admin: tidelog.Client, topic: str) -> list[Name]:
    """Return all messages ever sent: a message deleted in a queue is still in the log."""
    async with admin.consumer(topic, auto_offset_reset="earliest") as consumer:
        return [
            name_of(record.value)
            async for batch in consumer.batches(await consumer.end_offsets())
            for record in batch
        ]
