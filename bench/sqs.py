"""Benchmark of the SQS front: beside ElasticMQ, beside the native client, and with idle polls.

All systems run in turn on the same cores, none of them pinned, under the same load generator
(`bench.sqs_load`). Fronts and their broker count together, as a JVM counts with its database.
Fronts run twice: one front over a broker as it starts by default, which syncs each message to disk,
and a front for each core over a broker that hands messages to the operating system. ElasticMQ uses
all cores and never syncs, so that is the fair comparison. It runs twice, too: with its messages in
a database, and as it starts by default, with messages that end with its process.
"""

import json
import subprocess
import sys
from collections.abc import Callable, Container, Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from time import perf_counter, sleep  # noqa: TID251  (the benchmark measures an idle process)
from typing import Final

import trio

import tidelog
from bench.figures import Row, Settings, Spread, ratios
from bench.machine import ROOT
from bench.peers import elasticmq
from bench.peers.packages import NotAvailableError
from bench.peers.promises import Promise
from bench.peers.servers import Command, Servers, free_ports, start_servers
from bench.sqs_load import SqsOrder, SqsResult, call

_FRONT: Final = "front and broker"
_FRONTS: Final = "fronts and broker without fsync"
_NATIVE: Final = "native client"
_ELASTICMQ: Final = "ElasticMQ"
_UNSTORED: Final = "ElasticMQ without storage"
_SIGNED: Final = "front with signatures, and broker"
_TIDELOG: Final = (sys.executable, "-m", "tidelog")
_ENVIRONMENT: Final = {"PYTHONPATH": str(ROOT)}
_PEERS: Final = ROOT / "build" / "peers"
_CONNECTIONS: Final = 64
_FRONT_COUNT: Final = 2
"""Fronts of `_FRONTS`: the machine of the figures has two cores."""
_BATCHES: Final = (1, 10)
_WARM_UPS: Final = 3
"""Rounds that do not count: a JVM compiles frequent code as it runs."""
_FIRST: Final = 2_000
"""Messages of the first round, and least of the others."""
_POLLS: Final = 10_000
_WAIT_S: Final = 20
_RATE_GOAL: Final = 3.0
_LATENCY_GOAL: Final = 0.5
_MEMORY_GOAL: Final = 0.5
_SENDS_GOAL: Final = 6_000
_IDLE_GOAL_PERCENT: Final = 3.0
_CALLS: Final = {
    "SendMessage": "send, from due to answered",
    "delivered": "from due to received",
    "DeleteMessage": "delete",
}


def _create(address: tuple[str, int], name: str) -> None:
    call(address, "CreateQueue", {"QueueName": name})


def _delete(address: tuple[str, int], name: str) -> None:
    url = call(address, "GetQueueUrl", {"QueueName": name})["QueueUrl"]
    call(address, "DeleteQueue", {"QueueUrl": url})


def _create_natively(address: tuple[str, int], name: str) -> None:
    async def create() -> None:
        async with tidelog.connect(f"{address[0]}:{address[1]}") as client:
            await client.admin.create_queue(name)

    trio.run(create)


def _delete_natively(address: tuple[str, int], name: str) -> None:
    async def delete() -> None:
        async with tidelog.connect(f"{address[0]}:{address[1]}") as client:
            await client.admin.delete_queue(name, with_topic=True)

    trio.run(delete)


@dataclass(frozen=True, slots=True)
class _System:
    """A running system under the load."""

    name: str
    servers: Servers
    addresses: Sequence[tuple[str, int]]
    """Where the load connects."""
    module: str = "bench.sqs_load"
    """The load generator."""
    create: Callable[[tuple[str, int], str], None] = _create
    delete: Callable[[tuple[str, int], str], None] = _delete
    access_key: tuple[str, str] | None = None
    """Id and secret of the key that signs requests."""


@dataclass(frozen=True, slots=True)
class _Measured:
    """One repetition; microseconds of CPU are for one message."""

    rate: float
    server_us: Sequence[float]
    """Of each process, the broker first."""
    load_us: float
    result: SqsResult

    @property
    def front_us(self) -> float:
        """Of all fronts, some of which may be idle."""
        return sum(self.server_us[1:])


@contextmanager
def front_and_broker(
    directory: Path, *, fronts: int = 1, durability: str = "fsync"
) -> Generator[Servers]:
    """Start a broker and fronts, as users start them; the broker has the first address."""
    broker_port, *front_ports = free_ports(1 + fronts)
    directory.mkdir(parents=True, exist_ok=True)
    settings = directory / "broker.toml"
    settings.write_text(f'[topic_defaults]\ndurability = "{durability}"\n', encoding="utf-8")
    broker = ["serve", "--listen", f"127.0.0.1:{broker_port}", "--log-format", "json"]
    broker += ["--data-dir", str(directory / "data"), "--config", str(settings)]
    with start_servers(
        directory, [Command([*_TIDELOG, *broker], _ENVIRONMENT)], [broker_port]
    ) as servers:
        for port in front_ports:
            front = ["sqs", "--broker", f"127.0.0.1:{broker_port}", "--no-auth"]
            front += ["--listen", f"127.0.0.1:{port}"]
            servers.start([*_TIDELOG, *front], environment=_ENVIRONMENT)
        servers.wait_ports([broker_port, *front_ports])
        yield servers


