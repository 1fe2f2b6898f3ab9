"""Cancelled calls of programs of asyncio: nothing is lost, and nothing stays behind."""

import asyncio
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from tests.tidelog.aio.programs import Run, new_queue, new_topic, turns, until
from tidelog import aio

SESSION_S = 45.0
"""Session timeout of groups: after it a silent member is gone without a leave."""


@asynccontextmanager
async def timeout_at_turn(number: int) -> AsyncGenerator[None, None]:
    """Cancel the block after so many turns of the event loop, as `asyncio.timeout` does."""
    async with asyncio.timeout(None) as timeout:
        loop = asyncio.get_running_loop()

        is_over = False

        def count_down(left: int) -> None:
            if is_over:
                return
            if left:
                loop.call_soon(count_down, left - 1)
            else:
                timeout.reschedule(loop.time())

        count_down(number)
        try:
            yield
        finally:
            is_over = True


def test_a_send_that_times_out_is_sent_once_or_not_at_all(run: Run, address: str) -> None:
    async def main() -> None:
        async with aio.connect(address) as client, client.producer() as producer:
            topic = await new_topic(client)
            acknowledged: list[bytes] = []
            for number in range(60):
                value = b"%d" % number
                try:
                    async with timeout_at_turn(number % 30):
                        await producer.send(topic, value)
                        acknowledged.append(value)
                except TimeoutError:
                    continue
            await producer.flush()
            consumer = client.consumer(topic, auto_offset_reset="earliest")
            async with consumer:
                ends = await consumer.end_offsets()
                values = [record.value async for record in consumer.records(ends)]

            assert len(values) == len(set(values))
            assert set(acknowledged) <= set(values)

    run(main())


def test_a_receive_cancelled_at_any_turn_leaves_nothing_in_flight(run: Run, address: str) -> None:
    async def main() -> None:
        async with aio.connect(address) as client:
            queue = await new_queue(client, 1)
            received_count = number = 0
            while received_count < 3:
                try:
                    async with timeout_at_turn(number % 60):
                        (message,) = await queue.receive(1, wait=5)
                except TimeoutError:
                    number += 1
                else:
                    received_count += 1
                    number = 0 if received_count < 2 else number
                    await message.release(0)

            (message,) = await queue.receive(1, wait=5)  # Long before its visibility timeout.
            assert message.value == b"0"

    run(main())


def test_a_long_poll_ends_when_it_is_cancelled(run: Run, address: str) -> None:
    async def main() -> None:
        async with aio.connect(address) as client:
            queue = await new_queue(client)
            poll = asyncio.create_task(queue.receive(wait=20))
            await turns(30)
            poll.cancel()
            await turns(1)
            poll.cancel()
            await asyncio.wait([poll])
            assert poll.cancelled()
            await queue.send(b"later")
            (message,) = await queue.receive(wait=5)
            assert message.value == b"later"

    run(main())


def test_a_cancelled_iteration_loses_no_record(run: Run, address: str) -> None:
    async def main() -> None:
        async with aio.connect(address) as client, client.producer() as producer:
            topic = await new_topic(client)
            seen: list[int] = []
            async with client.consumer(topic, auto_offset_reset="earliest") as consumer:
                iterator = aiter(consumer)
                number = 0
                while len(seen) < 40:
                    if number % 8 == 0:
                        producer.send_nowait(topic, b"a")
                        producer.send_nowait(topic, b"b")
                    try:
                        async with timeout_at_turn(number % 11):
                            seen.append((await anext(iterator)).offset)
                    except TimeoutError:
                        pass
                    number += 1

            assert seen == list(range(len(seen)))

    run(main())


def test_a_cancelled_iteration_over_batches_loses_no_record(run: Run, address: str) -> None:
    async def main() -> None:
        async with aio.connect(address) as client, client.producer() as producer:
            topic = await new_topic(client)
            seen: list[int] = []
            async with client.consumer(topic, auto_offset_reset="earliest") as consumer:
                batches = consumer.batches()
                number = 0
                while len(seen) < 40:
                    if number % 8 == 0:
                        producer.send_nowait(topic, b"a")
                    try:
                        async with timeout_at_turn(number % 11):
                            batch = await anext(batches)
                            seen += range(batch.base_offset, batch.next_offset)
                    except TimeoutError:
                        pass
                    number += 1

            assert seen == list(range(len(seen)))

    run(main())


def test_a_cancelled_iteration_over_a_subscription_loses_no_message(run: Run, address: str) -> None:
    async def main() -> None:
        async with aio.connect(address) as client:
            queue = await new_queue(client, 20)
            seen: set[bytes | None] = set()
            async with queue.subscribe() as messages:
                number = 0
                while len(seen) < 20:
                    try:
                        async with timeout_at_turn(number % 7):
                            message = await anext(messages)
                    except TimeoutError:
                        pass
                    else:
                        assert message.receive_count == 1
                        seen.add(message.value)
                        await message.delete()
                    number += 1

    run(main())


