"""Benchmark of the group coordinator's core: heartbeats, targets, commits, memory.

Without network and disk.
"""

import tracemalloc
from collections.abc import Callable
from time import perf_counter
from typing import Final, final

import msgspec

from bench.figures import Row, Settings, Spread
from tidelog.coordinator.groups.assignors import RANGE, UNIFORM, Reader, assign
from tidelog.coordinator.groups.commits import OffsetRange
from tidelog.coordinator.groups.group_manager import GroupManager
from tidelog.coordinator.groups.partitions import Partition
from tidelog.coordinator.groups.records import GroupRecord
from tidelog.coordinator.groups.state_machine import ConsumerGroups
from tidelog.coordinator.groups.targets import TopicShape
from tidelog.wire.messages.groups import (
    NO_MEMBER_EPOCH,
    CommitOffsetsRequest,
    GroupHeartbeatRequest,
    PartitionCommit,
    Subscription,
)

MEMBERS = 1_000
TOPICS: Final = {f"topic-{number}": TopicShape(bytes([number]) * 16, 1_000) for number in range(10)}
_WANTED = Subscription(sorted(TOPICS))
_HEARTBEAT_GOAL_US = 50
_COMMIT_GOAL_US = 100
_ASSIGNOR_GOAL_MS = 1_000
_COMMITS = 100
"""Commits that arrive within 10 ms at 10,000 a second."""


@final
class _Group:
    """A group whose members acknowledge every assignment."""

    def __init__(self) -> None:
        self.leading = GroupManager(ConsumerGroups(), 0)
        self.known: dict[str, tuple[int, int]] = {}
        self.now_ms = 0

    def heartbeat(self, member_id: str, subscription: Subscription | None = None) -> None:
        epoch, revision = self.known.get(member_id, (0, 0))
        request = GroupHeartbeatRequest(
            "g", member_id, epoch, revision, [] if revision == 0 else None, subscription
        )
        reply = self.leading.heartbeat(request, wall_ms=self.now_ms, now_ms=self.now_ms).reply
        self.known[member_id] = (reply.member_epoch, reply.assignment_revision)

    def join(self) -> None:
        sent = msgspec.msgpack.encode(_WANTED)
        for number in range(MEMBERS):
            # Copied as by the network, so that members share no objects.
            self.heartbeat(f"{number:032x}", msgspec.msgpack.decode(sent, type=Subscription))

    def take_up(self) -> None:
        self.now_ms += 10_000
        self.leading.tick(TOPICS, wall_ms=self.now_ms, now_ms=self.now_ms)
        for member_id in list(self.known):
            self.heartbeat(member_id)


def _seconds(do: Callable[[], object], count: int) -> Spread:
    found: list[float] = []
    for _ in range(count):
        began = perf_counter()
        do()
        found.append(perf_counter() - began)
    return Spread.of(found)


def _scaled(spread: Spread, factor: float) -> Spread:
    return Spread(spread.median * factor, spread.low * factor, spread.high * factor)


def _heartbeats(repeats: int) -> list[Row]:
    group = _Group()
    join = _seconds(group.join, 1)
    first = _seconds(group.take_up, 1)

    def all_members() -> None:
        group.now_ms += 5_000
        for member_id in group.known:
            group.heartbeat(member_id)

    idle = _scaled(_seconds(all_members, repeats), 1e6 / MEMBERS)
    assert group.leading.state.group("g").state == "stable"
    return [
        Row(
            "groups: a heartbeat that changes nothing, 1,000 members, in us",
            idle.text(".1f"),
            f"< {_HEARTBEAT_GOAL_US}",
            idle.median < _HEARTBEAT_GOAL_US,
        ),
        Row(
            "groups: joining, in us for each of 1,000 members", f"{join.median / MEMBERS * 1e6:.0f}"
        ),
        Row(
            "groups: first target of 10,000 partitions and all heartbeats up to it, in s",
            f"{first.median:.3f}",
            "< 1",
            first.median < 1,
        ),
    ]


