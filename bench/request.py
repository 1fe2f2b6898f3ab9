"""Benchmark of one request: CPU of broker and client for each, beside a bare trio echo.

One client makes one call at a time. The echo exchanges frames of the same sizes between two
programs with nothing but trio, directly after the calls that it is compared with.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Final, Self

import msgspec
import trio

import tidelog
from bench.bare_server import Order
from bench.calls import count_calls
from bench.figures import Row, Settings, Spread
from bench.machine import ServerProcess, bare_process, broker_process
from bench.single_requests import KINDS, MESSAGE, SETTINGS, create_all

_ECHOED: Final = ("send", "receive", "delete", "produce", "fetch", "commit")
"""Kinds that are one request."""
_FEWER: Final = {"staged": 10}
"""Divisors of the number of calls, for kinds that take long."""
_SUMS: Final = {
    "message": MESSAGE,
    "message by queue.work": ("flow",),
    "message by queue.work, of a backlog": ("send", "work"),
}
"""Whole messages, as sums of kinds."""
_WARM_UP: Final = 10
_GOAL: Final = 2.5
_CALLS_MAX: Final = 400
"""Goal of a whole message, in Python calls of the broker and of the client."""
_RECEIVE_BYTES: Final = 64 << 10


@dataclass(frozen=True, slots=True)
class Sample:
    """Costs of one call, in microseconds."""

    server: float
    """CPU of the broker or of the echo's server."""
    client: float
    """CPU of the client."""
    time: float
    """Time of a call, on average."""
    p50: float
    """Median of the times of calls."""

    @classmethod
    def of(cls, server_s: float, client_s: float, times: Sequence[float]) -> Self:
        """Summarise calls with their CPU seconds; `times` are those of their ends."""
        count = len(times) - 1
        return cls(
            server_s / count * 1e6,
            client_s / count * 1e6,
            (times[-1] - times[0]) / count * 1e6,
            median(end - begin for begin, end in pairwise(times)) * 1e6,
        )


@dataclass(frozen=True, slots=True)
class _Bytes:
    """Sizes of the frames of a call."""

    sent: int
    received: int


_Round = dict[str, tuple[Sample, Sample | None]]
"""By kind: the costs of a call, and those of its echo."""


def _bytes_of(client: tidelog.Client) -> _Bytes:
    found = client.statistics().connections
    return _Bytes(found.sent_bytes, found.received_bytes)


async def _calls(
    broker: ServerProcess, client: tidelog.Client, kind: str, *, count: int
) -> tuple[Sample, _Bytes]:
    """Return the costs of calls of a kind, and the mean sizes of their frames."""
    async with KINDS[kind](client, _WARM_UP) as run:
        await run()  # Connects.
    async with KINDS[kind](client, count) as run:
        before, server, own = _bytes_of(client), broker.cpu_seconds, process_time()
        times = await run()
        own, server = process_time() - own, broker.cpu_seconds - server
        after = _bytes_of(client)
    sizes = _Bytes(
        round((after.sent - before.sent) / count), round((after.received - before.received) / count)
    )
    return Sample.of(server, own, times), sizes


async def _echoes(bare: ServerProcess, sizes: _Bytes, count: int) -> Sample:
    """Return the costs of echoes with frames of these sizes."""
    order = Order(mode="echo", frame_bytes=sizes.sent, reply_bytes=sizes.received)
    with trio.socket.socket() as sock:
        await sock.connect(bare.address)
        sock.setsockopt(trio.socket.IPPROTO_TCP, trio.socket.TCP_NODELAY, 1)
        await sock.send(msgspec.json.encode(order) + b"\n")
        assert await sock.recv(1) == b"\n"
        frame, buffer = bytes(sizes.sent), memoryview(bytearray(_RECEIVE_BYTES))
        server, own, times = bare.cpu_seconds, process_time(), [perf_counter()]
        for _ in range(count):
            await sock.send(frame)
            left = sizes.received
            while left:
                left -= await sock.recv_into(buffer)
            times.append(perf_counter())
        return Sample.of(bare.cpu_seconds - server, process_time() - own, times)