def test_a_subscription_entered_by_a_cancelled_task_holds_nothing(run: Run, address: str) -> None:
    async def main() -> None:
        async with aio.connect(address) as client:
            queue = await new_queue(client, 1)
            for number in range(20):
                try:
                    async with timeout_at_turn(number), queue.subscribe():
                        await asyncio.sleep(0.001)
                except TimeoutError:
                    continue

            (message,) = await queue.receive(1, wait=5)
            assert message.receive_count == 1

    run(main())


def test_a_cancelled_commit_leaves_the_consumer_usable(run: Run, group_address: str) -> None:
    async def main() -> None:
        async with aio.connect(group_address) as client, client.producer() as producer:
            topic = await new_topic(client)
            await producer.send_many(topic, [b"a", b"b"])
            async with client.consumer(
                topic, group_id=topic, auto_offset_reset="earliest", enable_auto_commit=False
            ) as consumer:
                await anext(aiter(consumer))
                for number in range(6):
                    try:
                        async with timeout_at_turn(number):
                            await consumer.commit()
                    except TimeoutError:
                        continue
                await consumer.commit()
                assert await consumer.committed([(topic, 0)]) == {(topic, 0): 1}

    run(main())


def test_a_record_is_processed_when_the_next_request_is_cancelled_at_once(
    run: Run, group_address: str
) -> None:
    async def main() -> None:
        async with aio.connect(group_address) as client, client.producer() as producer:
            topic = await new_topic(client)
            await producer.send(topic, b"v")
            async with client.consumer(
                topic, group_id=topic, auto_offset_reset="earliest"
            ) as consumer:
                iterator = aiter(consumer)
                await anext(iterator)
                requesting = asyncio.ensure_future(anext(iterator))
                await turns(1)
                requesting.cancel()
                await asyncio.wait([requesting])
            group = await client.admin.describe_group(topic)
            assert [each.offset for each in group.partitions] == [1]

    run(main())


def test_a_member_whose_task_is_cancelled_leaves_the_group(run: Run, group_address: str) -> None:
    async def main() -> None:
        async with aio.connect(group_address) as client:
            topic = await new_topic(client)

            async def consume(began: asyncio.Event) -> None:
                async with client.consumer(topic, group_id=topic) as consumer:
                    began.set()
                    async for _ in consumer:
                        raise AssertionError("no record was sent")

            for number in (0, 1, 5, 15, None):  # Also while it joins.
                began = asyncio.Event()
                consuming = asyncio.create_task(consume(began))
                if number is None:
                    await began.wait()
                else:
                    await turns(number)
                consuming.cancel()
                await asyncio.wait([consuming])
                assert consuming.cancelled()

            # On a busy machine a member may send its leave without a wait, after a second.
            async with asyncio.timeout(SESSION_S / 2):
                while (await client.admin.describe_group(topic)).members:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)

    run(main())


def test_connecting_ends_at_its_timeout(run: Run) -> None:
    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent:  # It accepts, and never answers.
            address = "{}:{}".format(*silent.getsockname())
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05), aio.connect(address):
                    raise AssertionError("it is connected")
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(aio.connect(address), 0.05)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    run(main())


def test_a_task_cancelled_while_it_closes_has_closed(run: Run, address: str) -> None:
    async def main() -> None:
        async def use() -> None:
            async with aio.connect(address) as client:
                clients.append(client)
                await asyncio.sleep(0)

        for number in range(12):
            clients: list[aio.Client] = []
            using = asyncio.create_task(use())
            await until(lambda: clients or using.done())  # noqa: B023  (it is called here)
            await turns(number % 6)
            using.cancel()
            await turns(number // 6)
            using.cancel()
            await asyncio.wait([using])
            with pytest.raises(aio.ClosedError):
                await clients[0].admin.list_topics()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    run(main())


def test_a_group_of_tasks_ends_all_calls_when_one_task_fails(run: Run, address: str) -> None:
    async def main() -> None:
        async with aio.connect(address) as client:
            queue = await new_queue(client)
            topic = await new_topic(client)

            async def consume() -> None:
                async with client.consumer(topic, auto_offset_reset="latest") as consumer:
                    async for _ in consumer:
                        raise AssertionError("no record was sent")

            async def produce() -> None:
                async with client.producer(linger=30) as producer:
                    await producer.send(topic, b"never flushed")

            async def fail() -> None:
                await asyncio.sleep(0.05)
                raise ValueError("mine")

            with pytest.raises(ExceptionGroup) as raised:  # noqa: PT012
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(queue.receive(wait=20))
                    tasks.create_task(queue.work(lambda _: asyncio.sleep(0)))
                    tasks.create_task(consume())
                    tasks.create_task(produce())
                    tasks.create_task(fail())

            assert [repr(each) for each in raised.value.exceptions] == ["ValueError('mine')"]
            await client.admin.list_topics()

    run(main())


def test_a_shielded_call_goes_on_when_its_caller_is_cancelled(run: Run, address: str) -> None:
    async def main() -> None:
        async with aio.connect(address) as client, client.producer() as producer:
            topic = await new_topic(client)
            sending = asyncio.create_task(producer.send(topic, b"v"))

            async def call() -> None:
                await asyncio.shield(sending)

            caller = asyncio.create_task(call())
            await turns(1)
            caller.cancel()
            await asyncio.wait([caller])

            assert caller.cancelled()
            assert (await sending).offset == 0

    run(main())
