"""Ends of programs by signals."""

import os
import signal
import threading
from collections.abc import Iterator

import pytest
import trio

import tidelog


@pytest.fixture(autouse=True)
def restored_handlers() -> Iterator[None]:
    numbers = (signal.SIGINT, signal.SIGTERM)
    handlers = [signal.getsignal(number) for number in numbers]
    yield
    for number, handler in zip(numbers, handlers, strict=True):
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_first_signal_stops_the_block_and_gives_the_status(number: signal.Signals) -> None:
    before = [signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)]
    calls: list[str] = []

    with tidelog.stop_on_signal(lambda: calls.append("stop")) as stopped:
        assert (stopped.signal, stopped.status) == (None, 0)
        signal.raise_signal(number)
        after = [signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)]

    assert calls == ["stop"]
    assert (stopped.signal, stopped.status) == (number, 128 + number)
    assert after == before, "the second signal acts as without the block"


def test_without_a_signal_the_handlers_are_as_before() -> None:
    before = signal.getsignal(signal.SIGTERM)

    with tidelog.stop_on_signal(lambda: None):
        assert signal.getsignal(signal.SIGTERM) is not before

    assert signal.getsignal(signal.SIGTERM) is before


async def test_in_trio_the_event_loop_stops_the_block() -> None:
    scope = trio.CancelScope()

    with tidelog.stop_on_signal(scope.cancel) as stopped, scope:
        os.kill(os.getpid(), signal.SIGTERM)
        await trio.sleep_forever()

    assert stopped.status == 143


@pytest.mark.parametrize("closed_first", [0, 1])
def test_one_signal_stops_all_blocks_that_go_on(closed_first: int) -> None:
    before = signal.getsignal(signal.SIGTERM)
    calls: list[int] = []
    blocks = [
        tidelog.stop_on_signal(lambda number=number: calls.append(number))  # type: ignore[misc]
        for number in range(3)
    ]
    found = [block.__enter__() for block in blocks]
    closed = blocks.pop(closed_first)
    closed.__exit__(None, None, None)

    signal.raise_signal(signal.SIGTERM)

    assert sorted(calls) == sorted({0, 1, 2} - {closed_first})
    assert [each.status for each in found].count(143) == 2
    assert signal.getsignal(signal.SIGTERM) is before
    for block in blocks:
        block.__exit__(None, None, None)
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_signal_that_the_parent_ignores_stays_ignored() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    with tidelog.stop_on_signal(lambda: None) as stopped:
        signal.raise_signal(signal.SIGINT)

    assert stopped.signal is None


def test_a_signal_that_cannot_be_handled_leaves_the_handlers_as_before() -> None:
    before = signal.getsignal(signal.SIGTERM)

    with (
        pytest.raises(OSError, match="Invalid argument"),
        tidelog.stop_on_signal(lambda: None, (signal.SIGTERM, signal.SIGKILL)),
    ):
        pass

    assert signal.getsignal(signal.SIGTERM) is before


def test_other_threads_get_no_signals() -> None:
    errors: list[Exception] = []

    def run() -> None:
        try:
            with tidelog.stop_on_signal(lambda: None):
                pass
        except RuntimeError as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()

    assert "Python delivers signals to the main thread" in str(errors[0])
