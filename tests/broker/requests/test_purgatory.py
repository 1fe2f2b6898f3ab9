"""Tests of purgatory: delayed requests, their deadlines, and waits for commits."""

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
    """Records its calls."""

    def __init__(self, name: str, log: list[str]) -> None:
        self._name = name
        self._log = log

    def expire(self) -> None:
        self._log.append(f"{self._name} expired")

    def close(self) -> None:
        self._log.append(f"{self._name} closed")


async def test_delayed_requests_expire_in_the_order_of_deadlines(
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


async def test_a_completed_request_does_not_expire(mock_clock: MockClock) -> None:
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


async def test_a_deadline_in_the_past_expires_at_once(
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


async def test_a_request_may_keep_waiting_during_a_shutdown() -> None:
    purgatory, log = Purgatory(), list[str]()
    for name in ("a", "b"):
        purgatory.add(Waiter(name, log), 1e9)

    purgatory.close_all()

    assert log == ["a closed", "b closed"]
    assert len(purgatory) == 2  # Neither request called `done`.


async def test_the_expiry_of_one_request_may_end_the_wait_of_another(mock_clock: MockClock) -> None:
    purgatory, log = Purgatory(), list[str]()

    @final
    class Ender:
        def expire(self) -> None:
            log.append("ender expired")
            purgatory.done(other)

        def close(self) -> None:
            raise AssertionError("there is no shutdown")

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


async def test_a_commit_wait_ends_with_the_commit() -> None:
    commit = CommitWait()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(commit.wait)

        commit.acknowledged(0, AckLevel.DURABLE)


async def test_a_commit_wait_ends_with_an_unknown_outcome() -> None:
    commit = CommitWait()

    commit.failed(0, NotLeaderError("another broker leads now"))

    with pytest.raises(NotLeaderError):
        await commit.wait()
