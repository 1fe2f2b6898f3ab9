"""Tests of the memory budget."""

from typing import final

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from tidelog.broker.requests.memory_budget import MemoryBudget

TOTAL, LARGEST = 150, 50
POOL = TOTAL - LARGEST


@final
class Borrower:
    """A holder of bytes."""

    def __init__(
        self, budget: MemoryBudget, name: str, order: list[str], *, share_key: str
    ) -> None:
        self.budget = budget
        self.share_key = share_key
        self._name = name
        self._order = order

    @property
    def held_bytes(self) -> int:
        return self.budget.lent_bytes(self)

    async def take(self, total: int, missing: int = 1) -> None:
        await self.budget.acquire(self, total, missing_bytes=missing)
        self._order.append(self._name)

    def shrink(self) -> None:
        self._order.append(f"{self._name} shrank")

    def give_way(self) -> None:
        """Wait for no quota."""

    def give_back(self) -> None:
        self.budget.release(self)


@final
class Bank:
    """A budget, and its holders by name."""

    def __init__(self) -> None:
        self.budget = MemoryBudget(TOTAL, largest_bytes=LARGEST)
        self.order: list[str] = []
        """Names in the order of the grants."""

    def borrower(self, name: str, share_key: str = "user:alice") -> Borrower:
        return Borrower(self.budget, name, self.order, share_key=share_key)

    async def fill(self) -> list[Borrower]:
        """Lend the whole pool to two holders, and the reserve to a third."""
        holders = [self.borrower(f"holder {number}") for number in range(3)]
        for holder in holders:
            await holder.take(LARGEST)
        self.order.clear()
        return holders


async def test_available_bytes_are_lent_at_once() -> None:
    bank = Bank()

    await bank.borrower("first").take(40)
    await bank.borrower("second").take(50)

    assert bank.budget.used_bytes == 90
    assert not bank.budget.is_short


async def test_a_holder_grows_by_what_it_lacks() -> None:
    bank = Bank()
    holder = bank.borrower("holder")

    await holder.take(10)
    await holder.take(40)

    assert holder.held_bytes == bank.budget.used_bytes == 40


async def test_bytes_are_granted_in_the_order_of_requests() -> None:
    bank = Bank()
    holders = await bank.fill()

    async with trio.open_nursery() as nursery:
        for name, total in (("large", 50), ("middle", 30), ("small", 10)):
            nursery.start_soon(bank.borrower(name).take, total)
            await wait_all_tasks_blocked()
        assert bank.order == []
        holders[0].give_back()
        await wait_all_tasks_blocked()
        assert bank.order == ["large"]
        holders[1].give_back()

    assert sorted(bank.order[1:]) == ["middle", "small"]


