"""Tests of delayed requests, their deadlines, and of waiting for commits."""

from typing import final

import pytest
import trio
from trio.testing import MockClock

from tests.broker.world import settle
from tidelog.broker.requests.commit_wait import CommitWait
from tidelog.broker.requests.purgatory import Purgatory
from tidelog.wire.errors import NotLeaderError
from tidelog.wire.messages.produce import AckLevel


@final
class Waiter:
    """Writes down what happens to it."""

    def __init__(self, name: str, log: list[str]) -> None:
        self._name = name
        self._log = log

    def expire(self) -> None:
        self._log.append(f"{self._name} expired")

    def close(self) -> None:
        self._log.append(f"{self._name} closed")


async def test_what_waits_too_long_expires_in_the_order_of_deadlines(
    mock_clock: MockClock,
) -> None:
    purgatory, log = Purgatory(), list[str]()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(purgatory.run)
        purgatory.add(Waiter("late", log), trio.current_time() + 2)
        await settle()
        purgatory.add(Waiter("early", log), trio.current_time() + 1)
        await settle()
        assert len(purgatory) == 2

        mock_clock.jump(1.1)
        await settle()
        assert log == ["early expired"]
        mock_clock.jump(1.1)
        await settle()

        assert log == ["early expired", "late expired"]
        assert len(purgatory) == 0
        nursery.cancel_scope.cancel()


async def test_what_is_done_does_not_expire(mock_clock: MockClock) -> None:
    purgatory, log = Purgatory(), list[str]()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(purgatory.run)
        waiter = Waiter("a", log)
        purgatory.add(waiter, trio.current_time() + 1)
        purgatory.done(waiter)
        purgatory.done(waiter)

        mock_clock.jump(5)
        await settle()

        assert log == []
        assert len(purgatory) == 0
        nursery.cancel_scope.cancel()


async def test_a_deadline_that_has_passed_already_ends_the_wait_at_once(
    mock_clock: MockClock,
) -> None:
    purgatory, log = Purgatory(), list[str]()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(purgatory.run)
        await settle()

        purgatory.add(Waiter("a", log), trio.current_time())
        await settle()
        mock_clock.jump(0.02)
        await settle()

        assert log == ["a expired"]
        nursery.cancel_scope.cancel()


async def test_closing_is_up_to_each_request() -> None:
    purgatory, log = Purgatory(), list[str]()
    for name in ("a", "b"):
        purgatory.add(Waiter(name, log), 1e9)

    purgatory.close_all()

    assert log == ["a closed", "b closed"]
    assert len(purgatory) == 2  # Neither said that it is done.


async def test_one_that_expires_may_end_the_wait_of_another(mock_clock: MockClock) -> None:
    purgatory, log = Purgatory(), list[str]()

    @final
    class Ender:
        def expire(self) -> None:
            log.append("ender expired")
            purgatory.done(other)

        def close(self) -> None:
            raise AssertionError("nobody shuts down")

    other = Waiter("other", log)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(purgatory.run)
        purgatory.add(Ender(), trio.current_time() + 1)
        purgatory.add(other, trio.current_time() + 1)
        purgatory.add(Waiter("third", log), trio.current_time() + 1)
        await settle()

        mock_clock.jump(5)
        await settle()

        assert log == ["ender expired", "third expired"]
        nursery.cancel_scope.cancel()


async def test_who_waits_is_told_when_it_is_committed() -> None:
    commit = CommitWait()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(commit.wait)

        commit.acknowledged(0, AckLevel.DURABLE)


async def test_who_waits_is_told_that_nobody_knows() -> None:
    commit = CommitWait()

    commit.failed(0, NotLeaderError("another broker leads now"))

    with pytest.raises(NotLeaderError):
        await commit.wait()