def _assignors(repeats: int) -> list[Row]:
    topic_ids = [shape.topic_id for shape in TOPICS.values()]
    counts = {shape.topic_id: shape.partition_count for shape in TOPICS.values()}
    rows: list[Row] = []
    for what, assignor, different in (
        ("uniform", UNIFORM, 1),
        ("uniform, 10 different subscriptions", UNIFORM, 10),
        ("range", RANGE, 1),
    ):
        new = [Reader(topic_ids[number % different :], ()) for number in range(MEMBERS)]
        held = assign(assignor, new, counts)
        old = [Reader(one.topic_ids, has) for one, has in zip(new, held, strict=True)]
        joined = [*old, Reader(topic_ids, ())]
        for case, readers in (("from nothing", new), ("one more joins", joined)):
            took = _scaled(_seconds(lambda: assign(assignor, readers, counts), repeats), 1e3)  # noqa: B023
            rows.append(
                Row(
                    f"groups: {what}, {case}: 1,000 members, 10,000 partitions, in ms",
                    took.text(".1f"),
                    f"< {_ASSIGNOR_GOAL_MS:,}",
                    took.median < _ASSIGNOR_GOAL_MS,
                )
            )
    return rows


def _commits(repeats: int) -> list[Row]:
    group = _Group()
    group.join()
    group.take_up()
    members = list(group.leading.state.group("g").members.values())[:_COMMITS]
    requests: list[CommitOffsetsRequest] = []
    ranges: dict[Partition, OffsetRange] = {}
    for member in members:
        partition = min(member.held)
        ranges[partition] = OffsetRange(0, 1 << 40)
        commit = PartitionCommit(*partition, 1_000_000, 7)
        requests.append(
            CommitOffsetsRequest("g", member.member_id, member.member_epoch, 1, [commit])
        )
    state = group.leading.state

    def commit_all() -> int:
        outcome = state.commit_offsets(requests, ranges, 0)
        group.leading.apply(outcome.records, 0)
        return len(msgspec.msgpack.encode(outcome.records))

    size = commit_all()
    took = _scaled(_seconds(commit_all, repeats), 1e6 / _COMMITS)
    return [
        Row(
            "groups: a commit of one partition, handled, encoded and applied, in us",
            took.text(".1f"),
            f"< {_COMMIT_GOAL_US}",
            took.median < _COMMIT_GOAL_US,
        ),
        Row("groups: an entry with 100 commits, in bytes", f"{size:,}"),
    ]


def _memory() -> list[Row]:
    tracemalloc.start()
    group = _Group()
    before = tracemalloc.get_traced_memory()[0]
    group.join()
    joined = tracemalloc.get_traced_memory()[0]
    group.take_up()
    taken_up = tracemalloc.get_traced_memory()[0]
    state = ConsumerGroups()
    ranges = {(b"t" * 16, number): OffsetRange(0, 1 << 40) for number in range(10_000)}
    offsets = [
        PartitionCommit(b"t" * 16, number, 1_000_000 + number, 7) for number in range(10_000)
    ]
    request = CommitOffsetsRequest("g", "", NO_MEMBER_EPOCH, 0, offsets)
    (record,) = state.commit_offsets([request], ranges, 0).records
    read = msgspec.msgpack.encode(record)
    ready = tracemalloc.get_traced_memory()[0]
    state.apply(msgspec.msgpack.decode(read, type=GroupRecord))
    committed = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return [
        Row("groups: memory of a member, in bytes", f"{(joined - before) / MEMBERS:,.0f}"),
        Row(
            "groups: memory of a partition in target and assignment, in bytes",
            f"{(taken_up - joined) / 10_000:,.0f}",
        ),
        Row(
            "groups: memory of a committed offset, in bytes", f"{(committed - ready) / 10_000:,.0f}"
        ),
    ]


def run(settings: Settings) -> list[Row]:
    """Measure."""
    repeats = settings.choose(20, 5)
    return [*_heartbeats(repeats), *_assignors(repeats), *_commits(repeats), *_memory()]
