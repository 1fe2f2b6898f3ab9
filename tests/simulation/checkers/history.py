"""History of clients, and the checker of its fifteen anomalies.

It has the shape of Jepsen's workload for Kafka: it contains only operations and replies of
clients, and no internals of the system. So histories of simulated runs and of real processes
are checked alike. Offsets are known, so the order of values is known and every check is linear.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from typing import NamedTuple, final

import msgspec

Key = str
"""Topic and partition."""
Value = str


class Outcome(Enum):
    """Outcome of an operation, as its client knows it."""

    OK = "ok"
    FAILED = "failed"
    """The operation has certainly not happened, and never will."""
    UNKNOWN = "unknown"


class Send(msgspec.Struct, frozen=True, tag=True):
    """A sent value. All values are unique."""

    key: Key
    value: Value
    offset: int | None = None
    """`None` if no reply had it."""


class Poll(msgspec.Struct, frozen=True, tag=True):
    """Values read: for each key, offsets and values in the order of reading."""

    values: dict[Key, list[tuple[int, Value]]]


class Operation(msgspec.Struct, frozen=True):
    """An operation of one process: a step, or a transaction of several steps."""

    process: str
    outcome: Outcome
    steps: list[Send | Poll]
    began_at: float = 0.0
    ended_at: float = 0.0
    seeks: bool = False
    """Whether positions were set before it, by a seek or another assignment, so that its polls
    need not follow earlier ones."""


class Anomaly(Enum):
    """The kinds of error."""

    LOST_WRITE = "an acknowledged value below a read value was never read"
    UNSEEN = "an acknowledged value was not read by the end"
    INCONSISTENT_OFFSETS = "two values at one offset"
    DUPLICATE = "one value at two offsets"
    ABORTED_READ = "G1a: a value of a failed send was read"
    PRECOMMITTED_READ = "a transaction read its own values"
    POLL_SKIP = "from one poll of a process to the next, values were left out"
    NONMONOTONIC_POLL = "from one poll of a process to the next, it went back"
    INT_POLL_SKIP = "within one operation, polls left values out"
    INT_NONMONOTONIC_POLL = "within one operation, polls went back"
    INT_NONMONOTONIC_SEND = "within one operation, sends changed their order"
    INT_SEND_SKIP = "values of other operations lie between two sends of one operation"
    NONMONOTONIC_SEND = "from one operation of a process to the next, sends changed their order"
    WRITE_CYCLE = "G0: transactions form a cycle of writes"
    READ_CYCLE = "G1c: transactions form a cycle of reads"


ALWAYS_ALLOWED = frozenset({Anomaly.INT_SEND_SKIP, Anomaly.WRITE_CYCLE})
"""Other writers may write in between, and no order of transactions is promised."""
ALLOWED_WITH_SUBSCRIBE = frozenset({Anomaly.POLL_SKIP, Anomaly.NONMONOTONIC_POLL})
"""A rebalance revokes partitions and assigns them again."""


class _Entry(NamedTuple):
    offset: int
    value: Value


@final
@dataclass(slots=True)
class _KeyFacts:
    """Facts about one key from all clients."""

    values: dict[int, dict[Value, None]] = field(default_factory=dict[int, dict[Value, None]])
    read_offsets: set[int] = field(default_factory=set[int])
    order: list[int] = field(default_factory=list[int])
    """All known offsets, in order: gaps are no error."""

    def rank(self, offset: int) -> int:
        """Return the rank of an offset among the offsets with values."""
        return bisect_right(self.order, offset) - 1


@final
class HistoryChecker:
    """Finds all anomalies of one history."""

    def __init__(
        self,
        operations: Sequence[Operation],
        *,
        log_starts: Mapping[Key, int] | None = None,
        may_repeat: Collection[str] = (),
        void: Mapping[Key, Sequence[range]] | None = None,
        unknown_below: Mapping[Key, int] | None = None,
    ) -> None:
        """Take `operations` in the order of their ends.

        Args:
            operations: The operations of all clients.
            log_starts: By key, the offset below which values may have been deleted.
            may_repeat: Processes that resend without idempotence. Their values may be at several
                offsets, and a reply may have any of these.
            void: By key, the offsets whose values may have been lost or damaged, and replaced by
                others. Replies about them do not count.
            unknown_below: By key, the offset below which the system may have lost its producer
                state: a value there may be once more above.
        """
        self._void = void or {}
        self._operations = [_without(operation, self._void) for operation in operations]
        self._log_starts = log_starts or {}
        self._may_repeat = may_repeat
        self._unknown_below = unknown_below or {}
        self._keys: dict[Key, _KeyFacts] = defaultdict(_KeyFacts)
        self._writers: dict[Value, tuple[int, Outcome]] = {}
        self._read: dict[Value, None] = {}
        self._found: dict[Anomaly, list[str]] = {}
        for number, operation in enumerate(operations):
            for send in _sends(operation):
                self._writers[send.value] = (number, operation.outcome)
        self._collect()

    def check(self) -> dict[Anomaly, list[str]]:
        """Return the anomalies, with a line for each case."""
        for key, facts in self._keys.items():
            self._check_places(key, facts)
        self._check_writes()
        self._check_reads()
        self._check_inside()
        self._check_between()
        self._check_cycles()
        return self._found

    def realtime_lags(self) -> dict[Key, float]:
        """Return, for each key, the longest time that an acknowledged value was unread."""
        acknowledged: dict[tuple[Key, Value], float] = {}
        read: set[tuple[Key, Value]] = set()
        lags: dict[Key, float] = defaultdict(float)
        for operation in self._operations:
            if operation.outcome is not Outcome.OK:
                continue
            for send in _sends(operation):
                if (send.key, send.value) not in read:  # A reader may be faster than the ack.
                    acknowledged[send.key, send.value] = operation.ended_at
            for key, entry in _polled(operation):
                read.add((key, entry.value))
                at = acknowledged.pop((key, entry.value), None)
                if at is not None:
                    lags[key] = max(lags[key], operation.ended_at - at)
        return dict(lags)

    def _add(self, anomaly: Anomaly, what: str) -> None:
        self._found.setdefault(anomaly, []).append(what)

    def _collect(self) -> None:
        for operation in self._operations:
            for send in _sends(operation):
                if send.offset is not None and operation.outcome is Outcome.OK:
                    self._keys[send.key].values.setdefault(send.offset, {})[send.value] = None
            for key, entry in _polled(operation):
                facts = self._keys[key]
                facts.values.setdefault(entry.offset, {})[entry.value] = None
                facts.read_offsets.add(entry.offset)
                self._read[entry.value] = None
        for facts in self._keys.values():
            facts.order = sorted(facts.values)

    def _check_places(self, key: Key, facts: _KeyFacts) -> None:
        places: dict[Value, list[int]] = {}
        for offset in facts.order:
            values = facts.values[offset]
            if len(values) > 1:
                shown = " and ".join(values)
                self._add(Anomaly.INCONSISTENT_OFFSETS, f"{key} has {shown} at {offset}")
            for value in values:
                places.setdefault(value, []).append(offset)
        unknown_below = self._unknown_below.get(key, 0)
        for value, offsets in places.items():
            known = [offset for offset in offsets if offset >= unknown_below]
            if len(known) > 1 and not self._may_stand_twice(value):
                self._add(Anomaly.DUPLICATE, f"{key} has {value} at {known}")

    def _may_stand_twice(self, value: Value) -> bool:
        number, _ = self._writers.get(value, (-1, None))
        return number >= 0 and self._operations[number].process in self._may_repeat

    def _check_writes(self) -> None:
        last_read = {key: max(facts.read_offsets, default=-1) for key, facts in self._keys.items()}
        for operation in self._operations:
            if operation.outcome is not Outcome.OK:
                continue
            for send in _sends(operation):
                if send.value in self._read or self._may_be_gone(send):
                    continue
                place = f"{send.key} {send.value} at {send.offset}"
                if send.offset is not None and send.offset < last_read.get(send.key, -1):
                    self._add(Anomaly.LOST_WRITE, place)
                else:
                    self._add(Anomaly.UNSEEN, place)

    def _may_be_gone(self, send: Send) -> bool:
        """Return whether the value was deleted, or may have been at an unknown, deleted offset."""
        start = self._log_starts.get(send.key, 0)
        if send.offset is None:
            return start > 0 or bool(self._void.get(send.key))
        return send.offset < start

    def _check_reads(self) -> None:
        for operation in self._operations:
            own = {send.value for send in _sends(operation)}
            for key, entry in _polled(operation):
                _, outcome = self._writers.get(entry.value, (0, None))
                if outcome is Outcome.FAILED:
                    self._add(Anomaly.ABORTED_READ, f"{operation.process} read {key} {entry.value}")
                if entry.value in own:
                    self._add(
                        Anomaly.PRECOMMITTED_READ, f"{operation.process} read {key} {entry.value}"
                    )

    def _check_inside(self) -> None:
        for operation in self._operations:
            polled: dict[Key, list[int]] = {}
            for key, entry in _polled(operation):
                polled.setdefault(key, []).append(entry.offset)
            for key, offsets in polled.items():
                for one, other in pairwise(offsets):
                    self._compare_polls(
                        (Anomaly.INT_POLL_SKIP, Anomaly.INT_NONMONOTONIC_POLL),
                        f"{operation.process} in {key}",
                        (key, one, other),
                    )
            sent: dict[Key, list[int]] = {}
            if operation.outcome is Outcome.OK and operation.process not in self._may_repeat:
                for send in _sends(operation):
                    if send.offset is not None:
                        sent.setdefault(send.key, []).append(send.offset)
            for key, offsets in sent.items():
                for one, other in pairwise(offsets):
                    self._compare_sends(operation.process, key, one, other=other)

    def _compare_polls(
        self, kinds: tuple[Anomaly, Anomaly], actor: str, step: tuple[Key, int, int]
    ) -> None:
        skip, back = kinds
        key, one, other = step
        facts = self._keys[key]
        distance = facts.rank(other) - facts.rank(one)
        is_deleted = other <= self._log_starts.get(key, 0)
        if other <= one:
            self._add(back, f"{actor}: {one}, then {other}")
        elif distance > 1 and not is_deleted:
            self._add(skip, f"{actor}: {one}, then {other}")

    def _compare_sends(self, process: str, key: Key, one: int, *, other: int) -> None:
        facts = self._keys[key]
        if other <= one:
            self._add(
                Anomaly.INT_NONMONOTONIC_SEND, f"{process} in {key}: at {one}, then at {other}"
            )
        elif facts.rank(other) - facts.rank(one) > 1:
            self._add(Anomaly.INT_SEND_SKIP, f"{process} in {key}: at {one}, then at {other}")

    def _check_between(self) -> None:
        polled: dict[tuple[str, Key], int] = {}
        sent: dict[tuple[str, Key], int] = {}
        for operation in self._operations:
            process = operation.process
            if operation.seeks:
                polled = {place: last for place, last in polled.items() if place[0] != process}
            first: dict[Key, int] = {}
            last: dict[Key, int] = {}
            for key, entry in _polled(operation):
                first.setdefault(key, entry.offset)
                last[key] = entry.offset
            for key, offset in first.items():
                before = polled.get((process, key))
                if before is not None:
                    self._compare_polls(
                        (Anomaly.POLL_SKIP, Anomaly.NONMONOTONIC_POLL),
                        f"{process} in {key}",
                        (key, before, offset),
                    )
                polled[process, key] = last[key]
            if operation.outcome is Outcome.OK and operation.process not in self._may_repeat:
                self._check_sent(operation, sent)

    def _check_sent(self, operation: Operation, sent: dict[tuple[str, Key], int]) -> None:
        process = operation.process
        first: dict[Key, int] = {}
        last: dict[Key, int] = {}
        for send in _sends(operation):
            if send.offset is not None:
                first.setdefault(send.key, send.offset)
                last[send.key] = send.offset
        for key, offset in first.items():
            before = sent.get((process, key), -1)
            if offset <= before:
                self._add(
                    Anomaly.NONMONOTONIC_SEND,
                    f"{process} in {key}: at {before}, then at {offset}",
                )
            sent[process, key] = last[key]

    def _check_cycles(self) -> None:
        writes: dict[int, set[int]] = defaultdict(set)
        for facts in self._keys.values():
            for one, other in pairwise(facts.order):
                for before in facts.values[one]:
                    for behind in facts.values[other]:
                        self._add_edge(writes, before, self._writers.get(behind, (-1,))[0])
        reads: dict[int, set[int]] = defaultdict(set)
        for number, operation in enumerate(self._operations):
            for _, entry in _polled(operation):
                self._add_edge(reads, entry.value, number)
        self._check_cycle(Anomaly.WRITE_CYCLE, writes)
        self._check_cycle(Anomaly.READ_CYCLE, reads)

    def _add_edge(self, graph: dict[int, set[int]], value: Value, target: int) -> None:
        source = self._writers.get(value, (-1,))[0]
        if -1 not in (source, target) and source != target:
            graph[target].add(source)

    def _check_cycle(self, anomaly: Anomaly, graph: Mapping[int, Iterable[int]]) -> None:
        try:
            TopologicalSorter(graph).prepare()
        except CycleError as error:
            cycle: list[int] = error.args[1]
            self._add(anomaly, " > ".join(f"operation {number}" for number in cycle))


def unexpected(
    found: Mapping[Anomaly, list[str]], *, uses_subscribe: bool
) -> dict[Anomaly, list[str]]:
    """Return the anomalies in `found` that are not allowed."""
    allowed = set(ALWAYS_ALLOWED)
    if uses_subscribe:
        allowed |= ALLOWED_WITH_SUBSCRIBE
    return {anomaly: cases for anomaly, cases in found.items() if anomaly not in allowed}


def _without(operation: Operation, void: Mapping[Key, Sequence[range]]) -> Operation:
    """Return an operation without steps at void offsets."""

    def counts(key: Key, offset: int | None) -> bool:
        return offset is None or not any(offset in offsets for offsets in void.get(key, ()))

    steps: list[Send | Poll] = []
    for step in operation.steps:
        if isinstance(step, Poll):
            values = {
                key: [entry for entry in entries if counts(key, entry[0])]
                for key, entries in step.values.items()
            }
            steps.append(Poll(values))
        elif counts(step.key, step.offset):
            steps.append(step)
    return msgspec.structs.replace(operation, steps=steps)


def _sends(operation: Operation) -> Iterator[Send]:
    for step in operation.steps:
        if isinstance(step, Send):
            yield step


def _polled(operation: Operation) -> Iterator[tuple[Key, _Entry]]:
    if operation.outcome is not Outcome.OK:
        return
    for step in operation.steps:
        if isinstance(step, Poll):
            for key, entries in step.values.items():
                for offset, value in entries:
                    yield key, _Entry(offset, value)