async def test_holders_that_all_want_more_finish_one_by_one() -> None:
    """Without the reserve each would wait for the bytes of the others, for ever."""
    bank = Bank()

    async def receive_frame(name: str) -> None:
        holder = bank.borrower(name)
        await holder.take(POOL // 4, 25)
        await wait_all_tasks_blocked()
        await holder.take(LARGEST)
        holder.give_back()

    async with trio.open_nursery() as nursery:
        for number in range(8):
            nursery.start_soon(receive_frame, str(number))

    assert len(bank.order) == 16
    assert bank.budget.used_bytes == 0


async def test_the_reserve_goes_to_the_frame_that_misses_the_fewest_bytes() -> None:
    bank = Bank()
    holders = await bank.fill()

    async with trio.open_nursery() as nursery:
        for name, missing in (("far", 1000), ("near", 10), ("middle", 100)):
            nursery.start_soon(bank.borrower(name).take, 50, missing)
            await wait_all_tasks_blocked()
        holders[2].give_back()  # The reserve; the pool is still lent.
        await wait_all_tasks_blocked()
        assert bank.order == ["near"]
        for holder in holders:
            holder.give_back()

    assert sorted(bank.order) == ["far", "middle", "near"]


async def test_a_principal_with_more_than_half_comes_after_all_others() -> None:
    bank = Bank()
    holders = await bank.fill()  # All of user:alice.

    async with trio.open_nursery() as nursery:
        for name, user in (
            ("greedy", "user:alice"),
            ("patient", "user:bob"),
            ("late", "user:carol"),
        ):
            nursery.start_soon(bank.borrower(name, user).take, 50)
            await wait_all_tasks_blocked()
        for holder in holders:
            holder.give_back()
            await wait_all_tasks_blocked()

    # The first release leaves user:alice a half of the pool and the reserve.
    assert bank.order == ["patient", "greedy", "late"]


async def test_a_principal_with_a_half_keeps_its_place_in_the_order() -> None:
    bank = Bank()
    first, second = bank.borrower("first"), bank.borrower("second", "user:bob")
    for holder in (first, second, bank.borrower("reserve", "user:carol")):
        await holder.take(LARGEST)
    bank.order.clear()

    async with trio.open_nursery() as nursery:
        for name, user in (("next", "user:alice"), ("last", "user:dora")):
            nursery.start_soon(bank.borrower(name, user).take, 50)
            await wait_all_tasks_blocked()
        second.give_back()
        await wait_all_tasks_blocked()
        assert bank.order == ["next"]
        first.give_back()


async def test_a_flood_of_one_principal_delays_another_by_one_release() -> None:
    bank = Bank()
    holders = await bank.fill()
    flood = [bank.borrower(f"flood {number}") for number in range(30)]

    async with trio.open_nursery() as nursery:
        for each in flood:
            nursery.start_soon(each.take, 50)
        await wait_all_tasks_blocked()
        nursery.start_soon(bank.borrower("quiet", "user:bob").take, 50)
        await wait_all_tasks_blocked()
        holders[0].give_back()
        await wait_all_tasks_blocked()
        assert bank.order == ["quiet"]
        nursery.cancel_scope.cancel()


async def test_a_principal_alone_may_have_all_bytes() -> None:
    bank = Bank()
    await bank.fill()

    assert bank.budget.used_bytes == bank.budget.limit_bytes


async def test_a_cancelled_wait_has_acquired_nothing() -> None:
    bank = Bank()
    holders = await bank.fill()

    async with trio.open_nursery() as nursery:
        with trio.CancelScope() as scope:
            scope.cancel()
            await bank.borrower("cancelled").take(50)
        nursery.start_soon(bank.borrower("behind").take, 50)
        await wait_all_tasks_blocked()
        holders[0].give_back()

    assert bank.order == ["behind"]
    assert bank.budget.used_bytes == 3 * LARGEST


async def test_bytes_granted_at_the_moment_of_a_cancellation_are_returned_by_the_holder() -> None:
    bank = Bank()
    holders = await bank.fill()
    waiter = bank.borrower("waiter")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(waiter.take, 50)
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
        for holder in holders:
            holder.give_back()
    waiter.give_back()

    assert bank.budget.used_bytes == 0
    assert not bank.budget.is_short


async def test_idle_holders_return_their_bytes_to_waiting_tasks() -> None:
    bank = Bank()
    first, second = bank.borrower("first"), bank.borrower("second")
    await first.take(50)
    await second.take(50)
    bank.budget.note_idle(second)
    bank.budget.note_idle(first)

    await bank.borrower("third").take(30)

    # The holder that was idle for longest, and no other.
    assert bank.order == ["first", "second", "second shrank", "third"]
    assert bank.budget.used_bytes == 80


async def test_a_busy_holder_keeps_its_bytes() -> None:
    bank = Bank()
    holders = await bank.fill()
    bank.budget.note_idle(holders[0])
    bank.budget.note_busy(holders[0])

    with trio.move_on_after(0):
        await bank.borrower("late").take(50)

    assert bank.order == []
    assert bank.budget.used_bytes == 3 * LARGEST


async def test_a_holder_that_becomes_idle_while_others_wait_returns_its_bytes_at_once() -> None:
    bank = Bank()
    holders = await bank.fill()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(bank.borrower("waiter").take, 50)
        await wait_all_tasks_blocked()
        bank.budget.note_idle(holders[0])

    assert bank.order == ["holder 0 shrank", "waiter"]
    assert holders[0].held_bytes == 0


async def test_more_than_the_largest_frame_is_never_requested() -> None:
    with pytest.raises(AssertionError, match="51 bytes can never be granted"):
        await Bank().borrower("holder").take(LARGEST + 1)
