"""Load roles for Redis, through redis-py with pipelines."""

from time import sleep  # noqa: TID251  (messages are sent when due)
from typing import Any, Final

from bench.peers.libraries import library
from bench.peers.load import PACE_COUNT, Gate, Pace, Role, Shared, in_threads, make_values
from bench.peers.orders import Order
from bench.peers.promises import Promise

_redis = library("redis")

_PIPELINE_COUNT: Final = 1_000
_PIPELINE_BYTES: Final = 4 << 20
_READ_COUNT: Final = 10_000
_READ_BYTES: Final = 16 << 20
_BLOCK_MS: Final = 200
_GROUP: Final = "workers"
_FIELD: Final = b"v"
_NOTHING: Final[list[Any]] = []
_REPLICA_COUNT: Final = 1
"""Replicas beside the primary that must have a record before its acknowledgement."""
_REPLICA_MS_MAX: Final = 4_000
"""Timeout below the client's own, after which the client would send everything again."""


def _connect(order: Order) -> Any:  # noqa: ANN401
    """Connect to the first server: the primary of several."""
    host, _, port = order.addresses.split(",")[0].partition(":")
    client = _redis.Redis(host=host, port=int(port), protocol=2)
    client.ping()
    return client


def _execute(pipeline: Any, order: Order) -> None:  # noqa: ANN401
    """Execute a pipeline, and wait for a replica if the promise needs it."""
    is_replicated = Promise(order.promise).node_count > 1
    if is_replicated:
        pipeline.wait(_REPLICA_COUNT, _REPLICA_MS_MAX)
    answers = pipeline.execute()
    if is_replicated:
        assert answers[-1] >= _REPLICA_COUNT, "no replica has confirmed it"


def _streams(order: Order) -> list[str]:
    return [f"{order.name}.{number}" for number in range(order.partitions)]


def _create(order: Order, gate: Gate) -> None:
    """Do nothing, because the first record creates a stream."""
    del order
    gate.open()
    gate.close()


def _delete(order: Order, gate: Gate) -> None:
    client = _connect(order)
    gate.open()
    client.unlink(*_streams(order))
    gate.close()


def _produce(order: Order, gate: Gate) -> None:
    client, streams, values = _connect(order), _streams(order), make_values(order)
    size = min(_PIPELINE_COUNT, max(_PIPELINE_BYTES // order.value_bytes, 1))
    gate.open()
    for number, first in enumerate(range(0, len(values), size)):
        stream = streams[number % len(streams)]
        pipeline = client.pipeline(transaction=False)
        for value in values[first : first + size]:
            pipeline.xadd(stream, {_FIELD: value})
        _execute(pipeline, order)
    gate.close()
    found = sum(client.xlen(stream) for stream in streams)
    assert found == order.count, f"{found} records are there"


def _consume(order: Order, gate: Gate) -> None:
    client = _connect(order)
    places: dict[Any, Any] = dict.fromkeys(_streams(order), "0")
    count = min(_READ_COUNT, max(_READ_BYTES // order.value_bytes, 1))
    left = order.count
    gate.open()
    while left:
        for stream, entries in _read(client, places, count):
            places[stream.decode()] = entries[-1][0]
            left -= sum(len(fields[_FIELD]) == order.value_bytes for _, fields in entries)
    gate.close()


def _read(client: Any, places: dict[Any, Any], count: int) -> list[Any]:  # noqa: ANN401
    """Return pairs of a stream and its next entries."""
    found: list[Any] = client.xread(places, count=count, block=_BLOCK_MS)
    return found or []


def _pace(order: Order, gate: Gate) -> None:
    client, (stream, *_) = _connect(order), _streams(order)
    pace = Pace(order, gate.open())
    while not pace.is_over:
        pipeline = client.pipeline(transaction=False)
        for value in pace.take(PACE_COUNT):
            pipeline.xadd(stream, {_FIELD: value})
        _execute(pipeline, order)
        sleep(pace.delay())
    gate.close()


def _tail(order: Order, gate: Gate) -> None:
    client = _connect(order)
    places: dict[Any, Any] = dict.fromkeys(_streams(order), "0")
    left = order.count
    gate.open()
    while left:
        for stream, entries in _read(client, places, _READ_COUNT):
            places[stream.decode()] = entries[-1][0]
            for _, fields in entries:
                gate.saw(fields[_FIELD])
            left -= len(entries)
    gate.close()


def _create_queue(order: Order, gate: Gate) -> None:
    client = _connect(order)
    gate.open()
    client.xgroup_create(order.name, _GROUP, id="0", mkstream=True)
    gate.close()


def _delete_queue(order: Order, gate: Gate) -> None:
    client = _connect(order)
    left = client.xlen(order.name)
    assert not left, f"{left} messages are left"
    gate.open()
    client.unlink(order.name)
    gate.close()


def _send(order: Order, gate: Gate) -> None:
    values = make_values(order)
    shared = Shared(order)
    clients = [_connect(order) for _ in range(order.workers)]

    def send(number: int) -> None:
        client = clients[number]
        while (taken := shared.take()) is not None:
            pipeline = client.pipeline(transaction=False)
            for value in values[taken]:
                pipeline.xadd(order.name, {_FIELD: value})
            _execute(pipeline, order)

    in_threads(send, order.workers, gate)


def _work(order: Order, gate: Gate) -> None:
    shared = Shared(order)
    clients = [_connect(order) for _ in range(order.workers)]

    def work(number: int) -> None:
        client = clients[number]
        while shared.left:
            found: list[Any] = client.xreadgroup(
                _GROUP, f"worker-{number}", {order.name: ">"}, count=order.batch, block=_BLOCK_MS
            )
            for stream, entries in found or _NOTHING:
                places = [place for place, _ in entries]
                pipeline = client.pipeline(transaction=False)
                pipeline.xack(stream, _GROUP, *places)
                pipeline.xdel(stream, *places)
                _execute(pipeline, order)
                shared.done(len(places))

    in_threads(work, order.workers, gate, shared=shared)


ROLES: Final[dict[str, Role]] = {
    "create": _create,
    "delete": _delete,
    "produce": _produce,
    "consume": _consume,
    "pace": _pace,
    "tail": _tail,
    "create_queue": _create_queue,
    "delete_queue": _delete_queue,
    "send": _send,
    "work": _work,
}
