"""Benchmark of quotas: a principal at ten times its quota beside another; the cost of accounts."""

import threading
from contextlib import ExitStack, closing, suppress
from time import perf_counter
from typing import Final, final

import trio

import tidelog
from bench.figures import Row, Settings, Spread, ratios
from bench.machine import ServerProcess, broker_process
from bench.raw import Address, RawConnection, make_batch
from tidelog.wire.messages.handshake import AuthenticateRequest
from tidelog.wire.messages.produce import Acks, PartitionBatch, ProduceRequest
from tidelog.wire.protocol import api
from tidelog.wire.security.token import TOKEN

_ROUNDS: Final = 5
_QUOTA_BYTES_PER_S: Final = 2 << 20
_TIMES: Final = 10
"""Multiple of its quota that the flood tries to send."""
_FLOOD_CONNECTIONS: Final = 20
_TURN_CONNECTIONS: Final = 200
_P99_GOAL: Final = 1.2
_TURN_GOAL: Final = 1.01


async def _create(address: str) -> dict[str, bytes]:
    """Create two users; return a token of each."""
    tokens: dict[str, bytes] = {}
    async with tidelog.connect(address, profile="") as client:
        for user in ("quiet", "flood"):
            await client.security.create_user(user)
            tokens[user] = (await client.security.create_token(user)).encode()
    return tokens


async def _limit(address: str, principal: str, **quotas: str) -> None:
    """Replace the quotas of a principal."""
    async with tidelog.connect(address, profile="") as client:
        await client.security.alter_quotas(principal, remove=["*"])
        if quotas:
            await client.security.alter_quotas(principal, set=quotas)


@final
class _Users:
    """Connections of users to one topic."""

    def __init__(self, address: Address, tokens: dict[str, bytes], topic_id: bytes) -> None:
        self._address = address
        self._tokens = tokens
        self._topic_id = topic_id
        self._pause = threading.Event()

    def connect(self, user: str) -> RawConnection:
        """Return a connection of a user, anonymous for an empty name."""
        connection = RawConnection(self._address)
        if user:
            connection.ask(api.AUTHENTICATE, AuthenticateRequest(TOKEN, self._tokens[user]))
        return connection

    def produce(self, connection: RawConnection, batch: bytes) -> None:
        """Append a batch and wait for its acknowledgement."""
        batches = [PartitionBatch(self._topic_id, 0, len(batch))]
        connection.ask(api.PRODUCE, ProduceRequest(Acks.LEADER, 30_000, batches), batch)

    def p99_ms(self, count: int) -> float:
        """Return the p99 of small produce requests of the quiet user, one after the other."""
        batch = bytes(make_batch(1))
        took: list[float] = []
        with closing(self.connect("quiet")) as connection:
            for _ in range(count):
                began = perf_counter()
                self.produce(connection, batch)
                took.append(perf_counter() - began)
                self._pause.wait(0.001)
        return sorted(took)[int(len(took) * 0.99)] * 1000

    def cpu_us(self, broker: ServerProcess, count: int) -> float:
        """Return the microseconds of the broker's CPU for a small produce request."""
        batch = bytes(make_batch(1))
        with closing(self.connect("")) as connection:
            began = broker.cpu_seconds
            for _ in range(count):
                self.produce(connection, batch)
            return (broker.cpu_seconds - began) / count * 1e6


@final
class _Flood:
    """Connections that together try to send a multiple of the quota."""

    def __init__(self, users: _Users, connection_count: int, batch: bytes) -> None:
        self._users = users
        self._batch = batch
        self._pause_s = len(batch) * connection_count / (_QUOTA_BYTES_PER_S * _TIMES)
        self._connections = [users.connect("flood") for _ in range(connection_count)]
        self._threads = [
            threading.Thread(target=self._run, args=(each,)) for each in self._connections
        ]
        self._over = threading.Event()
        self.sent_bytes = 0

    def __enter__(self) -> "_Flood":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for each in self._connections:
            with suppress(OSError):
                each.sock.shutdown(2)
        for thread in self._threads:
            thread.join()
        for each in self._connections:
            each.close()

    def wait(self, seconds: float) -> None:
        """Let the flood run."""
        self._over.wait(seconds)

    def _run(self, connection: RawConnection) -> None:
        with suppress(OSError, EOFError):
            due = perf_counter()
            while not self._over.wait(max(0.0, due - perf_counter())):
                self._users.produce(connection, self._batch)
                self.sent_bytes += len(self._batch)
                due = max(due + self._pause_s, perf_counter() - 1)


