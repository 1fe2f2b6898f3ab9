"""A resource of trio that lives on an event loop of asyncio: calls, ends, and their races."""

import asyncio
import gc
import signal
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
import trio

from tests.tidelog.aio.programs import Run, turns, until
from tidelog.aio.guest import TrioGuest
from tidelog.client.errors import ClosedError


@asynccontextmanager
async def resource(log: list[str]) -> AsyncGenerator[str, None]:
    await trio.lowlevel.checkpoint()
    log.append("opened")
    try:
        yield "resource"
    finally:
        log.append("closed")


def current_task() -> "asyncio.Task[object]":
    task: asyncio.Task[object] | None = asyncio.current_task()
    assert task is not None
    return task


def test_the_resource_is_open_until_it_is_closed(run: Run) -> None:
    async def main() -> None:
        log: list[str] = []
        guest = TrioGuest(resource(log))
        with pytest.raises(ClosedError, match="not connected"):
            _ = guest.resource

        assert (await guest.open(), guest.resource, log) == ("resource", "resource", ["opened"])

        await guest.close()
        await guest.close()
        assert log == ["opened", "closed"]
        assert asyncio.all_tasks() == {asyncio.current_task()}
        with pytest.raises(RuntimeError, match="opened once"):
            await guest.open()

    run(main())


def test_closing_what_was_never_open_does_nothing() -> None:
    asyncio.run(TrioGuest(resource([])).close())


def test_calls_return_and_raise_what_their_work_does(run: Run) -> None:
    async def work(number: int) -> int:
        await trio.lowlevel.checkpoint()
        return 10 // number

    async def fail_in_a_nursery() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(work, 0)

    async def main() -> None:
        guest = TrioGuest(resource([]))
        await guest.open()

        assert await guest.call(lambda: work(5)) == 2
        with pytest.raises(ZeroDivisionError):
            await guest.call(lambda: work(0))
        with pytest.raises(ZeroDivisionError):  # Groups of one error are unknown to asyncio.
            await guest.call(fail_in_a_nursery)
        await guest.close()

    run(main())


def test_an_error_of_the_opening_is_raised_and_nothing_stays(run: Run) -> None:
    @asynccontextmanager
    async def broken() -> AsyncGenerator[None, None]:
        await trio.lowlevel.checkpoint()
        if trio.lowlevel.in_trio_run():
            raise OSError("no")
        yield

    async def main() -> None:
        with pytest.raises(OSError, match="no"):
            await TrioGuest(broken()).open()

        assert not trio.lowlevel.in_trio_run()

    run(main())


async def raced(log: list[str], *, is_done_first: bool) -> bool:
    """Cancel a call in the moment of its result; return whether the call knows of that."""
    guest = TrioGuest(resource(log))
    await guest.open()
    caller: asyncio.Task[None]

    async def work() -> str:
        await trio.lowlevel.checkpoint()
        if is_done_first:
            asyncio.get_running_loop().call_soon(caller.cancel)  # Before the caller wakes up.
        else:
            caller.cancel()
        return "result"

    async def call() -> None:
        await guest.call(work, undo=lambda result: log.append(f"undone {result}"))

    caller = asyncio.create_task(call())
    await asyncio.wait([caller])
    await guest.close()
    return caller.cancelled()


@pytest.mark.parametrize("is_done_first", [False, True])
def test_a_result_that_no_caller_gets_is_undone(run: Run, *, is_done_first: bool) -> None:
    log: list[str] = []

    assert run(raced(log, is_done_first=is_done_first))
    assert log == ["opened", "undone result", "closed"]


def test_a_cancelled_call_has_ended_when_the_caller_goes_on(run: Run) -> None:
    log: list[str] = []

    async def work() -> None:
        log.append("begun")
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(0.01)
            log.append("ended")

    async def main() -> None:
        guest = TrioGuest(resource([]))
        await guest.open()
        caller = asyncio.create_task(guest.call(work))
        await until(lambda: log)
        caller.cancel()
        await turns(3)
        caller.cancel()  # Twice: it still waits.
        await asyncio.wait([caller])
        assert (log, caller.cancelled()) == (["begun", "ended"], True)

        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await guest.call(work)
        assert log[2:] == ["begun", "ended"]

        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01), asyncio.timeout(0.01):
                await guest.call(work)
        await guest.close()

    run(main())


