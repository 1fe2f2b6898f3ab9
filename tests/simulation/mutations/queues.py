"""Mutations that queues reveal: in brokers, in queue states, in the client."""

# A mutation replaces private parts of the code.
# pyright: reportPrivateUsage=false

from collections.abc import Iterator
from itertools import count
from typing import Any, Final

from msgspec.structs import replace

from tests.simulation.mutations.mutation import Mutation
from tidelog.broker.partitions import mover_ids
from tidelog.broker.partitions.partition import Partition
from tidelog.broker.queues.dead_letters import mover
from tidelog.broker.queues.handlers.deduplication_windows import (
    DeduplicationWindows,
    PartitionWindow,
)
from tidelog.broker.queues.handlers.receive import PendingReceive
from tidelog.broker.queues.handlers.send import PendingSend
from tidelog.broker.queues.handlers.settle import PendingSettle
from tidelog.broker.queues.partition import hosted_partition
from tidelog.broker.queues.partition.delivery import Delivery
from tidelog.broker.queues.partition.hosted_partition import HostedPartition
from tidelog.broker.requests.purgatory import Purgatory
from tidelog.client.queue.receive.settler import QueueSettler, _Operation
from tidelog.queue_layer.commands import settle
from tidelog.queue_layer.commands.deduplication import DeduplicationWindow
from tidelog.queue_layer.commands.fifo_send import SentMessages
from tidelog.queue_layer.ordering import factory
from tidelog.queue_layer.ordering.delivery_order import Candidates, MakeOrder
from tidelog.queue_layer.ordering.fifo_order import _DONE, _STATE, _VISIBLE, FifoOrder
from tidelog.queue_layer.ordering.priority_order import PriorityOrder
from tidelog.queue_layer.ordering.standard_order import StandardOrder
from tidelog.queue_layer.queue_partition import QueuePartition
from tidelog.queue_layer.state.message_state import SnapshotState
from tidelog.queue_layer.state.pending_dead_letters import PendingDeadLetters
from tidelog.queue_layer.state.queue_state import QueueState
from tidelog.wire.config.queue_config import QueueConfig
from tidelog.wire.errors import TidelogError
from tidelog.wire.messages.produce import AckLevel
from tidelog.wire.messages.queue_journal import Delayed, Extended, Received
from tidelog.wire.messages.queues import Run, SendReply, Settled


def _add_lazily(self: PendingReceive, hosted: HostedPartition, taken: Delivery) -> None:
    index = len(self._results)
    self._results.append(taken.received)
    self._pieces[index] = taken.pieces
    self._open.add(index)
    hosted.journal.when_appended(self, index)


def _expect_appended(self: PendingSettle, hosted: HostedPartition, index: int, action: int) -> None:
    del action
    self._open.add(index)
    hosted.journal.when_appended(self, index)


def _wait_for_a_receive(self: HostedPartition) -> None:
    del self


_receive_entry = QueueState._received


def _received_without_count(self: QueueState, entry: Received, now_ms: int) -> None:
    _receive_entry(self, entry, now_ms)
    if self.order is not None:
        return
    for first, length in entry.runs:
        for piece in self.runs.cut(first, first + length):
            status = piece[2]
            kept = replace(status, receive_count=max(1, status.receive_count - 1))
            self.runs.put(piece[0], piece[1], kept)


_start = QueueState.start


def _start_without_leases(self: QueueState) -> None:
    for first, end, status in list(self.runs):
        if status.stored is SnapshotState.IN_FLIGHT:
            self.runs.cut(first, end)
            freed = replace(status, stored=SnapshotState.AVAILABLE, visible_at_ms=0)
            self.runs.put(first, end, freed)
    _start(self)


def _extend_in_memory(self: QueueState, entry: Extended) -> None:
    if self.order is not None:
        _extended(self, entry)


_extended = QueueState._extended


def _no_refusal(*_: object, **__: object) -> None:
    """Refuse no request."""


_refusal = settle._refusal


def _fresh_is_done(state: QueueState, first: int, end: int) -> Iterator[Any]:
    for piece_first, piece_end, status in _pieces(state, first, end):
        is_fresh = piece_first >= state.cursor
        yield piece_first, piece_end, None if is_fresh else status


_pieces = settle._pieces


def _refuse_later(state: QueueState, *args: Any, **by: Any) -> Any:  # noqa: ANN401  (passed on)
    _, status = args
    if status is not None and status.stored is SnapshotState.IN_FLIGHT:
        return None if status.visible_at_ms > state.time_ms else _refusal(state, *args, **by)
    return _refusal(state, *args, **by)


