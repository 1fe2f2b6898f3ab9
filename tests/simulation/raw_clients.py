"""Clients that speak the protocol by hand, and the ledger of what they were told.

A writer repeats a batch until it is acknowledged, under one producer id and sequence, as an
idempotent producer does; a reader follows a partition from its start. What the broker says must
never contradict what it said before, to anybody.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from math import inf
from random import Random
from typing import final

import trio

from tests.simulation.process import Process
from wire import api
from wire.compression import Codec
from wire.errors import (
    ConnectionLostError,
    ErrorDetail,
    LogOfflineError,
    RetriableError,
    from_wire,
)
from wire.fetch import FetchRequest, PartitionFetch, PartitionFetched
from wire.produce import (
    AckLevel,
    Acks,
    InitProducerRequest,
    PartitionBatch,
    ProduceReply,
    ProduceRequest,
)
from wire.record_batch import Columns, decode_columns, encode_batch, parse_header
from wire.rpc import Outcome, RpcConnection, open_rpc

Place = tuple[int, int]
"""A partition and an offset."""

_PATIENCE_S = 4.0
_BACKOFF_S = 0.1
_ACK_TIMEOUT_MS = 2000
_FETCH_WAIT_MS = 500
_FETCH_BYTES = 4096
_WRITE_PAUSE_MEAN_S = 0.02
_TIMESTAMP_MS = 1_700_000_000_000
_UNPACKED_MAX = 1 << 24


@final
class BrokenPromiseError(Exception):
    """The broker contradicted itself."""


@dataclass(slots=True)
class Ledger:
    """What clients were told: which record is where.

    Invariant: a record has one place, and a place one record, for ever.
    """

    acknowledged: dict[Place, bytes] = field(default_factory=dict[Place, bytes])
    read: dict[Place, bytes] = field(default_factory=dict[Place, bytes])
    _places: dict[bytes, Place] = field(default_factory=dict[bytes, Place])

    def note_acknowledged(self, place: Place, value: bytes) -> None:
        """A record was acknowledged by all, on their disks."""
        self._note(place, value)
        self.acknowledged[place] = value

    def note_read(self, place: Place, value: bytes) -> None:
        """A record was read."""
        self._note(place, value)
        self.read[place] = value

    def _note(self, place: Place, value: bytes) -> None:
        known = self.acknowledged.get(place) or self.read.get(place) or value
        if known != value:
            raise BrokenPromiseError(f"{place} was {known!r} and is now {value!r}")
        known_at = self._places.setdefault(value, place)
        if known_at != place:
            raise BrokenPromiseError(f"{value!r} is at {known_at} and again at {place}")

    def check_all_read(self) -> None:
        """Check that everything that was acknowledged has been read."""
        lost = sorted(self.acknowledged.keys() - self.read.keys())
        if lost:
            raise BrokenPromiseError(f"{len(lost)} acknowledged records are lost: {lost[:5]} ...")


@dataclass(frozen=True, slots=True)
class Server:
    """Where to find the topic."""

    host: str
    port: int
    topic_id: bytes
    partition_count: int


async def with_connection(
    process: Process, server: Server, use: Callable[[RpcConnection], Awaitable[None]]
) -> None:
    """Connect, and call `use` with the connection; again and again, until `use` returns."""
    while True:
        try:
            with trio.fail_after(_PATIENCE_S) as patience:
                async with open_rpc(
                    process.env.network,
                    server.host,
                    server.port,
                    client_name=process.name,
                    client_version="1",
                ) as connection:
                    patience.deadline = inf
                    await use(connection)
                    return
        except (ConnectionLostError, RetriableError, trio.TooSlowError):
            await trio.sleep(_BACKOFF_S)


@final
class Writer:
    """Writes to all partitions in turn, one batch at a time.

    Invariant: the batch that is under way is repeated until it is acknowledged.
    """

    def __init__(self, server: Server, ledger: Ledger, random: Random, *, name: str) -> None:
        """Choose sizes and pauses by `random`."""
        self.should_stop = False
        self._server = server
        self._ledger = ledger
        self._random = random
        self._name = name
        self._producer_id = 0
        self._sequences = [0] * server.partition_count
        self._under_way: _Batch | None = None

    async def run(self, process: Process) -> None:
        """Write until told to stop."""
        await with_connection(process, self._server, self._write)

    async def _write(self, connection: RpcConnection) -> None:
        while self._under_way is not None or not self.should_stop:
            with trio.fail_after(_PATIENCE_S):
                if self._producer_id == 0:
                    reply = await connection.ask(api.INIT_PRODUCER, InitProducerRequest())
                    self._producer_id = reply.producer_id
                if self._under_way is None:
                    self._under_way = self._next_batch()
                if await self._is_acknowledged(connection, self._under_way):
                    self._under_way = None
            await trio.sleep(self._random.expovariate(1 / _WRITE_PAUSE_MEAN_S))

    def _next_batch(self) -> "_Batch":
        partition = self._random.randrange(len(self._sequences))
        count = self._random.randint(1, 4)
        first = self._sequences[partition]
        self._sequences[partition] += count
        values = [
            b"%s/%d/%d/" % (self._name.encode(), partition, sequence)
            + b"x" * self._random.randrange(200)
            for sequence in range(first, first + count)
        ]
        batch = encode_batch(
            Columns(count, values=values),
            first_timestamp_ms=_TIMESTAMP_MS,
            codec=self._random.choice([Codec.NONE, Codec.LZ4, Codec.ZSTD]),
            producer_id=self._producer_id,
            base_sequence=first,
        )
        return _Batch(partition, values, bytes(batch))

    async def _is_acknowledged(self, connection: RpcConnection, batch: "_Batch") -> bool:
        """Send a batch once; return whether it was acknowledged."""
        entry = PartitionBatch(self._server.topic_id, batch.partition, len(batch.encoded))
        request = ProduceRequest(Acks.ALL, _ACK_TIMEOUT_MS, [entry])
        (result,) = (await _produce(connection, request, batch.encoded)).results
        if result.error is not None:
            _require_passing(result.error)
            return False
        if result.ack_level != AckLevel.DURABLE:
            raise BrokenPromiseError(f"acknowledged at level {result.ack_level} only")
        for number, value in enumerate(batch.values):
            self._ledger.note_acknowledged((batch.partition, result.base_offset + number), value)
        return True


@dataclass(frozen=True, slots=True)
class _Batch:
    """What a writer is about to write."""

    partition: int
    values: list[bytes]
    encoded: bytes


async def _produce(
    connection: RpcConnection, request: ProduceRequest, attachment: bytes
) -> ProduceReply:
    outcomes: list[Outcome] = []
    done = trio.Event()

    def take(outcome: Outcome) -> None:
        outcomes.append(outcome)
        done.set()

    connection.submit(api.PRODUCE, request, take, attachment=[attachment])
    await done.wait()
    (outcome,) = outcomes
    reply = outcome if isinstance(outcome, Exception) else outcome[0]
    if isinstance(reply, Exception):
        raise reply
    assert isinstance(reply, ProduceReply)
    return reply


@final
class Reader:
    """Reads all partitions from their start, and goes on as they grow."""

    def __init__(self, server: Server, ledger: Ledger) -> None:
        """Note what is read in `ledger`."""
        self.should_stop = False
        self._server = server
        self._ledger = ledger
        self._next_offsets = [0] * server.partition_count

    async def run(self, process: Process) -> None:
        """Read until told to stop, and then to the end."""
        await with_connection(process, self._server, self._read)

    async def _read(self, connection: RpcConnection) -> None:
        at_end = False
        while not (at_end and self.should_stop):
            request = FetchRequest(
                _FETCH_WAIT_MS,
                1,
                1 << 20,
                [
                    PartitionFetch(self._server.topic_id, partition, offset, _FETCH_BYTES)
                    for partition, offset in enumerate(self._next_offsets)
                ],
            )
            with trio.fail_after(_PATIENCE_S):
                results, data = await connection.call(
                    api.FETCH, request, take=lambda reply, data: (reply.results, bytes(data))
                )
            at_end = True
            for partition, result in enumerate(results):
                self._take(partition, result, data[: result.batch_bytes])
                data = data[result.batch_bytes :]
                at_end &= self._next_offsets[partition] == result.high_watermark

    def _take(self, partition: int, result: PartitionFetched, batches: bytes) -> None:
        if result.error is not None:
            _require_passing(result.error)
        while batches:
            header = parse_header(batches)
            if header is None:
                raise BrokenPromiseError("a fetch brought something that is no batch")
            columns = decode_columns(
                header, batches[: header.size], uncompressed_length_max=_UNPACKED_MAX
            )
            assert columns.values is not None
            for offset, value in enumerate(columns.values, header.base_offset):
                if offset >= result.high_watermark:
                    raise BrokenPromiseError(f"{offset} was read and is not committed")
                assert value is not None
                self._ledger.note_read((partition, offset), value)
            if header.base_offset > self._next_offsets[partition]:
                raise BrokenPromiseError(
                    f"{partition} goes from {self._next_offsets[partition]} to {header.base_offset}"
                )
            self._next_offsets[partition] = header.next_offset
            batches = batches[header.size :]


def _require_passing(detail: ErrorDetail) -> None:
    """Check that an error is one that time, or an operator, can cure."""
    error = from_wire(detail)
    if not isinstance(error, (RetriableError, LogOfflineError)):
        raise BrokenPromiseError(f"{type(error).__name__}: {error}")
