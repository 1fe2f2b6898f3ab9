"""Who looked in vain need not look again, until something happens."""

from tidelog.broker.queues.partition.batch_cache import KnownEmpty
from tidelog.queue_layer.commands.receive import ReceiveCommand
from tidelog.queue_layer.config import QueueConfig
from tidelog.queue_layer.queue_partition import QueuePartition
from tidelog.queue_layer.receipts import Receipts
from tidelog.wire.messages.queue_journal import Frame

START_MS = 1_800_000_000_000


def queue_with_a_lease() -> QueuePartition:
    """Return a queue whose only message is leased for ten seconds."""
    receipts = Receipts(queue_id=bytes(16), partition=0, key=bytes(16))
    queue = QueuePartition(QueueConfig(), receipts)
    _carry_out(queue, queue.seek(0, now_ms=START_MS).frames)
    queue.serve(START_MS)
    queue.on_records(0, 1)
    plan = queue.plan(ReceiveCommand(max_messages=1, visibility_timeout_ms=10_000), now_ms=START_MS)
    taken = [(run.first_offset, run.count) for run in plan]
    _carry_out(queue, queue.receive(plan, taken, now_ms=START_MS).frames)
    return queue


def _carry_out(queue: QueuePartition, frames: list[Frame]) -> None:
    (frame,) = frames
    queue.apply(frame)


def test_nothing_is_known_before_somebody_looked() -> None:
    assert not KnownEmpty().holds(queue_with_a_lease(), 1, START_MS)


def test_it_holds_until_a_record_comes_or_a_lease_ends() -> None:
    queue, known = queue_with_a_lease(), KnownEmpty()

    known.found_none(queue, 1)

    assert known.holds(queue, 1, START_MS)
    assert known.holds(queue, 1, START_MS + 9_999)
    assert not known.holds(queue, 1, START_MS + 10_000)
    assert not known.holds(queue, 2, START_MS)


def test_it_does_not_hold_when_anything_was_decided_or_when_it_is_in_doubt() -> None:
    queue, known = queue_with_a_lease(), KnownEmpty()
    known.found_none(queue, 1)
    _carry_out(queue, queue.purge(1, now_ms=START_MS).frames)
    assert not known.holds(queue, 1, START_MS)

    known.found_none(queue, 1)
    assert known.holds(queue, 1, START_MS)
    known.forget()
    assert not known.holds(queue, 1, START_MS)
