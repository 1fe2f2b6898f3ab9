"""A resource that lives in a thread where trio runs."""

import signal
import threading
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing

from tidelog.blocking.thread import TrioThread


@asynccontextmanager
async def resource(log: list[str]) -> AsyncGenerator[str, None]:
    log.append("opened")
    yield "resource"
    log.append("closed")


def test_the_resource_is_open_until_the_thread_is_closed() -> None:
    log: list[str] = []
    thread = TrioThread(resource(log))

    assert (thread.resource, log) == ("resource", ["opened"])

    thread.close()
    thread.close()

    assert log == ["opened", "closed"]


def test_a_call_returns_what_the_work_returns() -> None:
    thread = TrioThread(resource([]))

    async def work() -> int:
        await trio.lowlevel.checkpoint()
        return 7

    assert thread.call(work) == 7
    assert thread.call_sync(lambda: 8) == 8
    thread.close()


def test_a_call_raises_what_the_work_raises() -> None:
    thread = TrioThread(resource([]))

    async def fail() -> None:
        await trio.lowlevel.checkpoint()
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        thread.call(fail)
    thread.close()


def test_an_error_of_the_opening_is_raised_to_the_caller() -> None:
    @asynccontextmanager
    async def broken(message: str) -> AsyncGenerator[None, None]:
        await trio.lowlevel.checkpoint()
        if message:
            raise OSError(message)
        yield

    with pytest.raises(OSError, match="no"):
        TrioThread(broken("no"))


def test_tasks_in_the_background_end_with_the_thread() -> None:
    log: list[str] = []
    thread = TrioThread(resource([]))

    async def wait() -> None:
        log.append("begun")
        try:
            await trio.sleep_forever()
        finally:
            log.append("ended")

    thread.start_soon(wait)
    thread.call(trio.lowlevel.checkpoint)
    thread.close()

    assert log == ["begun", "ended"]


def test_the_resource_is_open_until_an_interrupted_call_has_ended() -> None:
    log: list[str] = []
    thread = TrioThread(resource(log))
    main_thread_id = threading.get_ident()

    async def work() -> None:
        try:
            signal.pthread_kill(main_thread_id, signal.SIGINT)
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await vars(thread)["_stop"].wait()
                await trio.testing.wait_all_tasks_blocked()
                log.append("given back")

    with pytest.raises(KeyboardInterrupt):
        thread.call(work)
    thread.close()

    assert log == ["opened", "given back", "closed"]


def test_a_closed_thread_refuses_calls() -> None:
    thread = TrioThread(resource([]))
    thread.close()

    with pytest.raises(trio.ClosedResourceError):
        thread.call(trio.lowlevel.checkpoint)
    with pytest.raises(trio.ClosedResourceError):
        thread.call_sync(lambda: None)


def test_a_call_that_is_under_way_when_the_thread_is_closed_ends_before_and_says_why() -> None:
    log: list[str] = []
    thread = TrioThread(resource(log))
    began = threading.Event()
    raised: list[BaseException] = []

    async def work() -> None:
        began.set()
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.testing.wait_all_tasks_blocked()
                log.append("given back")

    def call() -> None:
        try:
            thread.call(work)
        except BaseException as error:  # noqa: BLE001
            raised.append(error)

    caller = threading.Thread(target=call)
    caller.start()
    began.wait()
    thread.close()
    caller.join()

    assert log == ["opened", "given back", "closed"]
    assert [repr(error) for error in raised] == ["ClosedError('the client is closed')"]
