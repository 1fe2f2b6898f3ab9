"""Benchmark of one request: CPU of broker and client for each, beside a bare trio echo.

One client makes one call at a time. The echo exchanges frames of the same sizes between two
programs with nothing but trio, directly after the calls that it is compared with. What an idle
broker uses is measured in each round, and left out: a busy machine makes the calls slower, and the
broker would do more of it for each.
"""

from collections.abc import Iterable, Mapping, Sequence
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
_IDLE_S: Final = 1.0
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


@dataclass(frozen=True, slots=True)
class _Broker:
    """Broker with the share of a core that it uses when idle."""

    process: ServerProcess
    idle: float

    @classmethod
    async def measured(cls, process: ServerProcess) -> Self:
        """Measure the idle broker."""
        before = process.cpu_seconds
        await trio.sleep(_IDLE_S)
        return cls(process, (process.cpu_seconds - before) / _IDLE_S)


@dataclass(frozen=True, slots=True)
class _Round:
    """Measurements of all kinds, in turn."""

    idle: float
    """Share of a core that the idle broker uses."""
    calls: Mapping[str, Sample]
    echoes: Mapping[str, Sample]


def _bytes_of(client: tidelog.Client) -> _Bytes:
    found = client.statistics().connections
    return _Bytes(found.sent_bytes, found.received_bytes)


async def _calls(
    broker: _Broker, client: tidelog.Client, kind: str, *, count: int
) -> tuple[Sample, _Bytes]:
    """Return the costs of calls of a kind, and the mean sizes of their frames."""
    async with KINDS[kind](client, _WARM_UP) as run:
        await run()  # Connects.
    async with KINDS[kind](client, count) as run:
        before, server, own = _bytes_of(client), broker.process.cpu_seconds, process_time()
        times = await run()
        own, server = process_time() - own, broker.process.cpu_seconds - server
        server -= broker.idle * (times[-1] - times[0])
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
        await create_all(client)
    for _ in range(settings.choose(9, 2) + 1):
        idling = await _Broker.measured(broker)
        calls: dict[str, Sample] = {}
        echoes: dict[str, Sample] = {}
        for kind in KINDS:
            count = settings.choose(500, 100) // _FEWER.get(kind, 1)
            async with tidelog.connect(address) as client:
                calls[kind], sizes = await _calls(idling, client, kind, count=count)
            if kind in _ECHOED:
                echoes[kind] = await _echoes(bare, sizes, count)
        rounds.append(_Round(idling.idle, calls, echoes))
    return rounds[1:]


def _sums(samples: Iterable[Mapping[str, Sample]], kinds: Sequence[str], side: str) -> list[float]:
    """Return the sum of a figure of kinds, of each round."""
    return [sum(getattr(found[kind], side) for kind in kinds) for found in samples]


def _rows(
    rounds: Sequence[_Round], name: str, kinds: Sequence[str], *, echoes: Sequence[str]
) -> list[Row]:
    """Return the rows of a kind, or of a sum of kinds, beside a sum of echoes."""
    rows: list[Row] = []
    all_calls = [found.calls for found in rounds]
    has_goal = name in _SUMS
    for side, title in (("server", "broker"), ("client", "client")):
        own = _sums(all_calls, kinds, side)
        rows.append(Row(f"request: {name}: CPU of the {title} in us", Spread.of(own).text(",.0f")))
        if not echoes:
            continue
        bare = _sums((found.echoes for found in rounds), echoes, side)
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
        rate = Spread.of(1e6 / time for time in _sums(all_calls, kinds, "time"))
        rows.append(Row(f"request: {name}: messages a second", rate.text(",.0f")))
    if len(kinds) == 1:
        middle = Spread.of(_sums(all_calls, kinds, "p50"))
        rows.append(Row(f"request: {name}: p50 in us", middle.text(",.0f")))
    return rows


def _rows_of_calls(directory: Path) -> list[Row]:
    """Return the rows of Python calls of whole messages."""
    found = count_calls([*MESSAGE, "flow"], directory)
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
    idle = Spread.of(found.idle * 100 for found in rounds)
    rows.append(Row("request: CPU of an idle broker, left out, in % of a core", idle.text(".2f")))
    for name, kinds in _SUMS.items():
        rows += _rows(rounds, name, kinds, echoes=MESSAGE)
    for kind in KINDS:
        if (kind,) not in _SUMS.values():
            rows += _rows(rounds, kind, [kind], echoes=[kind] if kind in _ECHOED else [])
    return rows