def test_a_call_that_ignores_its_cancellation_is_waited_for(run: Run) -> None:
    async def work() -> str:
        with trio.CancelScope(shield=True):
            await trio.sleep(0.02)
        return "done all the same"

    async def main() -> None:
        log: list[str] = []
        guest = TrioGuest(resource([]))
        await guest.open()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(guest.call(work, undo=log.append), 0.005)
        assert log == ["done all the same"]
        await guest.close()

    run(main())


def test_a_block_entered_in_the_moment_of_a_cancellation_is_left(run: Run) -> None:
    log: list[str] = []
    caller: asyncio.Task[None]

    @asynccontextmanager
    async def block() -> AsyncGenerator[None, None]:
        await trio.lowlevel.checkpoint()
        caller.cancel()
        log.append("entered")
        try:
            yield
        finally:
            log.append("left")

    async def main() -> None:
        nonlocal caller
        guest = TrioGuest(resource(log))
        await guest.open()
        caller = asyncio.create_task(guest.enter(block()))
        await asyncio.wait([caller])

        assert caller.cancelled()
        assert log == ["opened", "entered", "left"]
        await guest.close()

    run(main())


def test_a_block_of_a_cancelled_task_is_left_as_one_of_trio_that_is_cancelled() -> None:
    log: list[str] = []

    @asynccontextmanager
    async def block() -> AsyncGenerator[None, None]:
        try:
            yield
        finally:
            try:
                await trio.sleep_forever()  # Such as leaving a group.
            finally:
                log.append("left")

    async def main() -> None:
        guest = TrioGuest(resource([]))
        await guest.open()
        inner = block()
        await guest.enter(inner)
        await guest.leave(inner, asyncio.CancelledError())

        assert log == ["left"]
        await guest.close()

    asyncio.run(main())


def test_closing_ends_the_calls_of_other_tasks_first(run: Run) -> None:
    log: list[str] = []

    async def work() -> None:
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(0.01)
            log.append("given back")

    async def main() -> None:
        guest = TrioGuest(resource(log))
        await guest.open()
        callers = [asyncio.create_task(guest.call(work)) for _ in range(3)]
        await turns(20)
        closers = [asyncio.create_task(guest.close()) for _ in range(3)]
        await turns(1)
        for closer in closers[:2]:
            closer.cancel()
        results = await asyncio.gather(*callers, *closers, return_exceptions=True)

        assert log == ["opened", *["given back"] * 3, "closed"]
        assert [repr(each) for each in results[:3]] == ["ClosedError('the client is closed')"] * 3
        assert [type(each) for each in results[3:]] == [asyncio.CancelledError] * 2 + [type(None)]
        with pytest.raises(ClosedError):
            await guest.call(trio.lowlevel.checkpoint)

    run(main())


def test_closing_while_it_opens_ends_the_opening(run: Run) -> None:
    @asynccontextmanager
    async def slow() -> AsyncGenerator[None, None]:
        await trio.sleep(3600)
        yield

    async def main() -> None:
        guest = TrioGuest(slow())
        opening = asyncio.create_task(guest.open())
        await turns(20)
        await guest.close()
        with pytest.raises(ClosedError):
            await opening

        cancelled = TrioGuest(slow())
        opening = asyncio.create_task(cancelled.open())
        await turns(20)
        opening.cancel()
        await asyncio.wait([opening])
        assert opening.cancelled()
        assert not trio.lowlevel.in_trio_run()

    run(main())


