"""Benchmark of queue operations with a backlog of very many messages, and without one.

In CPU time of the broker, for each message that is appended, received in batches of ten and
deleted; the two queues alternate.
"""

from dataclasses import dataclass
from functools import partial
from typing import Final

import trio

import tidelog
from bench.figures import Row, Settings, Spread, ratios
from bench.machine import ServerProcess, broker_process
from bench.queue_load import EACH_ITS_OWN, LoadOrder, run_loads

_RATIO_GOAL: Final = 1.3
_PARTITIONS: Final = 4
_WORKERS: Final = 8
_VALUE_BYTES: Final = 100
_LONG_S: Final = 12 * 3600.0


@dataclass(frozen=True, slots=True)
class _Backlog:
    """Messages that wait in a queue."""

    what: str
    count: int
    is_fifo: bool = False
    is_one_group: bool = False
    """Whether all wait behind a message that stays in flight."""


def _fill(addresses: str, name: str, count: int, *, group_count: int) -> None:
    run_loads(
        [
            LoadOrder(
                role="fill",
                addresses=addresses,
                name=name,
                count=count,
                batch=500,
                tasks=16,
                group_count=group_count,
                value_bytes=_VALUE_BYTES,
            )
        ]
    )


def _cycle(addresses: str, name: str, count: int, *, group_count: int) -> None:
    """Send, receive and delete `count` more messages."""
    _fill(addresses, name, count, group_count=group_count)
    order = LoadOrder(
        role="work", addresses=addresses, name=name, count=count, batch=10, tasks=_WORKERS
    )
    run_loads([order])


async def _create(addresses: str, name: str, *, is_fifo: bool) -> None:
    async with tidelog.connect(addresses) as client:
        await client.admin.create_queue(
            name, partitions=_PARTITIONS, fifo=is_fifo, visibility_timeout=600
        )


async def _make_ready(addresses: str, name: str, backlog: _Backlog) -> None:
    """Move the cursor over all messages; receive the first one of a blocked group."""
    async with tidelog.connect(addresses) as client:
        queue = client.queue(name)
        await queue.counts()
        if backlog.is_one_group:
            (_,) = await queue.receive(1, visibility_timeout=_LONG_S)


def _costs(
    server: ServerProcess, addresses: str, backlog: _Backlog, *, settings: Settings
) -> list[Row]:
    count = settings.choose(10_000, 2_000)
    own_groups = EACH_ITS_OWN if backlog.is_fifo else 0
    empty, full = f"empty-{backlog.count}", f"full-{backlog.count}"
    for name in (empty, full):
        trio.run(partial(_create, addresses, name, is_fifo=backlog.is_fifo))
    _fill(addresses, full, backlog.count, group_count=1 if backlog.is_one_group else own_groups)
    trio.run(_make_ready, addresses, full, backlog)
    costs: dict[str, list[float]] = {empty: [], full: []}
    for _ in range(settings.choose(7, 2) + 1):
        for name, found in costs.items():
            before = server.cpu_seconds
            _cycle(addresses, name, count, group_count=own_groups)
            found.append((server.cpu_seconds - before) / count * 1e6)
    ours, base = costs[full][1:], costs[empty][1:]
    ratio = ratios(ours, base)
    what = f"queue backlog: {backlog.what}"
    return [
        Row(f"{what}: us of CPU a message of an empty queue", Spread.of(base).text(".1f")),
        Row(
            f"{what}: that of this one to it",
            ratio.text(".2f"),
            f"< {_RATIO_GOAL}",
            ratio.median < _RATIO_GOAL,
        ),
    ]


def run(settings: Settings) -> list[Row]:
    """Measure each kind of backlog."""
    many = settings.choose(10_000_000, 500_000)
    groups = settings.choose(1_000_000, 50_000)
    slow = settings.choose(200_000, 20_000)
    rows: list[Row] = []
    for backlog in (
        _Backlog(f"{many:,} messages wait", many),
        _Backlog(f"FIFO, {groups:,} groups wait", groups, is_fifo=True),
        _Backlog(
            f"FIFO, {slow:,} messages of one group wait", slow, is_fifo=True, is_one_group=True
        ),
    ):
        with broker_process(settings.directory / f"data-{backlog.count}") as server:
            host, port = server.address
            addresses = f"{host}:{port}"
            rows += _costs(server, addresses, backlog, settings=settings)
    return rows
