"""Tasks of a client, and what becomes of those who rely on them when it is closed."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock

from client.client import Client
from client.tasks import ClientTasks
from tests.client.fronts import fronted_client, fronted_cluster

Call = Callable[[], Awaitable[object]]


@asynccontextmanager
async def tasks_of() -> AsyncGenerator[ClientTasks, None]:
    async with trio.open_nursery() as nursery:
        tasks = ClientTasks(nursery)
        yield tasks
        tasks.close()


async def outcome(call: Call) -> object:
    try:
        return await call()
    except trio.ClosedResourceError as error:
        return str(error)


async def test_tasks_begin_until_the_client_is_closed_and_end_then() -> None:
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


async def test_who_waits_when_the_client_is_closed_is_told_and_who_was_served_is_not() -> None:
    served, unserved = trio.Event(), trio.Event()
    outcomes: list[object] = []

    async def wait_for(event: trio.Event) -> None:
        outcomes.append(await outcome(lambda: tasks.wait(event)))

    async with trio.open_nursery() as nursery, tasks_of() as tasks:
        for event in (served, unserved, unserved):
            nursery.start_soon(wait_for, event)
        with trio.move_on_after(0):  # One of several gives up; the others are told all the same.
            await tasks.wait(unserved)
        await trio.testing.wait_all_tasks_blocked()
        served.set()
        tasks.close()

    assert sorted(map(str, outcomes)) == ["None", "the client is closed", "the client is closed"]
    with pytest.raises(trio.ClosedResourceError):
        await tasks.wait(unserved)


async def test_a_task_that_finds_the_client_closed_ends_quietly_and_another_error_does_not() -> (
    None
):
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


# -- what callers of a client see -----------------------------------------------------------------


async def send(client: Client) -> Call:
    queue = client.queue("work")
    await queue.send(b"before")
    return lambda: queue.send(b"late")


async def send_large(client: Client) -> Call:
    queue = client.queue("work")
    await queue.send(b"before")
    return lambda: queue.send(bytes(3 << 20))


async def send_to_a_queue_not_known(client: Client) -> Call:
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


async def produce_by_a_producer_that_is_open(client: Client) -> Call:
    producer = client.producer(buffer_bytes_max=32 << 20)
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


CALLS = [
    send,
    send_large,
    send_to_a_queue_not_known,
    receive,
    delete,
    administer,
    produce,
    produce_by_a_producer_that_is_open,
    flush,
    consume,
    consume_in_a_group,
    work,
]


@pytest.mark.parametrize("prepare", CALLS)
@pytest.mark.parametrize("is_frozen", [False, True])
async def test_what_is_under_way_when_the_client_is_closed_fails_and_so_does_what_comes_later(
    autojump_clock: MockClock, prepare: Callable[[Client], Awaitable[Call]], is_frozen: bool
) -> None:
    outcomes: list[object] = []

    async def note(call: Call) -> None:
        outcomes.append(await outcome(call))

    async with (
        fronted_cluster(autojump_clock, (1,), {"orders": 1}) as cluster,
        trio.open_nursery() as nursery,
    ):
        async with fronted_client(cluster, (1,)) as client:
            await client.admin.create_queue("work", topic="orders")
            call = await prepare(client)
            cluster.fronts[1].is_frozen = is_frozen
            for _ in range(3):
                nursery.start_soon(note, call)
            if is_frozen:
                await trio.sleep(0.5)
            else:
                for _ in range(3):
                    await trio.lowlevel.checkpoint()
        nursery.start_soon(note, call)

    assert outcomes == ["the client is closed"] * 4