async def _rounds(broker: ServerProcess, bare: ServerProcess, settings: Settings) -> list[_Round]:
    """Measure all kinds in turn, again and again; the first time warms up."""
    host, port = broker.address
    rounds: list[_Round] = []
    address = f"{host}:{port}"
    async with tidelog.connect(address) as client:
        await create_all(client, "replicated")
    for _ in range(settings.choose(9, 2) + 1):
        found: _Round = {}
        for kind in KINDS:
            count = settings.choose(500, 100) // _FEWER.get(kind, 1)
            async with tidelog.connect(address) as client:
                sample, sizes = await _calls(broker, client, kind, count=count)
            echo = await _echoes(bare, sizes, count) if kind in _ECHOED else None
            found[kind] = sample, echo
        rounds.append(found)
    return rounds[1:]


def _sum(rounds: Sequence[_Round], kinds: Sequence[str], side: str) -> list[float]:
    """Return the sum of a figure of kinds, of each round."""
    return [sum(getattr(found[kind][0], side) for kind in kinds) for found in rounds]


def _echo_sum(rounds: Sequence[_Round], kinds: Sequence[str], side: str) -> list[float]:
    return [sum(getattr(found[kind][1], side) for kind in kinds) for found in rounds]


def _rows(
    rounds: Sequence[_Round], name: str, kinds: Sequence[str], *, echoes: Sequence[str]
) -> list[Row]:
    """Return the rows of a kind, or of a sum of kinds, beside a sum of echoes."""
    rows: list[Row] = []
    has_goal = name in _SUMS
    for side, title in (("server", "broker"), ("client", "client")):
        own = _sum(rounds, kinds, side)
        rows.append(Row(f"request: {name}: CPU of the {title} in us", Spread.of(own).text(",.0f")))
        if not echoes:
            continue
        bare = _echo_sum(rounds, echoes, side)
        ratio = Spread.of(mine / theirs for mine, theirs in zip(own, bare, strict=True))
        what = f"{len(echoes)} echoes" if len(echoes) > 1 else "an echo"
        rows.append(
            Row(
                f"request: {name}: CPU of the {title}, by that of {what}"
                f" ({Spread.of(bare).median:,.0f} us)",
                ratio.text(".2f"),
                f"<= {_GOAL}" if has_goal else "",
                ratio.median <= _GOAL if has_goal else None,
            )
        )
    if has_goal:
        rate = Spread.of(1e6 / time for time in _sum(rounds, kinds, "time"))
        rows.append(Row(f"request: {name}: messages a second", rate.text(",.0f")))
    if len(kinds) == 1:
        middle = Spread.of(_sum(rounds, kinds, "p50"))
        rows.append(Row(f"request: {name}: p50 in us", middle.text(",.0f")))
    return rows


def _rows_of_calls(directory: Path) -> list[Row]:
    """Return the rows of Python calls of whole messages."""
    found = count_calls([*MESSAGE, "flow"], "replicated", directory)
    rows: list[Row] = []
    for name, kinds in (("message", MESSAGE), ("message by queue.work", ("flow",))):
        costs = [found[kind].cost for kind in kinds]
        for side, total in (
            ("broker", sum(cost.broker for cost in costs)),
            ("client", sum(cost.client for cost in costs)),
        ):
            is_met = total <= _CALLS_MAX
            what = f"request: {name}: Python calls of the {side}"
            rows.append(Row(what, f"{total:,.0f}", f"<= {_CALLS_MAX}", is_met))
    for kind in MESSAGE:
        turns = found[kind].cost.turns
        what = f"request: {kind}: turns of the client's loop"
        rows.append(Row(what, f"{turns:.1f}", "1", round(turns) <= 1))
    return rows


def run(settings: Settings) -> list[Row]:
    """Measure all kinds of requests, each beside its echo."""
    directory = settings.directory / "broker"
    with broker_process(directory, **SETTINGS) as broker, bare_process() as bare:
        rounds = trio.run(_rounds, broker, bare, settings)
    (settings.directory / "calls").mkdir()
    rows = _rows_of_calls(settings.directory / "calls")
    for name, kinds in _SUMS.items():
        rows += _rows(rounds, name, kinds, echoes=MESSAGE)
    for kind in KINDS:
        if (kind,) not in _SUMS.values():
            rows += _rows(rounds, kind, [kind], echoes=[kind] if kind in _ECHOED else [])
    return rows
