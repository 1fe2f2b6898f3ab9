"""Background tasks of a client, and the calls that wait for them when it is closed."""

import math
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock

from tests.client.fake_cluster import fronted_client, fronted_cluster
from tidelog.client.client import Client
from tidelog.client.cluster.background_tasks import BackgroundTasks, ParkedTask
from tidelog.wire.protocol import api

Call = Callable[[], Awaitable[object]]


@asynccontextmanager
async def tasks_of() -> AsyncGenerator[BackgroundTasks, None]:
    async with trio.open_nursery() as nursery:
        tasks = BackgroundTasks(nursery)
        yield tasks
        tasks.close()


async def outcome(call: Call) -> object:
    try:
        return await call()
    except trio.ClosedResourceError as error:
        return str(error)


async def test_background_tasks_run_until_the_client_is_closed() -> None:
    begun: list[str] = []

    async def begin(name: str) -> None:
        begun.append(name)
        await trio.sleep_forever()

    async with tasks_of() as tasks:
        assert tasks.start_soon(begin, "in time")
        await trio.testing.wait_all_tasks_blocked()
        tasks.close()
        assert not tasks.start_soon(begin, "too late")

    assert begun == ["in time"]


async def test_closing_the_client_wakes_waiting_calls_with_closed_resource_error() -> None:
    served, unserved = trio.Event(), trio.Event()
    outcomes: list[object] = []

    async def wait_for(event: trio.Event) -> None:
        outcomes.append(await outcome(lambda: tasks.wait(event)))

    async with trio.open_nursery() as nursery, tasks_of() as tasks:
        for event in (served, unserved, unserved):
            nursery.start_soon(wait_for, event)
        with trio.move_on_after(0):  # One caller stops waiting; the others are woken nevertheless.
            await tasks.wait(unserved)
        await trio.testing.wait_all_tasks_blocked()
        served.set()
        tasks.close()

    assert sorted(map(str, outcomes)) == ["None", "the client is closed", "the client is closed"]
    with pytest.raises(trio.ClosedResourceError):
        await tasks.wait(unserved)


async def test_closing_the_client_cancels_calls() -> None:
    cancelled: list[str] = []

    async def wait() -> None:
        try:
            async with trio.open_nursery() as inner:
                inner.start_soon(tasks.wait, trio.Event())
                await trio.sleep_forever()
        finally:
            cancelled.append("inside")

    async def call() -> None:
        assert await outcome(lambda: tasks.until_closed(wait)) == "the client is closed"
        cancelled.append("outside")

    async def seven() -> int:
        return 7

    async with trio.open_nursery() as nursery, tasks_of() as tasks:
        assert await tasks.until_closed(seven) == 7
        nursery.start_soon(call)
        await trio.testing.wait_all_tasks_blocked()

    assert cancelled == ["inside", "outside"]
    assert await outcome(lambda: tasks.until_closed(seven)) == "the client is closed"


async def test_a_client_with_a_cancelled_nursery_is_closed_at_once() -> None:
    with trio.CancelScope() as scope:
        async with tasks_of() as tasks:
            scope.cancel()
            with trio.CancelScope(shield=True):
                await trio.testing.wait_all_tasks_blocked()
                assert await outcome(lambda: tasks.wait(trio.Event())) == "the client is closed"


async def test_a_background_task_ends_quietly_when_the_client_is_closed() -> None:
    async def find_it_closed() -> None:
        tasks.close()
        async with trio.open_nursery() as inner:
            inner.start_soon(tasks.wait, trio.Event())

    async with tasks_of() as tasks:
        tasks.start_soon(find_it_closed)
        await trio.testing.wait_all_tasks_blocked()

    async def close_something_else() -> None:
        raise trio.ClosedResourceError("a file")

    with pytest.RaisesGroup(
        pytest.RaisesExc(trio.ClosedResourceError, match="a file"), flatten_subgroups=True
    ):
        async with tasks_of() as tasks:
            tasks.start_soon(close_something_else)
            await trio.sleep_forever()