def test_a_close_in_the_wrong_thread_is_refused_and_changes_nothing() -> None:
    async def main() -> None:
        log: list[str] = []
        guest = TrioGuest(resource(log))
        await guest.open()

        def close_elsewhere() -> None:
            with pytest.raises(RuntimeError, match="another event loop"):
                asyncio.run(guest.close())

        thread = threading.Thread(target=close_elsewhere)
        thread.start()
        thread.join()
        await guest.call(trio.lowlevel.checkpoint)
        await guest.close()
        assert log == ["opened", "closed"]

    asyncio.run(main())


async def interrupted() -> None:
    await trio.lowlevel.checkpoint()
    raise KeyboardInterrupt


async def interrupted_in_the_scheduler() -> None:
    def abort(_: object) -> trio.lowlevel.Abort:
        raise KeyboardInterrupt

    with trio.move_on_after(0.01):
        await trio.lowlevel.wait_task_rescheduled(abort)


@pytest.mark.parametrize("work", [interrupted, interrupted_in_the_scheduler])
def test_ctrl_c_in_trio_ends_the_program(run: Run, work: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        guest = TrioGuest(resource(log))
        await guest.open()
        calls = [guest.call(trio.sleep_forever), guest.call(work)]
        try:
            await asyncio.gather(*calls)
        finally:
            await guest.close()

    log: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        run(main())
    gc.collect()
    assert not trio.lowlevel.in_trio_run()


def test_ctrl_c_during_a_step_of_trio_breaks_no_task_off() -> None:
    def abort(_: object) -> trio.lowlevel.Abort:
        signal.raise_signal(signal.SIGINT)
        return trio.lowlevel.Abort.SUCCEEDED

    async def interrupted_step() -> None:
        with trio.move_on_after(0.01):
            await trio.lowlevel.wait_task_rescheduled(abort)
        log.append("went on")

    async def main() -> None:
        await guest.open()
        await guest.call(interrupted_step)
        await asyncio.Event().wait()

    log: list[str] = []
    guest = TrioGuest(resource(log))
    loop = asyncio.new_event_loop()
    try:
        with pytest.raises(KeyboardInterrupt):
            loop.run_until_complete(main())
        loop.run_until_complete(guest.close())
    finally:
        loop.close()
    assert log == ["opened", "went on", "closed"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_work_of_the_host_runs_as_a_task_of_asyncio(run: Run) -> None:
    async def double(number: int) -> int:
        await asyncio.sleep(0)
        return 2 * number

    async def main() -> None:
        guest = TrioGuest(resource([]))
        await guest.open()

        assert await guest.call(lambda: guest.call_host(lambda: double(4))) == 8
        await guest.close()

    run(main())


def test_work_of_the_host_that_the_application_cancels_is_an_error(run: Run) -> None:
    async def cancel_itself() -> None:
        current_task().cancel()
        await asyncio.sleep(1)

    async def main() -> None:
        guest = TrioGuest(resource([]))
        await guest.open()
        with pytest.raises(RuntimeError, match="the application has cancelled"):
            await guest.call(lambda: guest.call_host(cancel_itself))
        await guest.close()

    run(main())


def test_work_of_the_host_cannot_close_the_resource(run: Run) -> None:
    async def main() -> None:
        guest = TrioGuest(resource([]))
        await guest.open()
        with pytest.raises(RuntimeError, match="cannot close its client"):
            await guest.call(lambda: guest.call_host(guest.close))
        await guest.close()

    run(main())


def test_the_end_of_a_program_is_no_cancellation_by_the_application(run: Run) -> None:
    """Both the caller and the work of the host are cancelled: the caller decides."""
    seen: list[str] = []

    async def main() -> None:
        guest = TrioGuest(resource([]))
        await guest.open()

        async def work() -> None:
            try:
                await guest.call_host(lambda: asyncio.sleep(10))
            except RuntimeError:
                seen.append("taken for a failure of the work")
                raise

        caller = asyncio.create_task(guest.call(work))
        await turns(20)
        for task in asyncio.all_tasks() - {current_task()}:
            task.cancel()
        await asyncio.wait([caller])
        await guest.close()

        assert (seen, caller.cancelled()) == ([], True)

    run(main())
