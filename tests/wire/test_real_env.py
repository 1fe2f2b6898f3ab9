"""The real world behind the seams."""

import logging
import random
import threading

import pytest

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
    assert isinstance(env.random, random.Random)
    assert env.random.getstate() != real_env().random.getstate(), "each process has its own"
    assert (env.offload, env.probe, env.buggify) == (run_in_thread, log_event, never)