@contextmanager
def _load(order: SqsOrder, module: str) -> Generator[subprocess.Popen[str]]:
    """Start a load generator, which waits for a line."""
    process = subprocess.Popen(
        [sys.executable, "-m", module, json.dumps(asdict(order))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=ROOT,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline(), "a load generator did not start"
        yield process
    finally:
        process.kill()
        process.wait()


def _run(system: _System, order: SqsOrder) -> _Measured:
    """Run one load on existing queues."""
    order = replace(order, addresses=system.addresses, access_key=system.access_key)
    with _load(order, system.module) as process:
        before = system.servers.cpu_seconds_each
        text, _ = process.communicate("begin\n")
        used = system.servers.cpu_seconds_each
        if not text:
            raise RuntimeError(f"the load generator of {system.name} failed")
    result = SqsResult(**json.loads(text))
    if result.duplicates:
        raise RuntimeError(f"{system.name} delivered {result.duplicates} messages twice")
    return _Measured(
        order.count / (result.ended - result.began),
        [(now - earlier) / order.count * 1e6 for now, earlier in zip(used, before, strict=True)],
        result.cpu_seconds / order.count * 1e6,
        result,
    )


def _interleaved(
    systems: Sequence[_System], what: str, order: SqsOrder, *, repetitions: int, seconds: float
) -> dict[str, list[_Measured]]:
    """Measure all systems in turn, each time on a new queue.

    A repetition takes about `seconds`, by the rate of the previous one, unless the order has a
    rate. A peer that fails is left out from then on.
    """
    found: dict[str, list[_Measured]] = {system.name: [] for system in systems}
    rates = dict.fromkeys(found, order.rate or _FIRST / seconds)
    for number in range(repetitions + _WARM_UPS):
        for place, system in enumerate(systems):
            if system.name not in found:
                continue
            count = max(_FIRST, int(rates[system.name] * seconds))
            order = replace(order, queues=[f"{what}-{number}-{place}"], count=count)
            try:
                measured = _through_queue(system, order)
            except (OSError, RuntimeError) as error:
                if system.name not in (_ELASTICMQ, _UNSTORED):
                    raise
                sys.stderr.write(f"{what}: without {system.name}, which failed: {error}\n")
                del found[system.name]
                continue
            if not order.rate:
                rates[system.name] = measured.rate
            if number >= _WARM_UPS:
                found[system.name].append(measured)
    return found


def _through_queue(system: _System, order: SqsOrder) -> _Measured:
    (queue,) = order.queues
    system.create(system.addresses[0], queue)
    measured = _run(system, order)
    system.delete(system.addresses[0], queue)
    return measured


@dataclass(frozen=True, slots=True)
class _Idle:
    """CPU of broker and front in per cent of a core, and their memory."""

    without_polls: Sequence[float]
    with_polls: Sequence[float]
    resident_bytes: int


def _percents(servers: Servers, seconds: float) -> list[float]:
    """Return the CPU of each process during some seconds, in per cent of a core."""
    before, began = servers.cpu_seconds_each, perf_counter()
    sleep(seconds)
    used, passed = servers.cpu_seconds_each, perf_counter() - began
    return [(now - earlier) / passed * 100 for now, earlier in zip(used, before, strict=True)]


def _idle(system: _System, queue_count: int, cycles: int) -> _Idle:
    """Measure idle processes, and then idle polls."""
    queues = [f"idle-{queue_count}-{number}" for number in range(queue_count)]
    for queue in queues:
        system.create(system.addresses[0], queue)
    sleep(_WAIT_S / 4)
    without_polls = _percents(system.servers, _WAIT_S)
    order = SqsOrder(addresses=system.addresses, queues=queues, pollers=_POLLS)
    with _load(order, system.module) as process:
        assert process.stdin is not None
        process.stdin.write("begin\n")
        process.stdin.flush()
        sleep(_WAIT_S * 1.5)
        with_polls = _percents(system.servers, _WAIT_S * cycles)
        if process.poll() is not None:
            raise RuntimeError("the polls ended")
        return _Idle(without_polls, with_polls, system.servers.resident_bytes)


def _signed(system: _System) -> _System:
    """Start a front that checks signatures, over the broker of another one."""
    servers = system.servers
    broker = servers.addresses.split(",")[0]
    (port,) = free_ports(1)
    servers.start(
        [*_TIDELOG, "sqs", "--broker", broker, "--listen", f"127.0.0.1:{port}"],
        environment=_ENVIRONMENT,
    )
    servers.wait_ports([port])
    key = trio.run(_access_key, broker)

    # Queues are created without signatures.
    def create(_: tuple[str, int], name: str) -> None:
        _create(system.addresses[0], name)

    def delete(_: tuple[str, int], name: str) -> None:
        _delete(system.addresses[0], name)

    return _System(
        _SIGNED, servers, [("127.0.0.1", port)], create=create, delete=delete, access_key=key
    )


async def _access_key(broker: str) -> tuple[str, str]:
    async with tidelog.connect(broker) as client:
        await client.security.create_user("bench")
        key = await client.security.create_access_key("bench")
    return key.access_key_id, key.secret


@contextmanager
def _systems(directory: Path) -> Generator[list[_System]]:
    """Start all systems; without ElasticMQ if it is unavailable, and say why."""
    with ExitStack() as stack:
        ours = stack.enter_context(front_and_broker(directory / "tidelog"))
        (broker, front) = addresses_of(ours)
        unsynced = stack.enter_context(
            front_and_broker(directory / "unsynced", fronts=_FRONT_COUNT, durability="replicated")
        )
        native = replace(
            _System(_NATIVE, ours, [broker]),
            module="bench.sqs_native",
            create=_create_natively,
            delete=_delete_natively,
        )
        systems = [
            _System(_FRONT, ours, [front]),
            _System(_FRONTS, unsynced, addresses_of(unsynced)[1:]),
            native,
        ]
        try:
            installed = elasticmq.install(_PEERS / "elasticmq")
        except (NotAvailableError, OSError) as error:
            sys.stderr.write(f"without ElasticMQ: {error}\n")
        else:
            stored = elasticmq.start(installed, directory / "stored", Promise.MEMORY_ONE)
            unstored = elasticmq.start_in_memory(installed, directory / "unstored")
            for name, servers in ((_ELASTICMQ, stored), (_UNSTORED, unstored)):
                stack.enter_context(servers)
                systems.append(_System(name, servers, addresses_of(servers)))
        yield systems


def addresses_of(servers: Servers) -> list[tuple[str, int]]:
    """Return host and port of each address of servers."""
    pairs = (address.rpartition(":") for address in servers.addresses.split(","))
    return [(host, int(port)) for host, _, port in pairs]


def run(settings: Settings) -> list[Row]:
    """Measure rates, latencies, memory and idle polls."""
    repetitions, seconds = settings.choose(5, 1), settings.choose(4, 1)
    with _systems(settings.directory) as systems:
        rows: list[Row] = []
        for batch in _BATCHES:
            half = _CONNECTIONS // 2
            order = SqsOrder(addresses=[], queues=[], senders=half, workers=half, batch=batch)
            what = f"SQS, {_CONNECTIONS} connections, batches of {batch}"
            found = _interleaved(
                systems, f"rate-{batch}", order, repetitions=repetitions, seconds=seconds
            )
            rows += _rate_rows(what, found)
            slowest = min(Spread.of(each.rate for each in side).median for side in found.values())
            order = replace(order, rate=slowest / 2)
            found = _interleaved(
                systems, f"pace-{batch}", order, repetitions=repetitions, seconds=seconds
            )
            rows += _latency_rows(f"{what}, {slowest / 2:,.0f} messages/s", found)
        rows += _memory_rows(systems)
        signed = _signed(systems[0])
        native = next(each for each in systems if each.name == _NATIVE)
        rows += _send_rows([systems[0], native, signed], repetitions, seconds)
    for queue_count in (1, 100):
        with front_and_broker(settings.directory / f"idle-{queue_count}") as servers:
            front = _System(_FRONT, servers, addresses_of(servers)[1:])
            idle = _idle(front, queue_count, settings.choose(3, 1))
        rows += _idle_rows(queue_count, idle)
    return rows


def _rate_rows(what: str, found: dict[str, list[_Measured]]) -> list[Row]:
    rows: list[Row] = []
    for name, side in found.items():
        rates = [each.rate for each in side]
        rows.append(Row(f"{what}: {name}, messages/s", Spread.of(rates).text()))
        rows.append(Row(f"{what}: {name}, CPU of the server for a message", _cpu_text(name, side)))
        rows.append(Row(f"{what}: {name}, {_load_of(name)}", _us([e.load_us for e in side])))
    for ours, other in _pairs(found):
        ratio = ratios([e.rate for e in found[ours]], [e.rate for e in found[other]])
        rows.append(_at_least(f"{what}: {ours} to {other}, messages/s", ratio, _RATE_GOAL))
    return rows + _ratio_rows(what, found)


def _pairs(found: Container[str]) -> list[tuple[str, str]]:
    """Return our systems with each ElasticMQ that has figures."""
    return [
        (ours, other)
        for ours in (_FRONT, _FRONTS)
        for other in (_ELASTICMQ, _UNSTORED)
        if other in found
    ]


def _ratio_rows(what: str, found: dict[str, list[_Measured]]) -> list[Row]:
    """Compare the slowest calls of fronts with those of ElasticMQ."""
    return [
        _at_most(
            f"{what}: {ours} to {other}, p99 of {title}",
            ratios(*([each.result.seconds[kind][1] for each in found[name]] for name in pair)),
            _LATENCY_GOAL,
        )
        for pair in _pairs(found)
        for ours, other in [pair]
        for kind, title in _CALLS.items()
    ]


def _latency_rows(what: str, found: dict[str, list[_Measured]]) -> list[Row]:
    rows: list[Row] = []
    for name, side in found.items():
        for kind, title in _CALLS.items():
            middle, tail = (
                Spread.of(each.result.seconds[kind][place] * 1e3 for each in side)
                for place in (0, 1)
            )
            rows.append(Row(f"{what}: {name}, {title}, p50, ms", middle.text(".2f")))
            rows.append(Row(f"{what}: {name}, {title}, p99, ms", tail.text(".2f")))
    return rows + _ratio_rows(what, found)


def _memory_rows(systems: Sequence[_System]) -> list[Row]:
    resident = {
        system.name: system.servers.resident_bytes / 1e6
        for system in systems
        if system.servers.are_alive
    }
    rows = [
        Row(f"SQS: memory after the load, {name}, MB", f"{megabytes:,.0f}")
        for name, megabytes in resident.items()
        if name != _NATIVE
    ]
    for ours, other in _pairs(resident):
        ratio = Spread.of([resident[ours] / resident[other]])
        rows.append(_at_most(f"SQS: memory of {ours} to {other}", ratio, _MEMORY_GOAL))
    return rows


def _send_rows(systems: Sequence[_System], repetitions: int, seconds: float) -> list[Row]:
    order = SqsOrder(addresses=[], queues=[], senders=_CONNECTIONS)
    found = _interleaved(systems, "send", order, repetitions=repetitions, seconds=seconds)
    what = f"SQS, SendMessage on {_CONNECTIONS} connections"
    rows = [
        Row(f"{what}: {name}, calls/s", Spread.of(each.rate for each in side).text())
        for name, side in found.items()
    ]
    rows += [
        Row(f"{what}: {name}, CPU of the server for a call", _cpu_text(name, side))
        for name, side in found.items()
    ]
    for name in (_FRONT, _SIGNED):
        a_core = Spread.of(1e6 / each.front_us for each in found[name])
        title = f"{what}: {name}, calls/s that one core of the front carries, by its CPU"
        goal = f">= {_SENDS_GOAL:,}"
        rows.append(Row(title, a_core.text(), goal, a_core.median >= _SENDS_GOAL))
    return rows


def _idle_rows(queue_count: int, idle: _Idle) -> list[Row]:
    what = f"SQS, {_POLLS:,} idle polls of {_WAIT_S} s on {queue_count} queues"
    with_polls, without_polls = sum(idle.with_polls), sum(idle.without_polls)
    of_polls = with_polls - without_polls
    return [
        Row(
            f"{what}: CPU that they add to that of front and broker, of a core",
            f"{of_polls:.2f} %",
            f"<= {_IDLE_GOAL_PERCENT:g} %",
            of_polls <= _IDLE_GOAL_PERCENT,
        ),
        Row(f"{what}: CPU of front and broker without a poll", f"{without_polls:.2f} %"),
        Row(f"{what}: CPU of front and broker", f"{with_polls:.2f} %"),
        Row(f"{what}: CPU of the broker alone", f"{idle.with_polls[0]:.2f} %"),
        Row(f"{what}: memory of front and broker, MB", f"{idle.resident_bytes / 1e6:,.0f}"),
    ]


def _load_of(name: str) -> str:
    return "CPU of the client" if name == _NATIVE else "CPU of the load generator"


def _cpu_text(name: str, side: Sequence[_Measured]) -> str:
    total = _us([sum(each.server_us) for each in side])
    if name not in (_FRONT, _FRONTS, _SIGNED):
        return total
    broker, front = _us([each.server_us[0] for each in side]), _us([each.front_us for each in side])
    return f"{total}: broker {broker}, front {front}"


def _us(values: Sequence[float]) -> str:
    return f"{Spread.of(values).text()} us"


def _at_least(what: str, measured: Spread, goal: float) -> Row:
    return Row(what, measured.text(".2f"), f">= {goal:g}", measured.median >= goal)


def _at_most(what: str, measured: Spread, goal: float) -> Row:
    return Row(what, measured.text(".2f"), f"<= {goal:g}", measured.median <= goal)