async def test_waits_that_end_early_leave_one_time_for_all_of_the_same_end(
    autojump_clock: MockClock,
) -> None:
    waiter = ParkedTask()
    async with tasks_of() as tasks, trio.open_nursery() as nursery:
        for _ in range(100):
            nursery.start_soon(tasks.park, waiter, trio.current_time() + 20)
            await trio.testing.wait_all_tasks_blocked()
            waiter.wake()
            await trio.testing.wait_all_tasks_blocked()
        assert len(vars(tasks)["_times"]) == len(vars(tasks)["_by_time"]) == 1

        began_at = autojump_clock.current_time()
        await tasks.park(waiter, began_at + 20)
        assert autojump_clock.current_time() == began_at + 20
        await trio.sleep(1)
        assert not vars(tasks)["_times"]
        assert not vars(tasks)["_by_time"]


# -- calls of a client -----------------------------------------------------------------------------


async def send(client: Client) -> Call:
    queue = client.queue("work")
    await queue.send(b"before")
    return lambda: queue.send(b"late")


async def send_large(client: Client) -> Call:
    queue = client.queue("work")
    await queue.send(b"before")
    return lambda: queue.send(bytes(3 << 20))


async def send_to_an_unknown_queue(client: Client) -> Call:
    return lambda: client.queue("work").send(b"late")


async def receive(client: Client) -> Call:
    queue = client.queue("work")
    await queue.counts()
    return lambda: queue.receive(wait=20)


async def delete(client: Client) -> Call:
    queue = client.queue("work")
    await queue.send(b"before")
    (message,) = await queue.receive(wait=20)
    return message.delete


async def administer(client: Client) -> Call:
    return client.admin.list_topics


async def produce(client: Client) -> Call:
    async def send_one() -> None:
        async with client.producer() as producer:
            await producer.send("orders", b"late")

    return send_one


async def produce_with_an_open_producer(client: Client) -> Call:
    producer = client.producer(buffer_memory=32 << 20)
    await producer.__aenter__()
    await producer.send("orders", b"before")

    async def send_much() -> None:
        for _ in range(40):
            await producer.send_many("orders", [bytes(1 << 20)])

    return send_much


async def flush(client: Client) -> Call:
    producer = client.producer()
    await producer.__aenter__()
    await producer.send("orders", b"before")
    producer.send_nowait("orders", b"late")
    return producer.flush


async def consume(client: Client) -> Call:
    async def read() -> None:
        async with client.consumer("orders", auto_offset_reset="latest") as consumer:
            async for _ in consumer:
                pass

    return read


async def consume_in_a_group(client: Client) -> Call:
    async def read() -> None:
        async with client.consumer("orders", group_id="readers") as consumer:
            async for _ in consumer:
                pass

    return read


async def work(client: Client) -> Call:
    queue = client.queue("work")
    await queue.send(b"before")

    async def handle(_: object) -> None:
        await trio.sleep(1)

    return lambda: queue.work(handle)


async def count(client: Client) -> Call:
    async def describe() -> object:
        return await client.admin.describe_queues(with_counts=True)

    return describe


async def extend_poll_interval(client: Client) -> Call:
    consumer = client.consumer("orders", group_id="busy")
    await consumer.__aenter__()
    return lambda: consumer.extend_poll_interval(30)


CALLS = [
    send,
    send_large,
    send_to_an_unknown_queue,
    receive,
    delete,
    administer,
    produce,
    produce_with_an_open_producer,
    flush,
    consume,
    consume_in_a_group,
    work,
    count,
    extend_poll_interval,
]


@pytest.mark.parametrize("prepare", CALLS)
@pytest.mark.parametrize("how", ["at once", "frozen", "cancelled"])
async def test_calls_in_flight_and_later_calls_fail_when_the_client_is_closed(
    autojump_clock: MockClock, prepare: Callable[[Client], Awaitable[Call]], how: str
) -> None:
    outcomes: list[object] = []

    async def note(call: Call) -> None:
        outcomes.append(await outcome(call))

    async with (
        fronted_cluster(autojump_clock, (1,), {"orders": 1}) as cluster,
        trio.open_nursery() as nursery,
    ):
        calls: list[Call] = []
        with trio.CancelScope() as scope:
            async with fronted_client(cluster, (1,)) as client:
                await client.admin.create_queue("work", topic="orders")
                call = await prepare(client)
                calls.append(call)
                cluster.fronts[1].is_frozen = how != "at once"
                for _ in range(3):
                    nursery.start_soon(note, call)
                if how == "at once":
                    for _ in range(3):
                        await trio.lowlevel.checkpoint()
                else:
                    await trio.sleep(0.5)
                if how == "cancelled":
                    scope.cancel()
                    with trio.CancelScope(shield=True):  # A slow cleanup of the caller.
                        await trio.sleep(0.5)
        nursery.start_soon(note, calls[0])

    assert outcomes == ["the client is closed"] * 4


