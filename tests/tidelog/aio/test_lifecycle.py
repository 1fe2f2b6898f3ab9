"""Clients of asyncio from their start to their end: loops, threads, leaks."""

import asyncio
import gc
import threading
import tracemalloc
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio

from tests.tidelog.aio.programs import Run, new_queue, new_topic, turns, until
from tidelog import aio
from tidelog.aio.guest import TrioGuest

Call = Callable[[], Awaitable[object]]


def test_a_client_that_is_not_connected_refuses_calls_and_may_be_closed(address: str) -> None:
    async def main() -> None:
        client = aio.connect(address)
        with pytest.raises(aio.ClosedError, match="not connected"):
            client.producer()
        with pytest.raises(aio.ClosedError, match="not connected"):
            _ = client.admin
        await client.close()
        async with client:
            await client.admin.list_topics()
        with pytest.raises(RuntimeError, match="opened once"):
            await client

    asyncio.run(main())


def test_every_call_of_a_closed_client_is_refused(run: Run, address: str) -> None:
    async def main() -> None:
        client = await aio.connect(address)
        topic, queue = await new_topic(client), await new_queue(client, 1)
        producer = await client.producer()
        consumer = await client.consumer(topic, auto_offset_reset="earliest")
        await producer.send(topic, b"v")
        (message,) = await queue.receive(1)
        subscription = queue.subscribe()
        await client.close()
        await client.close()

        calls: list[Call] = [
            client.admin.list_topics,
            lambda: producer.send(topic, b"v"),
            lambda: producer.send_many(topic, [b"v"]),
            producer.flush,
            lambda: anext(aiter(consumer)),
            lambda: anext(consumer.batches()),
            consumer.end_offsets,
            queue.receive,
            lambda: queue.send(b"v"),
            message.delete,
            lambda: queue.work(lambda _: asyncio.sleep(0)),
            subscription.__aenter__,
            lambda: client.producer().__aenter__(),
            lambda: client.consumer(topic).__aenter__(),
        ]
        for call in calls:
            with pytest.raises(aio.ClosedError):
                await call()
        with pytest.raises(aio.ClosedError):
            producer.send_nowait(topic, b"v")

    run(main())


def test_calls_that_wait_end_when_the_client_is_closed(run: Run, address: str) -> None:
    async def main() -> None:
        client = await aio.connect(address)
        topic, queue = await new_topic(client), await new_queue(client)
        producer = await client.producer(linger=60)
        consumer = await client.consumer(topic, auto_offset_reset="latest")
        producer.send_nowait(topic, b"v")
        await producer.flush()  # It knows the topic now.
        waiting: list[asyncio.Future[Any]] = [
            *(asyncio.create_task(producer.send(topic, b"v")) for _ in range(50)),
            *(asyncio.create_task(queue.receive(wait=20)) for _ in range(50)),
            asyncio.ensure_future(anext(aiter(consumer))),
        ]
        await turns(1)
        await client.close()
        results = await asyncio.gather(*waiting, return_exceptions=True)

        assert {type(each) for each in results} == {aio.ClosedError}
        assert asyncio.all_tasks() == {asyncio.current_task()}

    run(main())


def test_a_block_left_by_an_error_raises_it_although_the_client_is_closed(
    run: Run, address: str
) -> None:
    async def main() -> None:
        client = await aio.connect(address)
        topic, queue = await new_topic(client), await new_queue(client)
        entered: list[asyncio.Event] = []

        async def stay(block: aio.Producer | aio.Consumer | aio.QueueSubscription) -> None:
            async with block:
                entered.append(asyncio.Event())
                await entered[-1].wait()
                raise ValueError("mine")

        blocks: list[aio.Producer | aio.Consumer | aio.QueueSubscription] = [
            client.producer(),
            client.consumer(topic, auto_offset_reset="earliest"),
            queue.subscribe(),
        ]
        staying = [asyncio.create_task(stay(block)) for block in [*blocks, client.producer()]]
        await until(lambda: len(entered) == len(staying))
        await client.close()
        staying[-1].cancel()
        for event in entered:
            event.set()
        results = await asyncio.gather(*staying, return_exceptions=True)

        assert [repr(each) for each in results[:-1]] == ["ValueError('mine')"] * 3
        assert staying[-1].cancelled()

    run(main())


def test_producers_and_consumers_may_be_closed_twice(run: Run, address: str) -> None:
    async def main() -> None:
        async with aio.connect(address) as client:
            topic = await new_topic(client)
            producer = await client.producer()
            consumer = await client.consumer(topic, auto_offset_reset="earliest")
            for _ in range(2):
                await producer.close()
                await consumer.close()
            with pytest.raises(aio.ClosedError):
                await producer.send(topic, b"v")

    run(main())


def test_a_shutdown_that_cancels_all_other_tasks_ends(run: Run, address: str) -> None:
    """A recipe that many programs have."""

    async def main() -> None:
        async with aio.connect(address) as client:
            queue = await new_queue(client)

            async def poll() -> None:
                await queue.receive(wait=20)

            tasks = [asyncio.create_task(poll()) for _ in range(3)]
            await turns(20)
            others = asyncio.all_tasks() - {asyncio.current_task()}
            assert others == set(tasks)  # The client has no tasks of asyncio.
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)
            await client.admin.list_topics()

    run(main())


