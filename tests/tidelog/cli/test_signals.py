"""Ending by a signal."""

import os
import signal
from collections.abc import Iterator

import pytest
import trio

from tidelog.cli.signals import on_signal


@pytest.fixture(autouse=True)
def restored_handlers() -> Iterator[None]:
    numbers = (signal.SIGINT, signal.SIGTERM)
    handlers = [signal.getsignal(number) for number in numbers]
    yield
    for number, handler in zip(numbers, handlers, strict=True):
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_the_first_signal_ends_in_order_and_gives_the_status(number: signal.Signals) -> None:
    scope = trio.CancelScope()

    async with on_signal(scope.cancel) as interruption:
        with scope:
            os.kill(os.getpid(), number)
            await trio.sleep_forever()

    assert interruption.signal is number
    assert interruption.status == 128 + number


async def test_the_second_signal_is_left_to_the_system() -> None:
    scope = trio.CancelScope()

    async with on_signal(scope.cancel):
        with scope:
            os.kill(os.getpid(), signal.SIGINT)
            await trio.sleep_forever()
        handlers = [signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)]

    assert handlers == [signal.SIG_DFL, signal.SIG_DFL]


async def test_without_a_signal_everything_is_as_before() -> None:
    before = signal.getsignal(signal.SIGTERM)

    async with on_signal(lambda: None) as interruption:
        await trio.lowlevel.checkpoint()

    assert (interruption.signal, interruption.status) == (None, 0)
    assert signal.getsignal(signal.SIGTERM) is before


async def test_a_signal_that_our_parent_had_ignored_stays_ignored() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    scope = trio.CancelScope()

    async with on_signal(scope.cancel) as interruption:
        os.kill(os.getpid(), signal.SIGINT)
        with scope:
            os.kill(os.getpid(), signal.SIGTERM)
            await trio.sleep_forever()

    assert interruption.signal is signal.SIGTERM