async def test_a_cancelled_program_ends_as_cancelled_with_messages_to_return(
    autojump_clock: MockClock,
) -> None:
    async with fronted_cluster(autojump_clock, (1,), {"orders": 1}) as cluster:
        async with fronted_client(cluster, (1,)) as client:
            await client.admin.create_queue("work", topic="orders")
            await client.queue("work").send(bytes(9 << 20))

        async def never(node_id: int, request: object) -> object:
            del node_id, request
            await trio.sleep_forever()

        async def own_client(task_status: trio.TaskStatus[Client]) -> None:
            async with fronted_client(cluster, (1,)) as client:
                task_status.started(client)
                await trio.sleep_forever()

        cluster.answers[api.FETCH] = never  # type: ignore[index]
        async with trio.open_nursery() as nursery:
            client = await nursery.start(own_client)
            nursery.start_soon(client.queue("work").receive, 10)
            await trio.sleep(0.5)
            nursery.cancel_scope.cancel()

    assert nursery.cancel_scope.cancelled_caught


async def test_a_producer_of_a_closed_client_rejects_records_and_keeps_other_errors(
    autojump_clock: MockClock,
) -> None:
    async with fronted_cluster(autojump_clock, (1,), {"orders": 1}) as cluster:
        async with fronted_client(cluster, (1,)) as client:
            producer = client.producer(linger=60)
            await producer.__aenter__()
            await producer.send("orders", b"before", partition=0)
            producer.send_nowait("orders", b"in an open batch", partition=0)

        with pytest.raises(trio.ClosedResourceError):
            producer.send_nowait("orders", b"late", partition=0)
        error = ValueError("mine")
        await producer.__aexit__(ValueError, error, None)

    assert error.__notes__ == ["besides, records could not be delivered: the client is closed"]


async def test_a_parked_task_continues_when_it_is_woken_or_at_its_time(
    autojump_clock: MockClock,
) -> None:
    times: dict[str, float] = {}

    async with trio.open_nursery() as nursery, tasks_of() as tasks:

        async def park(name: str, waiter: ParkedTask, until: float) -> None:
            await tasks.park(waiter, until)
            times[name] = autojump_clock.current_time()

        woken, early, late = ParkedTask(), ParkedTask(), ParkedTask()
        woken.wake()  # Without a task: nothing happens.
        start = trio.current_time()
        nursery.start_soon(park, "late", late, start + 50)
        await trio.sleep(1)
        nursery.start_soon(park, "early", early, start + 20)
        nursery.start_soon(park, "woken", woken, start + 30)
        await trio.sleep(9)
        woken.wake()
        woken.wake()
        await trio.sleep(90)
        nursery.start_soon(park, "again", woken, start + 130)
        await trio.sleep(100)

    assert {name: at - start for name, at in times.items()} == {
        "woken": 10,
        "early": 20,
        "late": 50,
        "again": 130,
    }


async def test_a_cancelled_parked_task_is_not_woken(autojump_clock: MockClock) -> None:
    async with tasks_of() as tasks:
        waiter = ParkedTask()
        with trio.move_on_after(1) as scope:
            await tasks.park(waiter, math.inf)
        waiter.wake()
        assert scope.cancelled_caught
        assert autojump_clock.current_time() >= 1


async def test_closing_the_client_wakes_parked_tasks_with_closed_resource_error() -> None:
    outcomes: list[object] = []
    waiters = [ParkedTask(), ParkedTask()]

    async with trio.open_nursery() as nursery, tasks_of() as tasks:

        async def park(waiter: ParkedTask) -> None:
            outcomes.append(await outcome(lambda: tasks.park(waiter)))

        for waiter in waiters:
            nursery.start_soon(park, waiter)
        await trio.testing.wait_all_tasks_blocked()
        waiters[0].wake()
        tasks.close()
        nursery.start_soon(park, waiters[1])

    assert sorted(outcomes, key=str) == [None, "the client is closed", "the client is closed"]
