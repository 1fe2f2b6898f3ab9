"""The real world behind the seams."""

import logging
import random
import threading

import pytest
import trio

from wire.real_env import RealClock, log_event, never, real_env, run_in_thread
from wire.tcp import TcpNetwork


def test_the_clock_tells_unix_time_in_milliseconds() -> None:
    year_2020_ms = 1_577_836_800_000

    first_ms = RealClock().now_ms()

    assert isinstance(first_ms, int)
    assert year_2020_ms < first_ms < 10 * year_2020_ms
    assert RealClock().now_ms() - first_ms < 60_000


async def test_offloaded_work_runs_in_another_thread() -> None:
    result = await run_in_thread(threading.get_ident)

    assert result != threading.get_ident()


async def test_an_error_of_offloaded_work_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        await run_in_thread(lambda: 1 // 0)


async def test_work_that_is_not_wanted_any_more_does_not_begin() -> None:
    begun: list[bool] = []

    with trio.CancelScope() as scope:
        scope.cancel()
        await run_in_thread(lambda: begun.append(True))

    assert scope.cancelled_caught
    assert begun == []


async def test_work_that_has_begun_runs_to_its_end_before_it_is_cancelled() -> None:
    begun, may_end = threading.Event(), threading.Event()
    result = 0

    def work() -> int:
        begun.set()
        assert may_end.wait(10)
        return 7

    async def run() -> None:
        nonlocal result
        result = await run_in_thread(work)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run)
        await run_in_thread(begun.wait)
        nursery.cancel_scope.cancel()
        may_end.set()

    assert result == 7


async def test_no_more_threads_work_than_trio_allows() -> None:
    limiter = trio.to_thread.current_default_thread_limiter()
    tokens_before, limiter.total_tokens = limiter.total_tokens, 2
    two_at_once = threading.Barrier(2)
    working: set[int] = set()
    counts: list[int] = []

    def work() -> None:
        working.add(threading.get_ident())
        counts.append(len(working))
        two_at_once.wait(10)
        working.discard(threading.get_ident())

    async with trio.open_nursery() as nursery:
        for _ in range(20):
            nursery.start_soon(run_in_thread, work)
    limiter.total_tokens = tokens_before

    assert len(counts) == 20
    assert max(counts) <= 2
    assert limiter.borrowed_tokens == 0


def test_an_event_is_logged_with_its_fields(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="tidelog.event"):
        log_event("leader elected 100%", partition=3)

    (record,) = caplog.records
    assert record.getMessage() == "leader elected 100%"
    assert vars(record)["fields"] == {"partition": 3}


def test_an_event_below_the_level_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="tidelog.event"):
        log_event("leader elected", partition=3)

    assert caplog.records == []


@pytest.mark.parametrize(
    ("severity", "level"),
    [
        ("debug", logging.DEBUG),
        ("info", logging.INFO),
        ("warning", logging.WARNING),
        ("error", logging.ERROR),
        ("a severity that nobody knows", logging.ERROR),
    ],
)
def test_the_severity_of_an_event_chooses_its_level(
    severity: str, level: int, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG, logger="tidelog.event"):
        log_event("leader lost", severity=severity, partition=3)

    (record,) = caplog.records
    assert record.levelno == level
    assert vars(record)["fields"] == {"partition": 3}


def test_production_takes_no_rare_branch_on_purpose() -> None:
    assert never("any site") is False


def test_the_real_world_is_complete() -> None:
    env = real_env()

    assert isinstance(env.clock, RealClock)
    assert isinstance(env.network, TcpNetwork)
    assert isinstance(env.random, random.SystemRandom), "nobody can guess what it draws next"
    assert (env.offload, env.probe, env.buggify) == (run_in_thread, log_event, never)
