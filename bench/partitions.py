"""Benchmark of 10,000 partitions on three brokers: creation, and failover of their leaders."""

import signal
from time import perf_counter

from bench.figures import Row, Settings
from bench.nodes import Nodes, wait_for
from tidelog.wire.messages.metadata import MetadataReply
from tidelog.wire.messages.topics import CreateTopicRequest
from tidelog.wire.protocol import api

_TOPICS = 10
_FAILOVER_GOAL_S = 5.0


def run(settings: Settings) -> list[Row]:
    """Create partitions with three replicas; then kill a broker that leads a third of them."""
    count = settings.choose(10_000, 1_000)
    with Nodes(settings.directory, 3) as nodes:
        nodes.wait_complete()
        before = sum(map(nodes.resident_bytes, nodes.ports))
        began = perf_counter()
        for number in range(_TOPICS):
            request = CreateTopicRequest(
                f"topic-{number}", count // _TOPICS, {}, replication_factor=3
            )
            nodes.ask(1, api.CREATE_TOPIC, request)
        decided = perf_counter() - began
        wait_for(lambda: _are_led(nodes, count, by={1, 2, 3}))
        created = perf_counter() - began
        used = sum(map(nodes.resident_bytes, nodes.ports)) - before
        leader_id = nodes.wait_leader()
        victim = next(node_id for node_id in nodes.ports if node_id != leader_id)
        nodes.signal(victim, signal.SIGKILL)
        began = perf_counter()
        wait_for(lambda: _are_led(nodes, count, by=nodes.ports.keys() - {victim}))
        moved = perf_counter() - began
    return [
        Row(f"partitions: {count:,} created with three replicas, until one broker has its own",
            f"{decided:.1f} s"),
        Row("partitions: the same, until each is led by a broker that has opened it",
            f"{created:.1f} s"),
        Row("partitions: memory of a replica", f"{used / count / 3:,.0f} bytes"),
        Row("partitions: SIGKILL of a broker, until others lead all that it led",
            f"{moved:.2f} s", f"< {_FAILOVER_GOAL_S:.0f} s", moved < _FAILOVER_GOAL_S),
    ]  # fmt: skip


def _are_led(nodes: Nodes, count: int, *, by: set[int]) -> bool | None:
    """Return whether all of these brokers know that they together lead all partitions."""
    for node_id in by:
        known = nodes.metadata(node_id)
        if known is None or _led_count(known, by) != count:
            return None
    return True


def _led_count(known: MetadataReply, by: set[int]) -> int:
    return sum(
        partition.leader_id in by for topic in known.topics for partition in topic.partitions
    )
