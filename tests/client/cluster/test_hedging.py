"""Several ways to one result."""

from collections.abc import Awaitable, Callable

import pytest
import trio
from trio.testing import MockClock

from tidelog.client.cluster.hedging import first_success
from tidelog.wire.errors import ConnectError


def way(result: str, after: float) -> Callable[[], Awaitable[str]]:
    async def go() -> str:
        await trio.sleep(after)
        if result.startswith("no"):
            raise ConnectError(result)
        return result

    return go


async def test_the_first_way_wins_if_it_is_quick(autojump_clock: MockClock) -> None:
    begun: list[str] = []
    started = autojump_clock.current_time()

    async def second() -> str:
        begun.append("second")
        return "second"

    assert await first_success([way("first", 0.1), second], head_start=0.2) == "first"
    assert begun == []
    assert autojump_clock.current_time() - started == pytest.approx(0.1)


async def test_a_way_that_leads_nowhere_costs_its_head_start(autojump_clock: MockClock) -> None:
    started = autojump_clock.current_time()

    assert await first_success([way("first", 100), way("second", 0.1)], head_start=0.2) == "second"
    assert autojump_clock.current_time() - started == pytest.approx(0.3)


async def test_a_way_that_fails_is_not_waited_for(autojump_clock: MockClock) -> None:
    started = autojump_clock.current_time()

    assert await first_success([way("no", 0), way("second", 0)], head_start=5) == "second"
    assert autojump_clock.current_time() == started


async def test_when_all_fail_every_failure_is_told(autojump_clock: MockClock) -> None:
    started = autojump_clock.current_time()

    with pytest.raises(ExceptionGroup) as caught:
        await first_success([way("no 1", 0.3), way("no 2", 0)], head_start=0.1)

    assert [str(error) for error in caught.value.exceptions] == ["no 2", "no 1"]
    assert autojump_clock.current_time() - started == pytest.approx(0.3)
