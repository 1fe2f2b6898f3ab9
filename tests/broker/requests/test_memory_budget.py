"""Tests of the memory budget."""

from typing import final

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from tidelog.broker.requests.memory_budget import MemoryBudget


@final
class Borrower:
    """A task that acquires bytes and keeps them."""

    def __init__(self, budget: MemoryBudget, name: str, order: list[str]) -> None:
        self._budget = budget
        self._name = name
        self._order = order
        self.held_bytes = 0

    async def take(self, count: int) -> None:
        await self._budget.acquire(count)
        self.held_bytes += count
        self._order.append(self._name)

    def give_back(self) -> int:
        count, self.held_bytes = self.held_bytes, 0
        self._order.append(f"{self._name} gave back")
        return count


async def test_available_bytes_are_lent_at_once() -> None:
    budget = MemoryBudget(100)

    await budget.acquire(60)
    await budget.acquire(40)

    assert budget.used_bytes == 100
    assert not budget.is_short


async def test_bytes_are_granted_in_the_order_of_requests() -> None:
    order: list[str] = []
    budget = MemoryBudget(100)
    await budget.acquire(90)

    async with trio.open_nursery() as nursery:
        for name, count in (("large", 80), ("middle", 30), ("small", 10)):
            nursery.start_soon(Borrower(budget, name, order).take, count)
            await wait_all_tasks_blocked()
        assert order == []  # Not even the small request, for which there is room.
        budget.release(90)
        await wait_all_tasks_blocked()
        assert order == ["large"]
        budget.release(80)

    assert sorted(order[1:]) == ["middle", "small"]
    assert budget.used_bytes == 40


async def test_a_cancelled_wait_has_acquired_nothing() -> None:
    order: list[str] = []
    budget = MemoryBudget(100)
    await budget.acquire(90)

    async with trio.open_nursery() as nursery:
        with trio.CancelScope() as scope:
            nursery.start_soon(Borrower(budget, "behind", order).take, 10)
            scope.cancel()
            await budget.acquire(50)
        await wait_all_tasks_blocked()

    assert order == ["behind"]
    assert budget.used_bytes == 100
    assert not budget.is_short


async def test_bytes_granted_at_the_moment_of_a_cancellation_are_not_lost() -> None:
    budget = MemoryBudget(100)
    await budget.acquire(100)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(budget.acquire, 50)
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
        budget.release(100)
        assert budget.used_bytes == 50

    assert budget.used_bytes == 0


async def test_idle_holders_return_their_bytes_to_waiting_tasks() -> None:
    order: list[str] = []
    budget = MemoryBudget(100)
    first, second = Borrower(budget, "first", order), Borrower(budget, "second", order)
    await first.take(50)
    await second.take(50)
    budget.note_idle(second)
    budget.note_idle(first)

    await Borrower(budget, "third", order).take(30)

    # The holder that was idle for longest, and no other.
    assert order == ["first", "second", "second gave back", "third"]
    assert budget.used_bytes == 80


async def test_a_busy_holder_keeps_its_bytes() -> None:
    order: list[str] = []
    budget = MemoryBudget(100)
    holder = Borrower(budget, "holder", order)
    await holder.take(60)
    budget.note_idle(holder)
    budget.note_busy(holder)

    with trio.move_on_after(0):
        await budget.acquire(50)

    assert order == ["holder"]
    assert holder.held_bytes == budget.used_bytes == 60


async def test_a_holder_that_becomes_idle_while_others_wait_returns_its_bytes_at_once() -> None:
    order: list[str] = []
    budget = MemoryBudget(100)
    holder = Borrower(budget, "holder", order)
    await holder.take(60)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(Borrower(budget, "waiter", order).take, 50)
        await wait_all_tasks_blocked()
        budget.note_idle(holder)

    assert order == ["holder", "holder gave back", "waiter"]
    assert budget.used_bytes == 50


async def test_more_than_the_budget_is_never_requested() -> None:
    with pytest.raises(AssertionError, match="101 bytes can never be granted"):
        await MemoryBudget(100).acquire(101)
