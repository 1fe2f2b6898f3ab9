"""The production environment: clock, threads, log events."""

import itertools
import logging
import random
import threading

import pytest
import trio

from tidelog.wire.env.real.real_env import (
    AdaptiveThreadPool,
    RealClock,
    log_event,
    never,
    real_env,
    run_in_thread,
)
from tidelog.wire.env.real.tcp import TcpNetwork


class Stopwatch:
    """Time that passes only during work."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s

    def work(self, seconds: float) -> int:
        """Work for a time, and return the thread."""
        self.now_s += seconds
        return threading.get_ident()


async def _thread_of(pool: AdaptiveThreadPool, watch: Stopwatch, seconds: float) -> int:
    return await pool(lambda: watch.work(seconds), is_brief=True)


async def test_only_brief_work_runs_in_the_event_loop() -> None:
    pool, watch = AdaptiveThreadPool(), Stopwatch()

    assert await pool(threading.get_ident) != threading.get_ident()
    assert await _thread_of(pool, watch, 0.0) == threading.get_ident()
    with pytest.raises(ZeroDivisionError):
        await pool(lambda: 1 // 0, is_brief=True)


async def test_a_single_slow_call_does_not_move_brief_work_to_threads() -> None:
    watch = Stopwatch()
    pool = AdaptiveThreadPool(watch)

    for seconds in (0.0001, 0.003, *[0.0001] * 20, 0.003, 0.0001):
        assert await _thread_of(pool, watch, seconds) == threading.get_ident()


@pytest.mark.parametrize(
    "durations_s",
    [[0.0006], [0.001], [0.002], [0.0039], [0.01], [0.0001] * 9 + [0.1], [0.0001] * 49 + [0.1]],
)
async def test_a_slow_disk_seldom_blocks_the_event_loop(
    durations_s: list[float],
) -> None:
    watch = Stopwatch()
    pool = AdaptiveThreadPool(watch)
    held_up_s = 0.0

    for duration_s in itertools.cycle(durations_s):
        began_s = watch.now_s
        if await _thread_of(pool, watch, duration_s) == threading.get_ident():
            held_up_s += watch.now_s - began_s
        watch.now_s += 0.05
        if watch.now_s > 1000:
            break

    assert 0 < held_up_s < 10


async def test_a_slow_disk_doubles_the_time_in_threads() -> None:
    watch = Stopwatch()
    pool = AdaptiveThreadPool(watch)
    pauses_s: list[float] = []

    for _ in range(12):
        assert await _thread_of(pool, watch, 0.01) == threading.get_ident()
        began_s = watch.now_s
        while await _thread_of(pool, watch, 0.0) != threading.get_ident():
            watch.now_s += 0.01
        pauses_s.append(watch.now_s - began_s)

    assert pauses_s[:4] == pytest.approx([0.1, 0.2, 0.4, 0.8], abs=0.02)
    assert pauses_s[-2:] == pytest.approx([60, 60], abs=0.02)


async def test_a_disk_that_was_fast_for_long_is_trusted_again() -> None:
    watch = Stopwatch()
    pool = AdaptiveThreadPool(watch)
    for _ in range(3):
        await _thread_of(pool, watch, 0.01)
        watch.now_s += 1
    for _ in range(100):
        assert await _thread_of(pool, watch, 0.0001) == threading.get_ident()
        watch.now_s += 1

    await _thread_of(pool, watch, 0.01)
    assert await _thread_of(pool, watch, 0.0001) != threading.get_ident()
    watch.now_s += 0.1
    assert await _thread_of(pool, watch, 0.0001) == threading.get_ident()


async def test_cancelled_brief_work_does_not_begin() -> None:
    begun: list[bool] = []

    with trio.CancelScope() as scope:
        scope.cancel()
        await AdaptiveThreadPool()(lambda: begun.append(True), is_brief=True)

    assert scope.cancelled_caught
    assert begun == []


def test_the_clock_tells_unix_time_in_milliseconds() -> None:
    year_2020_ms = 1_577_836_800_000

    first_ms = RealClock().now_ms()

    assert isinstance(first_ms, int)
    assert year_2020_ms < first_ms < 10 * year_2020_ms
    assert RealClock().now_ms() - first_ms < 60_000


async def test_work_runs_in_another_thread() -> None:
    result = await run_in_thread(threading.get_ident)

    assert result != threading.get_ident()


async def test_an_error_of_work_in_a_thread_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        await run_in_thread(lambda: 1 // 0)


async def test_cancelled_work_does_not_begin() -> None:
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
    assert record.getMessage() == "leader elected 100% partition=3"
    assert vars(record)["event"] == "leader elected 100%"
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
        ("an unknown severity", logging.ERROR),
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


def test_the_production_environment_is_complete() -> None:
    env = real_env()

    assert isinstance(env.clock, RealClock)
    assert isinstance(env.network, TcpNetwork)
    assert isinstance(env.random, random.SystemRandom), "its next value cannot be guessed"
    assert isinstance(env.run_in_thread, AdaptiveThreadPool)
    assert (env.probe, env.buggify) == (log_event, never)
