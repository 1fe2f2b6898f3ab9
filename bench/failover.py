"""Benchmark of elections: seconds without a leader after a kill, a hang, or a full restart."""

import signal
from time import perf_counter, sleep  # noqa: TID251  (a process is to hang for that long)

from bench.figures import Row, Settings
from bench.nodes import Nodes
from tidelog.wire.messages.topics import CreateTopicRequest, DescribeTopicsRequest
from tidelog.wire.protocol import api

_NODES = 5
_GOAL_S = 3.0
_HANG_S = 12.0
"""Seconds of the hang, longer than a broker session."""


def run(settings: Settings) -> list[Row]:
    """Kill the leader repeatedly; then suspend it; then restart all nodes at once."""
    rounds = settings.choose(30, 3)
    with Nodes(settings.directory, _NODES) as nodes:
        nodes.wait_complete()
        topics: list[str] = []
        known: list[float] = []
        decided: list[float] = []
        for _ in range(rounds):
            leader_id = nodes.wait_leader()
            nodes.signal(leader_id, signal.SIGKILL)
            elapsed = _time_until_decided(nodes, leader_id, topics)
            known.append(elapsed[0])
            decided.append(elapsed[1])
            nodes.start(leader_id)
            nodes.wait_complete()
        hung = _hang(nodes, topics)
        restarted = _restart(nodes, topics)
        lost = _lost(nodes, topics)
    return [
        _percentiles(f"failover: SIGKILL of the leader of {_NODES} nodes, {rounds} times,"
                     " until another one leads", known),
        _percentiles("failover: the same, until it has decided something", decided),
        _row("failover: SIGSTOP of the leader, until another one has decided something", hung),
        Row("failover: SIGKILL and restart of all, until they have decided something",
            f"{restarted:.2f} s"),
        Row("failover: topics created on the way, and missing afterwards on any node",
            f"{len(topics)}, {lost}", "0 missing", lost == 0),
    ]  # fmt: skip


def _time_until_decided(nodes: Nodes, leader_id: int, topics: list[str]) -> tuple[float, float]:
    """Return the seconds until another leader is known, and until it has committed a change."""
    began = perf_counter()
    nodes.wait_leader(but=leader_id)
    known = perf_counter() - began
    _create(nodes, topics, but=leader_id)
    return known, perf_counter() - began


def _hang(nodes: Nodes, topics: list[str]) -> float:
    leader_id = nodes.wait_leader()
    nodes.signal(leader_id, signal.SIGSTOP)
    _, decided = _time_until_decided(nodes, leader_id, topics)
    sleep(max(0.0, _HANG_S - decided))
    nodes.signal(leader_id, signal.SIGCONT)
    nodes.wait_complete()
    return decided


def _restart(nodes: Nodes, topics: list[str]) -> float:
    for node_id in nodes.ports:
        nodes.signal(node_id, signal.SIGKILL)
    began = perf_counter()
    for node_id in nodes.ports:
        nodes.start(node_id)
    _create(nodes, topics)
    elapsed = perf_counter() - began
    nodes.wait_complete()
    return elapsed


def _create(nodes: Nodes, topics: list[str], *, but: int | None = None) -> None:
    topics.append(f"topic-{len(topics)}")
    nodes.call_any(api.CREATE_TOPIC, CreateTopicRequest(topics[-1], 1, {}), but=but)


def _lost(nodes: Nodes, topics: list[str]) -> int:
    missing: set[str] = set()
    for node_id in nodes.ports:
        reply = nodes.ask(node_id, api.DESCRIBE_TOPICS, DescribeTopicsRequest(None))
        missing |= set(topics) - {topic.name for topic in reply.topics}
    return len(missing)


def _percentiles(what: str, seconds: list[float]) -> Row:
    ordered = sorted(seconds)
    last = ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]
    return Row(
        what,
        f"p50 {ordered[len(ordered) // 2]:.2f} s, p99 {last:.2f} s",
        f"p99 < {_GOAL_S:.0f} s",
        last < _GOAL_S,
    )


def _row(what: str, seconds: float) -> Row:
    return Row(what, f"{seconds:.2f} s", f"< {_GOAL_S:.0f} s", seconds < _GOAL_S)
