"""Knowledge of actions about queues, and when they ask again."""

from collections.abc import Iterable
from pathlib import Path

import pytest
import trio
import trio.testing

from tests.gateway.sqs.callers import open_caller
from tidelog.client.admin.admin import Admin
from tidelog.client.admin.queue_counts import DescribedQueue
from tidelog.gateway.sqs.known_queues import KnownQueues
from tidelog.gateway.sqs.protocol.errors import (
    QUEUE_DOES_NOT_EXIST,
    SqsError,
)
from tidelog.wire.errors import RequestTimedOutError


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Names of each question to a broker."""
    questions: list[list[str]] = []
    describe = Admin.describe_queues

    async def describe_queues(
        self: Admin, names: Iterable[str] | None = None, *, with_counts: bool = False
    ) -> list[DescribedQueue]:
        assert names is not None
        questions.append([*names])
        return await describe(self, questions[-1], with_counts=with_counts)

    monkeypatch.setattr(Admin, "describe_queues", describe_queues)
    return questions


class LaterClock:
    """A clock of the cache that a test can advance."""

    def __init__(self) -> None:
        self.shift_s = 0.0

    def __call__(self) -> float:
        return trio.current_time() + self.shift_s


async def test_one_question_answers_all_calls(tmp_path: Path, asked: list[list[str]]) -> None:
    async with open_caller(tmp_path) as caller, trio.open_nursery() as nursery:
        await caller.client.admin.create_queue("orders", visibility_timeout=40)
        known = KnownQueues(caller.client)
        assert known.known("orders") is None
        for _ in range(10):
            nursery.start_soon(known.facts, "orders")
        facts = await known.facts("orders")
        assert facts.config.visibility_timeout_ms == 40_000
        assert known.known("orders") is facts
        assert await known.facts("orders") is facts
        assert asked == [["orders"]]


async def test_a_question_covers_other_queues_in_use(
    tmp_path: Path, asked: list[list[str]]
) -> None:
    async with open_caller(tmp_path) as caller:
        clock = LaterClock()
        known = KnownQueues(caller.client, clock)
        for name in ("a", "b", "unused"):
            await caller.client.admin.create_queue(name)
            await known.facts(name)
        assert known.known("a") is not None
        assert known.known("b") is not None
        asked.clear()

        clock.shift_s += 5.1
        await caller.client.admin.alter_queue("b", set={"visibility_timeout": 7})
        assert known.known("a") is None
        await known.facts("a")
        assert asked == [["a", "b"]]
        changed = known.known("b")
        assert changed is not None
        assert changed.config.visibility_timeout_ms == 7000
        await known.facts("unused")
        assert asked == [["a", "b"], ["unused"]]


async def test_one_question_answers_the_calls_of_all_queues_in_use(
    tmp_path: Path, asked: list[list[str]]
) -> None:
    async with open_caller(tmp_path) as caller:
        clock = LaterClock()
        known = KnownQueues(caller.client, clock)
        names = [f"q{number}" for number in range(5)]
        for name in names:
            await caller.client.admin.create_queue(name)
            await known.facts(name)
            assert known.known(name) is not None
        asked.clear()
        clock.shift_s += 5.1
        async with trio.open_nursery() as nursery:
            for name in names:
                nursery.start_soon(known.facts, name)
        assert [sorted(each) for each in asked] == [names]

        await caller.client.admin.delete_queue("q0")
        await caller.client.admin.alter_queue("q1", set={"visibility_timeout": 7})
        for name in names:
            assert known.known(name) is not None
        clock.shift_s += 5.1
        with pytest.raises(SqsError) as caught:
            await known.facts("q0")
        assert caught.value.shape is QUEUE_DOES_NOT_EXIST
        assert (await known.facts("q1")).config.visibility_timeout_ms == 7000


async def test_a_deleted_queue_does_not_spoil_the_answer_about_others(
    tmp_path: Path, asked: list[list[str]]
) -> None:
    async with open_caller(tmp_path) as caller:
        clock = LaterClock()
        known = KnownQueues(caller.client, clock)
        for name in ("a", "gone"):
            await caller.client.admin.create_queue(name)
            await known.facts(name)
            assert known.known(name) is not None
        await caller.client.admin.delete_queue("gone")
        asked.clear()
        clock.shift_s += 5.1
        assert (await known.facts("a")).name == "a"
        assert asked == [["a", "gone"], ["a"]]
        with pytest.raises(SqsError) as caught:
            await known.facts("gone")
        assert caught.value.shape is QUEUE_DOES_NOT_EXIST


async def test_all_calls_hear_of_a_missing_queue_by_one_question(
    tmp_path: Path, asked: list[list[str]]
) -> None:
    async with open_caller(tmp_path) as caller:
        known = KnownQueues(caller.client)
        errors: list[SqsError] = []

        async def ask() -> None:
            with pytest.raises(SqsError) as caught:
                await known.facts("missing")
            errors.append(caught.value)

        async with trio.open_nursery() as nursery:
            for _ in range(10):
                nursery.start_soon(ask)
        assert [error.shape for error in errors] == [QUEUE_DOES_NOT_EXIST] * 10
        assert asked == [["missing"]]


async def test_calls_hear_of_a_question_without_an_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_caller(tmp_path) as caller:
        clock = LaterClock()
        known = KnownQueues(caller.client, clock)
        await caller.client.admin.create_queue("orders")
        await known.facts("orders")
        facts = known.known("orders")
        clock.shift_s += 5.1

        async def describe_queues(*_: object, with_counts: bool) -> list[DescribedQueue]:
            del with_counts
            await trio.testing.wait_all_tasks_blocked(0.01)
            raise RequestTimedOutError("no answer")

        async def ask(name: str, error: type[Exception], done: list[str]) -> None:
            with pytest.raises(error, match="no answer"):
                await known.facts(name)
            done.append(name)

        monkeypatch.setattr(Admin, "describe_queues", describe_queues)
        done: list[str] = []
        async with trio.open_nursery() as nursery:
            for name in ("orders", "new"):
                nursery.start_soon(ask, name, RequestTimedOutError, done)
                await trio.testing.wait_all_tasks_blocked()
            # It goes on with the old description of one queue, and waits for that of the other.
            assert await known.facts("orders") is facts
            nursery.start_soon(ask, "new", SqsError, done)
        assert sorted(done) == ["new", "new", "orders"]


async def test_an_answer_from_before_a_change_is_not_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_caller(tmp_path) as caller, trio.open_nursery() as nursery:
        known = KnownQueues(caller.client)
        await caller.client.admin.create_queue("orders")
        describe = Admin.describe_queues
        is_described, may_go_on = trio.Event(), trio.Event()

        async def describe_queues(
            self: Admin, names: Iterable[str], *, with_counts: bool
        ) -> list[DescribedQueue]:
            found = await describe(self, names, with_counts=with_counts)
            is_described.set()
            await may_go_on.wait()
            return found

        with monkeypatch.context() as patch:
            patch.setattr(Admin, "describe_queues", describe_queues)
            nursery.start_soon(known.facts, "orders")
            await is_described.wait()
            await caller.client.admin.delete_queue("orders")
            known.forget("orders")
            may_go_on.set()
            await trio.testing.wait_all_tasks_blocked()

        assert known.known("orders") is None
        with pytest.raises(SqsError) as caught:
            await known.facts("orders")
        assert caught.value.shape is QUEUE_DOES_NOT_EXIST
