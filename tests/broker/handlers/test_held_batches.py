"""Tests of batches that wait until their log is open."""

from collections.abc import Callable

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from tidelog.broker.handlers import held_batches
from tidelog.broker.handlers.held_batches import HeldBatches
from tidelog.broker.partitions.partition import Partition
from tidelog.broker.requests.purgatory import Purgatory

KEY = (b"t" * 16, 0)


class Logs:
    """Partitions of which some are being opened."""

    def __init__(self) -> None:
        self.listeners: list[Callable[[Partition], None]] = []
        self.opening: set[tuple[bytes, int]] = {KEY}

    def is_opening(self, topic_id: bytes, number: int) -> bool:
        return (topic_id, number) in self.opening


def ignore(batch: memoryview) -> None:
    del batch


async def test_a_batch_is_lost_when_its_log_stays_closed(mock_clock: MockClock) -> None:
    purgatory = Purgatory()
    held = HeldBatches(Logs(), purgatory)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(purgatory.run)
        assert held.hold(KEY, memoryview(b"lost"), ignore)
        await wait_all_tasks_blocked()
        mock_clock.jump(held_batches.HELD_S)
        await wait_all_tasks_blocked()

        assert (len(purgatory), held.size_bytes) == (0, 0)
        nursery.cancel_scope.cancel()


async def test_a_batch_for_an_open_log_is_not_held() -> None:
    logs = Logs()
    logs.opening.clear()

    assert not HeldBatches(logs, Purgatory()).hold(KEY, memoryview(b"refused"), ignore)


async def test_held_batches_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_batches, "_BATCH_BYTES", 2)
    monkeypatch.setattr(held_batches, "HELD_BYTES_MAX", 26)
    held = HeldBatches(Logs(), Purgatory())

    assert held.hold(KEY, memoryview(b"12345678"), ignore)
    assert not held.hold(KEY, memoryview(b"12345"), ignore), "half of the room is for others"
    assert held.hold(KEY, memoryview(b"1"), ignore)
    assert held.size_bytes == 13


async def test_held_batches_count_with_the_objects_that_keep_them() -> None:
    """Each has its request and its place in the purgatory, which are larger than a small batch."""
    held, batch, count = HeldBatches(Logs(), Purgatory()), memoryview(b"v" * 100), 0
    while held.hold(KEY, batch, ignore):
        count += 1

    assert count * (len(batch) + 1_400) <= held_batches.HELD_BYTES_MAX


async def test_a_log_that_cannot_be_opened_leaves_room_for_others() -> None:
    logs, other = Logs(), (b"u" * 16, 0)
    logs.opening.add(other)
    held, batch = HeldBatches(logs, Purgatory()), memoryview(bytes(100_000))
    while held.hold(KEY, batch, ignore):
        pass

    assert held.hold(other, batch, ignore)
