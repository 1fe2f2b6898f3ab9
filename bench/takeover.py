"""Benchmark of partition failover, as a producer sees it: unavailability and lost records."""

import signal
from time import perf_counter
from typing import NamedTuple, final

import trio

import tidelog
from bench.figures import Row, Settings
from bench.nodes import PATIENCE_S, Nodes
from tidelog.client.client import Client
from tidelog.client.producer.producer import Producer

_TOPIC = "flights"
_INTERVAL_S = 0.005
_QUIET_S = 3.0


@final
class _Fault(NamedTuple):
    """A way to stop the leader of the partition."""

    what: str
    number: signal.Signals
    goal_s: float | None
    """Goal of the longest time without an acknowledgement."""
    watched_s: float
    """Seconds from the signal until a stopped broker runs again."""
    rounds: int = 30
    hits_all: bool = False
    """All brokers are stopped, and start again at once."""


_FAULTS = (
    _Fault("SIGKILL of the leader of a partition", signal.SIGKILL, 3.0, 6.0),
    _Fault("SIGTERM of the leader of a partition", signal.SIGTERM, 0.2, 6.0),
    _Fault("SIGSTOP of the leader of a partition", signal.SIGSTOP, 6.0, 8.0),
    _Fault(
        "SIGKILL and restart of all brokers", signal.SIGKILL, None, 12.0, rounds=10, hits_all=True
    ),
)


def run(settings: Settings) -> list[Row]:
    """Stop the leader of a partition with three replicas repeatedly, under a producer."""
    rows: list[Row] = []
    with Nodes(settings.directory, 3) as nodes:
        nodes.wait_complete()
        for fault in _FAULTS:
            rounds = settings.choose(fault.rounds, 3)
            waits, wrong = trio.run(_play, nodes, fault, rounds)
            ordered = sorted(waits)
            last = ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]
            what = f"takeover: {fault.what}, {rounds} times"
            rows.append(
                Row(
                    f"{what}: the longest time without an acknowledgement",
                    f"p50 {ordered[len(ordered) // 2]:.2f} s, p99 {last:.2f} s",
                    "" if fault.goal_s is None else f"p99 < {fault.goal_s:g} s",
                    None if fault.goal_s is None else last < fault.goal_s,
                )
            )
            rows.append(Row(f"{what}: acknowledged records", *wrong))
    return rows


@final
class _Sending:
    """Records sent at a fixed rate, and their acknowledgements."""

    def __init__(self, producer: Producer, topic: str) -> None:
        self.places: dict[int, int] = {}
        """Offset of each acknowledged record."""
        self.failures: list[str] = []
        self._producer = producer
        self._topic = topic
        self._acknowledged_at = perf_counter()
        self.longest_wait_s = 0.0

    @property
    def wait_s(self) -> float:
        """Longest time without an acknowledgement, one that has not ended included."""
        return max(self.longest_wait_s, perf_counter() - self._acknowledged_at)

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            number = 0
            while True:
                nursery.start_soon(self._send, number)
                number += 1
                await trio.sleep(_INTERVAL_S)

    async def _send(self, number: int) -> None:
        try:
            receipt = await self._producer.send(self._topic, b"%d" % number)
        except tidelog.TidelogError as error:
            self.failures.append(str(error))
            return
        now = perf_counter()
        self.longest_wait_s = max(self.longest_wait_s, now - self._acknowledged_at)
        self._acknowledged_at = now
        assert receipt.offset is not None, "the producer requested offsets"
        self.places[number] = receipt.offset


async def _play(
    nodes: Nodes, fault: _Fault, rounds: int
) -> tuple[list[float], tuple[str, str, bool]]:
    topic = f"{_TOPIC}-{_FAULTS.index(fault)}"
    waits: list[float] = []
    async with tidelog.connect(nodes.addresses) as client:
        await client.admin.create_topic(topic, 1, replication_factor=3)
        async with client.producer() as producer, trio.open_nursery() as nursery:
            sending = _Sending(producer, topic)
            nursery.start_soon(sending.run)
            for _ in range(rounds):
                await _wait_in_sync(client, topic)
                await trio.sleep(_QUIET_S)
                leader_id = await _wait_in_sync(client, topic)
                sending.longest_wait_s = 0.0
                _stop(nodes, fault, leader_id)
                await trio.sleep(fault.watched_s)
                waits.append(sending.wait_s)
                if fault.number is signal.SIGSTOP:
                    nodes.signal(leader_id, signal.SIGCONT)
                elif not fault.hits_all:
                    nodes.start(leader_id)
            await _wait_in_sync(client, topic)
            nursery.cancel_scope.cancel()
        read = await _read(client, topic, len(sending.places))
    missing = sum(place not in read for place in sending.places.values())
    moved = sum(read.get(place) != sent for sent, place in sending.places.items()) - missing
    twice = len(read) - len(set(read.values()))
    is_right = not (missing or moved or twice or sending.failures)
    text = f"{len(sending.places):,}, missing {missing}, elsewhere {moved}, twice {twice}"
    return waits, (text, "all once, where they were said to be", is_right)


def _stop(nodes: Nodes, fault: _Fault, leader_id: int) -> None:
    for node_id in nodes.ports if fault.hits_all else [leader_id]:
        nodes.signal(node_id, fault.number)
    if fault.hits_all:
        for node_id in nodes.ports:
            nodes.start(node_id)


async def _wait_in_sync(client: Client, topic: str) -> int:
    """Return the leader, once all three replicas are in sync."""
    with trio.fail_after(PATIENCE_S):
        while True:
            (described,) = await client.admin.describe_topics([topic])
            (partition,) = described.partitions
            if len(partition.in_sync_replicas) == 3 and partition.leader_id is not None:  # noqa: PLR2004
                return partition.leader_id
            await trio.sleep(0.05)


async def _read(client: Client, topic: str, count: int) -> dict[int, int]:
    """Return the record number at each offset."""
    found: dict[int, int] = {}
    async with client.consumer(topic, auto_offset_reset="earliest") as consumer:
        with trio.move_on_after(PATIENCE_S):
            async for record in consumer:
                assert record.value is not None
                found[record.offset] = int(record.value)
                if len(found) >= count:
                    break
    return found
