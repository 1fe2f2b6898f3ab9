"""Backoff, coalesced runs and hedged requests."""

from collections.abc import Awaitable, Callable
from random import Random

import pytest
import trio
from trio.testing import MockClock

from tidelog.client.cluster.backoff import Backoff
from tidelog.client.cluster.coalescer import Coalescer
from tidelog.client.cluster.hedging import first_success
from tidelog.wire.errors import ConnectError


def delays(failure_count: int) -> list[float]:
    backoff = Backoff(0.1, 1.0, Random(1))
    return [backoff.delay(failure_count) for _ in range(200)]


@pytest.mark.parametrize(("failure_count", "mean"), [(1, 0.1), (2, 0.2), (4, 0.8)])
def test_the_mean_wait_doubles_with_each_failure(failure_count: int, mean: float) -> None:
    found = delays(failure_count)

    assert all(0.5 * mean <= delay <= 1.5 * mean for delay in found)
    assert abs(sum(found) / len(found) - mean) < 0.1 * mean


@pytest.mark.parametrize("failure_count", [5, 100, 10**9])
def test_backoff_is_bounded(failure_count: int) -> None:
    assert all(0.5 <= delay <= 1.5 for delay in delays(failure_count))


def test_backoff_jitter_separates_clients_that_fail_together() -> None:
    first = Backoff(0.1, 1.0, Random(1)).delay(1)
    second = Backoff(0.1, 1.0, Random(2)).delay(1)

    assert first != second


def test_without_a_failure_there_is_nothing_to_wait_for() -> None:
    with pytest.raises(AssertionError, match="nothing failed"):
        Backoff(0.1, 1.0, Random(1)).delay(0)


async def test_requests_of_one_loop_turn_are_coalesced() -> None:
    done: list[int] = []
    wanted_count = 0

    async def want() -> None:
        nonlocal wanted_count
        wanted_count += 1
        await once.request()

    once = Coalescer(lambda: done.append(wanted_count))
    for _ in range(2):
        async with trio.open_nursery() as nursery:
            for _ in range(10):
                nursery.start_soon(want)

    assert done == [10, 20]


async def test_a_cancelled_coalesced_request_runs_at_once() -> None:
    done: list[bool] = []
    once = Coalescer(lambda: done.append(True))

    with trio.CancelScope() as scope:
        scope.cancel()
        await once.request()

    assert scope.cancelled_caught
    assert done == [True]
    await once.request()
    assert done == [True, True]


@pytest.mark.parametrize("is_again", [False, True])
async def test_a_request_during_a_coalesced_run_starts_another_run(is_again: bool) -> None:
    done: list[bool] = []

    async with trio.open_nursery() as nursery:

        def do() -> None:
            done.append(True)
            if is_again and len(done) == 1:
                nursery.start_soon(once.request)

        once = Coalescer(do)
        await once.request()

    assert len(done) == 1 + is_again


def way(result: str, after: float) -> Callable[[], Awaitable[str]]:
    async def go() -> str:
        await trio.sleep(after)
        if result.startswith("no"):
            raise ConnectError(result)
        return result

    return go


async def test_a_quick_first_attempt_wins(autojump_clock: MockClock) -> None:
    begun: list[str] = []
    started = autojump_clock.current_time()

    async def second() -> str:
        begun.append("second")
        return "second"

    assert await first_success([way("first", 0.1), second], head_start=0.2) == "first"
    assert begun == []
    assert autojump_clock.current_time() - started == pytest.approx(0.1)


async def test_a_hanging_attempt_costs_its_head_start(autojump_clock: MockClock) -> None:
    started = autojump_clock.current_time()

    assert await first_success([way("first", 100), way("second", 0.1)], head_start=0.2) == "second"
    assert autojump_clock.current_time() - started == pytest.approx(0.3)


async def test_a_failed_attempt_is_not_waited_for(autojump_clock: MockClock) -> None:
    started = autojump_clock.current_time()

    assert await first_success([way("no", 0), way("second", 0)], head_start=5) == "second"
    assert autojump_clock.current_time() == started


async def test_when_all_attempts_fail_all_errors_are_raised(autojump_clock: MockClock) -> None:
    started = autojump_clock.current_time()

    with pytest.raises(ExceptionGroup) as caught:
        await first_success([way("no 1", 0.3), way("no 2", 0)], head_start=0.1)

    assert [str(error) for error in caught.value.exceptions] == ["no 2", "no 1"]
    assert autojump_clock.current_time() - started == pytest.approx(0.3)
