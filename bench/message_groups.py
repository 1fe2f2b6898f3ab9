"""Benchmark of the core of FIFO queues: backlogs of many groups, and of one blocked group.

Without network and disk, in CPU time. Each cost is compared with that of an empty queue, measured
alternately.
"""

import tracemalloc
from collections.abc import Callable
from hashlib import blake2b
from time import process_time
from typing import Final, final

from bench.figures import Row, Settings, Spread, ratios
from tidelog.queue_layer.commands.deduplication import (
    DeduplicationRule,
    DeduplicationWindow,
)
from tidelog.queue_layer.commands.receive import ReceiveCommand
from tidelog.queue_layer.ordering.delivery_order import RecordFields
from tidelog.queue_layer.ordering.fifo_order import FifoOrder
from tidelog.queue_layer.outcome import Outcome, Reply
from tidelog.queue_layer.queue_partition import QueuePartition
from tidelog.queue_layer.receipts import Receipts
from tidelog.wire.config.queue_config import DeduplicationScope, QueueConfig
from tidelog.wire.messages.queue_journal import encode
from tidelog.wire.messages.queues import (
    VISIBILITY_TIMEOUT_MS_MAX,
    PartitionReceived,
    SettleAction,
    Settlement,
)

_CYCLES = 1_000
_RATIO_GOAL = 1.3
_START_MS: Final = 1_700_000_000_000
_BLOCKED_MESSAGES = 200_000
_WINDOW_MS: Final = 300_000


@final
class _Queue:
    """A queue partition whose journal is discarded."""

    def __init__(self) -> None:
        self.now_ms = _START_MS
        receipts = Receipts(queue_id=bytes(16), partition=0, key=bytes(16))
        self.partition = QueuePartition(QueueConfig(is_fifo=True), receipts, FifoOrder)
        self.do(self.partition.seek(0, now_ms=self.now_ms))
        self.partition.start(self.now_ms)

    def do(self, outcome: Outcome[Reply]) -> Reply:
        for frame in outcome.frames:
            encode(frame)
            self.partition.state.apply(frame)
        return outcome.reply

    def send(self, fields: list[RecordFields]) -> None:
        first = self.partition.state.records_from
        self.partition.state.on_records(first, first + len(fields), fields)

    def receive(self, max_messages: int, timeout_ms: int | None = None) -> PartitionReceived:
        command = ReceiveCommand(max_messages=max_messages, visibility_timeout_ms=timeout_ms)
        plan = self.partition.plan(command, now_ms=self.now_ms)
        taken = [(run.first_offset, run.count) for run in plan]
        return self.do(self.partition.receive(plan, taken, now_ms=self.now_ms))

    def delete(self, received: PartitionReceived) -> None:
        runs = [(run.first_offset, run.count) for run in received.runs]
        settlement = Settlement(0, received.receipt, runs, SettleAction.DELETE)
        self.do(self.partition.settle(settlement, now_ms=self.now_ms))

    def cycle_us(self) -> float:
        """Send, receive and delete messages one by one; return the microseconds of each cycle."""
        began = process_time()
        for number in range(_CYCLES):
            self.now_ms += 1
            self.send([RecordFields(group=b"busy %d" % number)])
            self.delete(self.receive(1))
        return (process_time() - began) / _CYCLES * 1e6


def _many_groups(count: int) -> _Queue:
    queue = _Queue()
    for first in range(0, count, 10_000):
        queue.send([RecordFields(group=b"group %d" % (first + place)) for place in range(10_000)])
    return queue


def _blocked_group() -> _Queue:
    """Return a queue with a long group whose first message is in flight."""
    queue = _Queue()
    queue.send([RecordFields(group=b"blocked")] * _BLOCKED_MESSAGES)
    queue.receive(1, VISIBILITY_TIMEOUT_MS_MAX)
    return queue


def _scattered_group() -> _Queue:
    """Return the same, with a deleted message of another group behind each of its messages."""
    queue = _Queue()
    queue.send([RecordFields(group=b"blocked"), RecordFields(group=b"busy")] * _BLOCKED_MESSAGES)
    queue.receive(1, VISIBILITY_TIMEOUT_MS_MAX)
    while (received := queue.receive(1000)).runs:
        queue.delete(received)
    return queue


def _costs(settings: Settings) -> list[Row]:
    groups = settings.choose(1_000_000, 50_000)
    cases: dict[str, Callable[[], _Queue]] = {
        f"{groups:,} groups wait": lambda: _many_groups(groups),
        f"{_BLOCKED_MESSAGES:,} messages of one group wait": _blocked_group,
        f"{_BLOCKED_MESSAGES:,} scattered messages of one group wait": _scattered_group,
    }
    empty, rows = _Queue(), list[Row]()
    for what, make in cases.items():
        queue = make()
        pairs = [(queue.cycle_us(), empty.cycle_us()) for _ in range(settings.choose(21, 7))][1:]
        ours, base = [mine for mine, _ in pairs], [nothing for _, nothing in pairs]
        if not rows:
            rows.append(Row("FIFO: send, receive and delete, in us of CPU", Spread.of(base).text()))
        ratio = ratios(ours, base)
        rows.append(
            Row(
                f"FIFO: the same while {what}, to that",
                ratio.text(".2f"),
                f"< {_RATIO_GOAL}",
                ratio.median < _RATIO_GOAL,
            )
        )
    return rows


def _memory(settings: Settings) -> list[Row]:
    count = settings.choose(1_000_000, 50_000)
    tracemalloc.start()
    groups = _many_groups(count)
    of_groups = tracemalloc.get_traced_memory()[0]
    one_group = _Queue()
    one_group.send([RecordFields(group=b"one")] * count)
    of_one = tracemalloc.get_traced_memory()[0] - of_groups
    tracemalloc.stop()
    assert groups.partition.state.records_from == one_group.partition.state.records_from
    return [
        Row("FIFO: memory of a message in a group of many, in bytes", f"{of_one / count:.0f}"),
        Row("FIFO: memory of a group with one message, in bytes", f"{of_groups / count:.0f}"),
    ]


def _deduplication(settings: Settings) -> list[Row]:
    count = settings.choose(1_000_000, 50_000)
    rule = DeduplicationRule(DeduplicationScope.QUEUE, is_content_based=False)

    def send_all(window: DeduplicationWindow) -> None:
        for number in range(count):
            key = rule.key_of(None, b"%d" % number, b"")
            assert key is not None
            window.original_of(key, now_ms=_START_MS)
            window.appended(key, number, accepted_ms=_START_MS)

    began = process_time()
    send_all(DeduplicationWindow(_WINDOW_MS))
    took_us = (process_time() - began) / count * 1e6
    tracemalloc.start()
    send_all(window := DeduplicationWindow(_WINDOW_MS))
    ours = tracemalloc.get_traced_memory()[0]
    entries = {
        blake2b(b"%d" % number, digest_size=16).digest(): (number, _START_MS + number)
        for number in range(count)
    }
    of_dict = tracemalloc.get_traced_memory()[0] - ours
    tracemalloc.stop()
    assert len(entries) == len(window)
    return [
        Row("deduplication: a send with a new id, in us of CPU", f"{took_us:.1f}"),
        Row("deduplication: memory of an id, in bytes", f"{ours / count:.0f}"),
        Row("deduplication: the same in a dict", f"{of_dict / count:.0f}"),
    ]


def run(settings: Settings) -> list[Row]:
    """Measure."""
    return [*_costs(settings), *_memory(settings), *_deduplication(settings)]
