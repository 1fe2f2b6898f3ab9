"""Benchmark of partition failover, as a producer sees it: unavailability and lost records."""

import signal
from time import perf_counter
from typing import final

import trio

import tidelog
from bench.figures import Row, Settings
from bench.nodes import PATIENCE_S, Nodes
from tidelog.client.client import Client
from tidelog.client.producer.producer import Producer

_TOPIC = "flights"
_INTERVAL_S = 0.005
_QUIET_S = 3.0
_GOALS_S = {signal.SIGKILL: 3.0, signal.SIGTERM: 0.2}


def run(settings: Settings) -> list[Row]:
    """Stop the leader of a partition with three replicas repeatedly, under a producer."""
    rounds = settings.choose(30, 3)
    rows: list[Row] = []
    with Nodes(settings.directory, 3) as nodes:
        nodes.wait_complete()
        for number, goal_s in _GOALS_S.items():
            waits, wrong = trio.run(_play, nodes, number, rounds)
            ordered = sorted(waits)
            last = ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]
            what = f"takeover: {number.name} of the leader of a partition, {rounds} times"
            rows.append(
                Row(
                    f"{what}: the longest time without an acknowledgement",
                    f"p50 {ordered[len(ordered) // 2]:.2f} s, p99 {last:.2f} s",
                    f"p99 < {goal_s:g} s",
                    last < goal_s,
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
    nodes: Nodes, number: signal.Signals, rounds: int
) -> tuple[list[float], tuple[str, str, bool]]:
    topic = f"{_TOPIC}-{number.name}"
    waits: list[float] = []
    async with tidelog.connect(nodes.addresses) as client:
        await client.admin.create_topic(topic, 1, replication_factor=3)
        async with client.producer() as producer, trio.open_nursery() as nursery:
            sending = _Sending(producer, topic)
            nursery.start_soon(sending.run)
            for _ in range(rounds):
                leader_id = await _wait_in_sync(client, topic)
                await trio.sleep(_QUIET_S)
                sending.longest_wait_s = 0.0
                nodes.signal(leader_id, number)
                await trio.sleep(2 * _QUIET_S)
                waits.append(sending.longest_wait_s)
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