def run(settings: Settings) -> list[Row]:
    """Measure isolation by quota, isolation by turns, and the costs of turns and accounts."""
    with ExitStack() as stack:
        broker = stack.enter_context(broker_process(settings.directory))
        host, port = broker.address
        address = f"{host}:{port}"
        tokens = trio.run(_create, address)
        topic_id = RawConnection(broker.address).create_topic("bench", durability="replicated")
        users = _Users(broker.address, tokens, topic_id)
        count = settings.choose(3_000, 300)
        rows = _beside_a_flood(users, address, count)
        rows += _beside_many_connections(users, address, count)
        rows += _turns(broker, users, settings.choose(10_000, 1_000))
        rows += _accounts(broker, users, address=address, count=settings.choose(10_000, 1_000))
    return rows


def _beside_a_flood(users: _Users, address: str, count: int) -> list[Row]:
    trio.run(lambda: _limit(address, "user:flood", produce_bytes_per_s=str(_QUOTA_BYTES_PER_S)))
    alone: list[float] = []
    beside: list[float] = []
    rates: list[float] = []
    batch = bytes(make_batch(1_000))
    for _ in range(_ROUNDS):
        alone.append(users.p99_ms(count))
        with _Flood(users, _FLOOD_CONNECTIONS, batch) as flood:
            flood.wait(2)  # The burst of the first second is over.
            before, began = flood.sent_bytes, perf_counter()
            beside.append(users.p99_ms(count))
            rates.append((flood.sent_bytes - before) / (perf_counter() - began))
    ratio = ratios(beside, alone)
    return [
        Row("quotas: p99 of a produce request, alone: ms", Spread.of(alone).text(".2f")),
        Row(
            f"quotas: the same beside a principal at {_TIMES} times its quota: share of alone",
            ratio.text(".2f"),
            f"<= {_P99_GOAL}",
            ratio.median <= _P99_GOAL,
        ),
        Row(
            "quotas: rate of the throttled principal: share of its quota",
            Spread.of(rate / _QUOTA_BYTES_PER_S for rate in rates).text(".2f"),
        ),
    ]


def _beside_many_connections(users: _Users, address: str, count: int) -> list[Row]:
    """Measure turns alone: the flood has no quota, and as many connections as it likes."""
    trio.run(lambda: _limit(address, "user:flood"))
    batch = bytes(make_batch(100))
    with _Flood(users, _TURN_CONNECTIONS, batch) as flood:
        flood.wait(2)
        p99 = Spread.of(users.p99_ms(count // 3) for _ in range(_ROUNDS))
    return [
        Row(
            f"quotas: p99 beside {_TURN_CONNECTIONS} connections of a principal without quota: ms",
            p99.text(".2f"),
        )
    ]


def _turns(broker: ServerProcess, users: _Users, count: int) -> list[Row]:
    """Measure requests of one principal, alone and while another one is connected."""
    alone: list[float] = []
    beside: list[float] = []
    for _ in range(_ROUNDS):
        alone.append(users.cpu_us(broker, count))
        with closing(users.connect("quiet")):
            beside.append(users.cpu_us(broker, count))
    ratio = ratios(beside, alone)
    return [
        Row(
            "quotas: produce request of a sole principal: broker CPU in us",
            Spread.of(alone).text(),
        ),
        Row(
            "quotas: the same while another principal is connected: share of it",
            ratio.text(".3f"),
            f"<= {_TURN_GOAL}",
            ratio.median <= _TURN_GOAL,
        ),
    ]


def _accounts(broker: ServerProcess, users: _Users, *, address: str, count: int) -> list[Row]:
    plain: list[float] = []
    counted: list[float] = []
    for _ in range(_ROUNDS):
        trio.run(lambda: _limit(address, "anonymous"))
        plain.append(users.cpu_us(broker, count))
        trio.run(
            lambda: _limit(
                address,
                "anonymous",
                produce_bytes_per_s="1GiB",
                fetch_bytes_per_s="1GiB",
                requests_per_s="1000000",
                busy_ms_per_s="1000",
            )
        )
        counted.append(users.cpu_us(broker, count))
    return [
        Row("quotas: produce request without quotas: broker CPU in us", Spread.of(plain).text()),
        Row(
            "quotas: the same with four rates that are not used up: share of it",
            ratios(counted, plain).text(".3f"),
        ),
    ]