def _snapshot_but_one(self: QueuePartition, *, now_ms: int) -> Any:  # noqa: ANN401  (passed on)
    frames = _snapshot(self, now_ms=now_ms)
    if len(frames) > 2:
        last: Any = frames[-2].entries[0]
        last.runs.pop()
        ended: Any = frames[-1].entries[0]
        frames[-1].entries[0] = replace(ended, run_count=ended.run_count - 1)
    return frames


_snapshot = QueuePartition.snapshot


def _no_moves(_: PendingDeadLetters) -> list[Any]:
    return []


def _order_of_any(config: QueueConfig) -> MakeOrder:
    return StandardOrder if config.is_fifo else _order_for(config)


_order_for = factory.order_for


def _leased_as_dead(self: FifoOrder, first: int, end: int, *, is_in_flight: bool) -> None:
    if is_in_flight:
        self.on_dead_lettered(first, end)
    else:
        _became_invisible(self, first, end, is_in_flight=is_in_flight)


_became_invisible = FifoOrder.on_invisible


def _first_invisible_never(self: FifoOrder, group: int, count_max: int) -> Iterator[Run]:
    at, link = self._heads[group], self._links.get(self._heads[group])
    while count_max and link & _STATE != _DONE:
        if link & _STATE == _VISIBLE:
            yield at, at + 1
            count_max -= 1
        at, link = self._following(at, link)


_NUMBERS = count()


def _another_id(queue_id: bytes, partition: int) -> int:
    return _producer_id_of(queue_id, partition) ^ next(_NUMBERS)


_producer_id_of = mover_ids.producer_id_of


async def _do_not_wait(*_: object) -> None:
    """Skip the wait."""


def _forget_times(self: QueueState, entry: Delayed) -> None:
    late = [(first, length, 0) for first, length, _ in entry.runs]
    _delayed(self, Delayed(late))


_delayed = QueueState._delayed


def _last_priority_only_first(self: PriorityOrder, limit: int, turn: int) -> Iterator[Candidates]:
    priorities = self._priorities
    try:
        self._priorities = priorities[:-1]
        self._cycle = [priority for priority in self._cycle if priority < len(self._priorities)]
        yield from list(_candidates(self, limit, turn))
    finally:
        self._priorities = priorities


_candidates = PriorityOrder.candidates


def _one_more(self: QueueConfig) -> int | None:
    most = self.max_receive_count
    return None if self.dead_letter_target is None or most is None else most + 1


def _failed_is_done(self: QueueSettler, operation: _Operation, error: TidelogError) -> None:
    del error
    self._finish(operation)


def _refused_is_done(self: QueueSettler, operation: _Operation, result: Settled) -> None:
    if result.error is not None:
        _answered(self, operation, result)
    else:
        self._finish(operation)


_answered = QueueSettler._answered


def _snapshot_one_further(self: QueuePartition, *, now_ms: int) -> Any:  # noqa: ANN401
    frames = _snapshot(self, now_ms=now_ms)
    began: Any = frames[0].entries[0]
    frames[0].entries[0] = replace(began, cursor=began.cursor + 1)
    return frames


def _dead_letters_received_once(self: QueueState, batch: Any) -> Any:  # noqa: ANN401
    return [replace_count(each) for each in _dead_letters(self, batch)]


def replace_count(each: Any) -> Any:  # noqa: ANN401  (dead letters)
    """Return dead letters that were received once."""
    return type(each)(each.first_offset, each.count, 1, 0, 0, each.reason)


_dead_letters = QueueState.dead_letters


def _never(_: object) -> None:
    """Return no time."""


def _hear_nothing(*_: object) -> None:
    """Ignore all events."""


async def _read_nothing(self: DeduplicationWindows, window: PartitionWindow) -> None:
    del self
    view = window.view
    kept = DeduplicationWindow(view.window_ms)
    window.messages = SentMessages(view.queue_id, view.deduplication_rule, kept)


def _answer_at_once(
    self: PendingSend, reply: SendReply, partition: Partition, purgatory: Purgatory
) -> None:
    del partition, purgatory
    self._reply = reply
    self.acknowledged(0, AckLevel.DURABLE)