def test_a_send_that_its_producer_abandons_ends(run: Run, address: str) -> None:
    async def main() -> None:
        async with aio.connect(address) as client:
            topic = await new_topic(client)

            async def produce() -> None:
                async with client.producer() as producer:
                    await producer.send(topic, b"v")
                    sending.append(asyncio.create_task(producer.send(topic, b"w")))
                    await asyncio.sleep(60)

            sending: list[asyncio.Task[aio.Receipt]] = []
            producing = asyncio.create_task(produce())
            await until(lambda: sending)
            producing.cancel()
            await asyncio.wait([producing, *sending])
            assert isinstance(sending[0].exception(), aio.ClosedError | None)

    run(main())


def test_clients_of_one_loop_are_closed_in_any_order(run: Run, address: str) -> None:
    async def main() -> None:
        for order in ((0, 1), (1, 0)):
            clients = [await aio.connect(address) for _ in range(2)]
            await clients[order[0]].close()
            await clients[order[1]].admin.list_topics()
            await clients[order[1]].close()
            assert not trio.lowlevel.in_trio_run()
        closing = await aio.connect(address)
        _, connected = await asyncio.gather(closing.close(), aio.connect(address).__aenter__())
        await connected.admin.list_topics()
        await connected.close()

    run(main())
    run(main())


def test_loops_of_threads_have_clients_of_their_own(run: Run, address: str) -> None:
    async def main(number: int) -> None:
        async with aio.connect(address) as one, aio.connect(address) as two:
            topic = await new_topic(one)
            async with one.producer() as producer:
                for _ in range(20):
                    await producer.send(topic, b"%d" % number)
            async with two.consumer(topic, auto_offset_reset="earliest") as consumer:
                ends = await consumer.end_offsets()
                values = [record.value async for record in consumer.records(ends)]
        results.append(set(values) == {b"%d" % number})

    results: list[bool] = []

    def start(number: int) -> None:
        run(main(number))

    threads = [threading.Thread(target=start, args=[number]) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert results == [True, True]


def test_calls_from_other_threads_and_loops_are_refused(run: Run, address: str) -> None:
    async def main() -> None:
        async with aio.connect(address) as client, client.producer() as producer:
            topic, queue = await new_topic(client), await new_queue(client, 1)
            (message,) = await queue.receive(1)

            def in_a_thread(call: Callable[[], object]) -> None:
                with pytest.raises(RuntimeError, match=r"another event loop.*tidelog\.blocking"):
                    call()

            def in_another_loop(call: Call) -> None:
                async def await_it() -> object:
                    return await call()

                in_a_thread(lambda: asyncio.run(await_it()))

            async with client.consumer(topic, auto_offset_reset="earliest") as consumer:
                # As FastAPI calls endpoints that are no async functions.
                for call in (
                    lambda: producer.send_nowait(topic, b"v"),
                    client.producer,
                    lambda: client.admin,
                    lambda: consumer.position(topic, 0),
                    consumer.records,
                ):
                    await asyncio.to_thread(in_a_thread, call)
                calls: list[Call] = [
                    lambda: producer.send(topic, b"v"),
                    producer.flush,
                    consumer.end_offsets,
                    lambda: anext(aiter(consumer)),
                    queue.receive,
                    message.delete,
                    producer.close,
                    client.close,
                ]
                for each in calls:
                    await asyncio.to_thread(in_another_loop, each)
            assert (await producer.send(topic, b"v")).offset == 0

    run(main())


def test_a_program_of_trio_is_told_to_use_the_client_for_trio(address: str) -> None:
    async def main() -> None:
        async with aio.connect(address):
            raise AssertionError("it is connected")

    async def run_asyncio_within_trio() -> None:
        await trio.lowlevel.checkpoint()
        asyncio.run(main())

    with pytest.raises(RuntimeError, match="trio runs in this thread already"):
        trio.run(run_asyncio_within_trio)


def test_cancelled_and_finished_calls_leave_nothing(run: Run, address: str) -> None:
    async def main() -> None:
        async with aio.connect(address) as client, client.producer() as producer:
            topic, queue = await new_topic(client), await new_queue(client)
            guest: TrioGuest[object] = vars(client)["_guest"]

            async def use(number: int) -> None:
                calls: list[Call] = [
                    lambda: producer.send(topic, b"v"),
                    lambda: queue.receive(1, wait=20),
                    client.admin.list_topics,
                ]
                try:
                    async with asyncio.timeout(0.001 * (number % 7)):
                        await calls[number % 3]()
                except TimeoutError:
                    pass

            async def use_often() -> tuple[int, int, int]:
                await asyncio.gather(*(use(number) for number in range(500)))
                await producer.flush()
                await asyncio.sleep(0.05)  # Give-backs of cancelled receives.
                gc.collect()
                tasks = await guest.call(_count_tasks_of_trio)
                memory, _ = tracemalloc.get_traced_memory()
                return len(asyncio.all_tasks()), tasks, memory

            await use_often()
            tracemalloc.start()
            before = after = await use_often()
            for _ in range(4):  # A leak grows in every round, and buffers on a busy machine in one.
                before, after = after, await use_often()
                if after[2] < before[2] + 100_000:
                    break
            tracemalloc.stop()

            assert after[0] == 1
            assert after[1] <= before[1] + 2
            assert after[2] < before[2] + 100_000
            state = vars(guest)
            assert [*state["_calls"], *state["_waiting"], *state["_host_tasks"]] == []

    run(main())


async def _count_tasks_of_trio() -> int:
    await trio.lowlevel.checkpoint()
    return trio.lowlevel.current_statistics().tasks_living
