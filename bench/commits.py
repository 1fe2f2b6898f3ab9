"""Benchmark of the controller under 10,000 offset commits a second: latency, elections, losses."""

import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from time import perf_counter
from typing import Final, final

import trio

from bench.figures import Row, Settings
from bench.nodes import PATIENCE_S, Nodes
from tidelog.wire.batch.record_batch import Columns, encode_batch
from tidelog.wire.env.real.real_env import real_env
from tidelog.wire.errors import TidelogError
from tidelog.wire.messages.groups import (
    CommitOffsetsReply,
    CommitOffsetsRequest,
    FetchOffsetsRequest,
    PartitionCommit,
    TopicPartitions,
)
from tidelog.wire.messages.metadata import MetadataRequest
from tidelog.wire.messages.produce import Acks, PartitionBatch, ProduceRequest
from tidelog.wire.messages.topics import AlterTopicRequest, CreateTopicRequest
from tidelog.wire.protocol import api
from tidelog.wire.transport.rpc import Outcome, RpcConnection, open_rpc

_TOPIC = "work"
_PARTITIONS = 100
_RECORDS = 1_000_000
"""In each partition, of one batch: offsets to commit."""
_OFFERED: Final = 10_000
"""Commits of one partition, each second."""
_MEMBERS = 200
_OPEN_MAX = 20
"""Limit of a member's commits in flight; commits above it are not offered."""
_PROBE_S = 0.05
_GOAL_S = 3.0


def run(settings: Settings) -> list[Row]:
    """Change a topic repeatedly, without and with the commits; then kill the leader under them."""
    with Nodes(settings.directory, 3) as nodes:
        nodes.wait_complete()
        return trio.run(_play, nodes, settings.choose(20, 4), settings.choose(10, 1))


async def _play(nodes: Nodes, seconds: int, kill_count: int) -> list[Row]:
    flood = _Flood(nodes)
    await flood.prepare()
    quiet = await _probe(nodes, flood.leader_id, seconds)
    async with trio.open_nursery() as nursery:
        for member in range(_MEMBERS):
            nursery.start_soon(flood.commit, member)
        await trio.sleep(2)
        before, first_leader_id = flood.acknowledged_count, flood.leader_id
        busy = await _probe(nodes, flood.leader_id, seconds)
        rate = (flood.acknowledged_count - before) / seconds
        has_moved = await trio.to_thread.run_sync(nodes.wait_leader) != first_leader_id
        without = [await _kill_leader(nodes, flood) for _ in range(kill_count)]
        flood.is_over = True
    lost = await flood.count_lost()
    return [
        Row("commits: acknowledged each second, of 10,000 that are offered", f"{rate:,.0f}"),
        Row("commits: a change of a topic meanwhile", _percentiles(busy)),
        Row("commits: the same without commits", _percentiles(quiet)),
        Row("commits: elections without a reason", f"{int(has_moved)}", "0", not has_moved),
        Row(f"commits: SIGKILL of the leader, {kill_count} times, until the next commit",
            f"median {sorted(without)[len(without) // 2]:.2f} s, longest {max(without):.2f} s",
            f"< {_GOAL_S:.0f} s", max(without) < _GOAL_S),
        Row("commits: acknowledged, and lower or gone at the end", f"{lost}", "0", lost == 0),
    ]  # fmt: skip


async def _probe(nodes: Nodes, leader_id: int, seconds: int) -> list[float]:
    """Return the seconds of each of some changes of a topic, requested from the leader."""
    taken: list[float] = []
    async with _connected(nodes, leader_id) as connection:
        end = perf_counter() + seconds
        while perf_counter() < end:
            began = perf_counter()
            change = {"retention_ms": str(1_000_000_000 + len(taken))}
            await connection.ask(api.ALTER_TOPIC, AlterTopicRequest(_TOPIC, change, []))
            taken.append(perf_counter() - began)
            await trio.sleep(_PROBE_S)
    return taken


async def _kill_leader(nodes: Nodes, flood: "_Flood") -> float:
    """Return the seconds without an acknowledged commit."""
    killed_id = flood.leader_id
    nodes.signal(killed_id, signal.SIGKILL)
    began = perf_counter()
    flood.leader_id = await trio.to_thread.run_sync(lambda: nodes.wait_leader(but=killed_id))
    before = flood.acknowledged_count
    with trio.fail_after(PATIENCE_S):
        while flood.acknowledged_count == before:  # noqa: ASYNC110  (seen from outside)
            await trio.sleep(0.01)
    elapsed = perf_counter() - began
    nodes.start(killed_id)
    await trio.to_thread.run_sync(nodes.wait_complete)
    return elapsed