MUTATIONS: Final = (
    Mutation(
        "not-woken-by-time",
        "a long poll is not woken by the end of leases and delays",
        (HostedPartition, "next_deadline_ms", property(_never)),
    ),
    Mutation(
        "dead-at-the-next-receive",
        "a message that had all its deliveries is a dead letter only when a receive meets it",
        (HostedPartition, "dead_letter_exhausted", _wait_for_a_receive),
    ),
    Mutation(
        "not-woken-by-records",
        "a long poll is not woken by new messages",
        (HostedPartition, "_watch", _hear_nothing),
    ),
    Mutation(
        "lease-before-commit",
        "a receive is answered before its lease is committed",
        (PendingReceive, "_add", _add_lazily),
    ),
    Mutation(
        "settled-before-commit",
        "a delete is answered before it is committed",
        (PendingSettle, "expect", _expect_appended),
    ),
    Mutation(
        "count-lost-with-leader",
        "a new leader lacks the last deliveries",
        (QueueState, "_received", _received_without_count),
    ),
    Mutation(
        "leases-end-with-leader",
        "a new leader delivers messages in flight",
        (QueueState, "start", _start_without_leases),
    ),
    Mutation(
        "extension-in-memory",
        "a new leader lacks extensions",
        (QueueState, "_extended", _extend_in_memory),
    ),
    Mutation(
        "lost-lease-deletes-nothing",
        "a delete after a lost lease is acknowledged but not executed",
        (settle, "_pieces", _fresh_is_done),
    ),
    Mutation(
        "any-receipt",
        "a void receipt settles another worker's delivery",
        (settle, "_refusal_of_ended", _no_refusal),
    ),
    Mutation(
        "stale-extends-what-is-held",
        "a message in flight is settled with an earlier receipt",
        (settle, "_refusal", _refuse_later),
    ),
    Mutation(
        "snapshot-forgets-a-run",
        "a snapshot lacks the last messages that were received",
        (QueuePartition, "snapshot", _snapshot_but_one),
    ),
    Mutation(
        "snapshot-forgets-moves",
        "a snapshot lacks the pending dead letters",
        (PendingDeadLetters, "snapshot", _no_moves),
    ),
    Mutation(
        "snapshot-one-further",
        "a snapshot counts one delivered message too many",
        (QueuePartition, "snapshot", _snapshot_one_further),
    ),
    Mutation(
        "groups-without-order",
        "a FIFO queue delivers messages like a standard queue",
        (hosted_partition, "order_for", _order_of_any),
    ),
    Mutation(
        "group-free-when-leased",
        "a group continues as soon as its first message is delivered",
        (FifoOrder, "on_invisible", _leased_as_dead),
    ),
    Mutation(
        "behind-the-invisible",
        "messages of a group are delivered while an earlier one is in flight",
        (FifoOrder, "_beginning", _first_invisible_never),
    ),
    Mutation(
        "dead-under-another-id",
        "a repeated move of a dead letter is not deduplicated",
        (mover, "producer_id_of", _another_id),
    ),
    Mutation(
        "dead-before-commit",
        "a message is moved before its dead-letter entry is committed",
        (HostedPartition, "wait_committed", _do_not_wait),
    ),
    Mutation(
        "dead-letter-of-one-delivery",
        "a dead letter has a receive count of one",
        (QueueState, "dead_letters", _dead_letters_received_once),
    ),
    Mutation(
        "delay-passed-over",
        "a new leader treats an overtaken delayed message as visible",
        (QueueState, "_delayed", _forget_times),
    ),
    Mutation(
        "last-priority-never",
        "the least urgent messages are never delivered",
        (PriorityOrder, "candidates", _last_priority_only_first),
    ),
    Mutation(
        "one-delivery-more",
        "a message is delivered once too often",
        (QueueConfig, "max_deliveries", property(_one_more)),
    ),
    Mutation(
        "failed-is-settled",
        "a client reports a settlement without a reply",
        (QueueSettler, "_failed", _failed_is_done),
    ),
    Mutation(
        "refused-is-settled",
        "a client reports a settlement that was refused",
        (QueueSettler, "_answered", _refused_is_done),
    ),
    Mutation(
        "ids-lost-with-leader",
        "a new leader lacks earlier sends",
        (DeduplicationWindows, "_read", _read_nothing),
    ),
    Mutation(
        "sent-before-commit",
        "a send is answered before it is committed",
        (PendingSend, "answer", _answer_at_once),
    ),
)
"""Mutations of queues; earlier bugs are in `queue_regressions`."""
