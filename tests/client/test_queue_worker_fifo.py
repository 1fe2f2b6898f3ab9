"""Workers on FIFO queues: one message of a group at a time, and none overtakes."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock

from tests.broker.world import World
from tests.client.clients import client_of
from tests.client.queue_fixture import left, made
from tests.coordinator.raft_clients import until
from tidelog.client.queue.queue import Queue
from tidelog.client.queue.receive.message import Message
from tidelog.client.queue.send.message_fields import OutgoingMessage


@asynccontextmanager
async def fifo_queue(
    time: MockClock, *messages: str, partitions: int = 1, **settings: float | str
) -> AsyncGenerator[Queue, None]:
    """Run a broker with a FIFO queue of messages, whose first letters are their groups."""
    async with client_of(World(time)) as client:
        queue = await made(client, "work", partitions=partitions, fifo=True, **settings)
        await queue.send_batch(
            OutgoingMessage(value=name.encode(), group=name[:1].encode()) for name in messages
        )
        yield queue


class Work:
    """Record of the handlers."""

    def __init__(self, **failing: int) -> None:
        """Let the handler of each of these messages fail a number of times."""
        self.failing = failing
        self.begun: list[str] = []
        self.done: list[str] = []
        self.at_work: list[str] = []
        self.overtaking: list[str] = []
        """Messages that were started while another one of their group was at work."""
        self.most_at_work = 0

    async def handle(self, message: Message) -> None:
        assert message.value is not None
        name = message.value.decode()
        self.begun.append(name)
        if name[0] in self.at_work:
            self.overtaking.append(name)
        self.at_work.append(name[0])
        self.most_at_work = max(self.most_at_work, len(self.at_work))
        try:
            await trio.sleep(1)
            if self.failing.get(name, 0):
                self.failing[name] -= 1
                raise ValueError(name)
            self.done.append(name)
        finally:
            self.at_work.remove(name[0])

    def of(self, group: str) -> list[str]:
        return [name for name in self.done if name[0] == group]


def names(group: str, count: int) -> list[str]:
    return [f"{group}{number:02}" for number in range(count)]


@pytest.mark.parametrize("concurrency", [1, 2, 10])
async def test_a_failed_message_is_not_overtaken_in_its_group(
    autojump_clock: MockClock, concurrency: int
) -> None:
    async with fifo_queue(
        autojump_clock, *names("a", 8), *names("b", 8), retry_backoff="3s"
    ) as queue:
        work = Work(a00=2, a03=1, b01=1)
        worker = queue.worker(work.handle, concurrency=concurrency)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(worker.run)
            await until(lambda: len(work.done) == 16, 200)
            worker.stop()

        assert work.of("a") == names("a", 8)
        assert work.of("b") == names("b", 8)
        assert work.overtaking == []
        assert work.begun.count("a01") == 1, "what stands behind is not begun before"
        assert await left(queue) == (0, 0)


async def test_messages_returned_behind_a_failure_do_not_count(
    autojump_clock: MockClock,
) -> None:
    async with fifo_queue(autojump_clock, *names("a", 4), retry_backoff="3s") as queue:
        counts: dict[bytes | None, int] = {}

        async def handle(message: Message) -> None:
            await trio.sleep(1)
            counts[message.value] = message.receive_count
            if message.receive_count < 3 and message.value == b"a00":
                raise ValueError

        worker = queue.worker(handle)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(worker.run)
            await until(lambda: worker.statistics.done_count == 4, 200)
            worker.stop()

        assert counts == {b"a00": 3, b"a01": 1, b"a02": 1, b"a03": 1}


async def test_groups_are_processed_concurrently_beside_a_long_one(
    autojump_clock: MockClock,
) -> None:
    others = [name for letter in "bcdef" for name in names(letter, 3)]
    async with fifo_queue(autojump_clock, *names("a", 30), *others) as queue:
        work = Work()
        worker = queue.worker(work.handle, concurrency=4)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(worker.run)
            await until(lambda: len(work.done) == 45, 200)
            worker.stop()

        assert work.most_at_work == 4
        assert max(map(work.done.index, ("b00", "c00", "d00"))) < 4, "others do not wait for it"
        for letter in "abcdef":
            assert work.of(letter) == sorted(work.of(letter))


@pytest.mark.parametrize("how", ["delete", "reject", "release"])
async def test_a_settlement_by_the_handler_decides_whether_its_group_continues(
    autojump_clock: MockClock, how: str
) -> None:
    async with fifo_queue(autojump_clock, "a0", "a1", "a2") as queue:
        seen: list[bytes | None] = []

        async def handle(message: Message) -> None:
            seen.append(message.value)
            if len(seen) > 1:
                return
            match how:
                case "delete":
                    await queue.delete(message.receipt_handle)
                case "reject":
                    await message.reject("no")
                case _:
                    await queue.release(message.receipt_handle, 100)

        worker = queue.worker(handle)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(worker.run)
            await trio.sleep(90)
            if how == "release":
                assert seen == [b"a0"]
                assert await left(queue) == (3, 0), "what stands behind it is given back"
            await until(lambda: seen[-1] == b"a2", 100)
            worker.stop()

        again = [b"a0"] if how == "release" else []
        assert seen == [b"a0", *again, b"a1", b"a2"]


async def test_after_a_lost_lease_messages_behind_it_are_returned(
    autojump_clock: MockClock,
) -> None:
    async with fifo_queue(autojump_clock, *names("a", 5), visibility_timeout=30) as queue:
        begun: list[bytes | None] = []

        async def handle(message: Message) -> None:
            begun.append(message.value)
            await trio.sleep(600 if len(begun) == 1 else 0)

        worker = queue.worker(handle)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(worker.run)
            await trio.sleep(5)
            assert await queue.seek("earliest") == 5, "from now on others may have them"
            await until(lambda: len(begun) == 6, 100)
            worker.stop()

        assert worker.statistics.lost_count == 1
        assert begun[1:] == [name.encode() for name in names("a", 5)]


async def test_a_refused_delete_starts_no_message_behind_it(
    autojump_clock: MockClock,
) -> None:
    async with fifo_queue(autojump_clock, *names("a", 3), visibility_timeout=30) as queue:
        begun: list[bytes | None] = []

        async def handle(message: Message) -> None:
            begun.append(message.value)
            if len(begun) == 1:
                await queue.seek("earliest")

        worker = queue.worker(handle)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(worker.run)
            await until(lambda: len(begun) == 4, 100)
            worker.stop()

        assert begun == [b"a00", b"a00", b"a01", b"a02"]


async def test_changing_workers_keep_the_order_of_groups(
    autojump_clock: MockClock,
) -> None:
    async with fifo_queue(
        autojump_clock, *names("a", 20), *names("b", 20), partitions=2, retry_backoff="1s"
    ) as queue:
        work = Work(a05=1, b07=2, a12=1)

        async def work_for_a_while(seconds: float) -> None:
            while len(work.done) < 40:
                with trio.move_on_after(seconds):
                    await queue.work(work.handle, concurrency=3)

        async with trio.open_nursery() as nursery:
            for seconds in (3.3, 7.7, 4.1):
                nursery.start_soon(work_for_a_while, seconds)

        assert work.of("a") == names("a", 20)
        assert work.of("b") == names("b", 20)
        assert work.overtaking == []