@final
class _Flood:
    """Members that commit ever higher offsets, each in a group of its own."""

    def __init__(self, nodes: Nodes) -> None:
        self.leader_id = nodes.wait_leader()
        self.acknowledged_count = 0
        self.is_over = False
        self._nodes = nodes
        self._topic_id = b""
        self._acknowledged: dict[tuple[int, int], int] = {}
        """By member and partition, the highest offset."""

    async def prepare(self) -> None:
        """Create a topic with many records in little space."""
        async with _connected(self._nodes, self.leader_id) as connection:
            created = await connection.ask(
                api.CREATE_TOPIC, CreateTopicRequest(_TOPIC, _PARTITIONS, {})
            )
            self._topic_id = created.topic_id
            described = await connection.ask(api.METADATA, MetadataRequest([_TOPIC]))
        batch = encode_batch(Columns(_RECORDS), first_timestamp_ms=0)
        for partition in described.topics[0].partitions:
            entry = PartitionBatch(self._topic_id, partition.partition, len(batch))
            await self._append(partition.leader_id or self.leader_id, entry, bytes(batch))

    async def _append(self, node_id: int, entry: PartitionBatch, batch: bytes) -> None:
        done = trio.Event()
        async with _connected(self._nodes, node_id) as connection:
            request = ProduceRequest(Acks.ALL, 60_000, [entry])
            connection.submit(api.PRODUCE, request, lambda _: done.set(), attachment=[batch])
            await done.wait()

    async def commit(self, member: int) -> None:
        """Offer a member's share of the commits per second to the leader."""
        count = 0
        while not self.is_over:
            try:
                async with _connected(self._nodes, self.leader_id) as connection:
                    count = await self._offer(connection, member, count)
            except (TidelogError, OSError):
                await trio.sleep(0.1)

    async def _offer(self, connection: RpcConnection, member: int, count: int) -> int:
        began, offered, open_count = perf_counter(), 0, 0

        def settled(outcome: Outcome, partition: int, offset: int) -> None:
            nonlocal open_count
            open_count -= 1
            if not isinstance(outcome, Exception) and isinstance(outcome[0], CommitOffsetsReply):
                assert outcome[0].results[0].error is None, outcome[0]
                self.acknowledged_count += 1
                key = (member, partition)
                self._acknowledged[key] = max(offset, self._acknowledged.get(key, 0))

        while not (self.is_over or connection.is_lost):
            due = int((perf_counter() - began) * _OFFERED / _MEMBERS)
            for number in range(offered, due):
                if open_count < _OPEN_MAX:
                    partition, offset = (member + number) % _PARTITIONS, count + 1
                    request = CommitOffsetsRequest(
                        f"group-{member}",
                        "",
                        -1,
                        offset,
                        [PartitionCommit(self._topic_id, partition, offset)],
                    )
                    connection.submit(
                        api.COMMIT_OFFSETS,
                        request,
                        partial(settled, partition=partition, offset=offset),
                    )
                    open_count += 1
                    count += 1
            offered = due
            await trio.sleep(_MEMBERS / _OFFERED)
        return count

    async def count_lost(self) -> int:
        """Return the number of offsets below the acknowledged ones."""
        lost = 0
        self.leader_id = self._nodes.wait_leader()
        async with _connected(self._nodes, self.leader_id) as connection:
            wanted = [TopicPartitions(self._topic_id, list(range(_PARTITIONS)))]
            for member in range(_MEMBERS):
                request = FetchOffsetsRequest(f"group-{member}", wanted)
                found = (await connection.ask(api.FETCH_OFFSETS, request)).offsets
                lost += sum(
                    (one.offset or 0) < self._acknowledged.get((member, one.partition), 0)
                    for one in found
                )
        return lost


@asynccontextmanager
async def _connected(nodes: Nodes, node_id: int) -> AsyncGenerator[RpcConnection, None]:
    async with open_rpc(
        real_env().network,
        "127.0.0.1",
        nodes.ports[node_id],
        client_id="bench",
        client_version="1",
    ) as connection:
        yield connection


def _percentiles(seconds: list[float]) -> str:
    ordered = [each * 1000 for each in sorted(seconds)]
    last = ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]
    return f"p50 {ordered[len(ordered) // 2]:.1f} ms, p99 {last:.1f} ms"
