"""Queues for programs without trio, against a real broker over real sockets."""

import io
import signal
import threading
from collections.abc import Iterator
from operator import attrgetter
from pathlib import Path
from typing import cast

import pytest
import trio

from tests.tidelog.brokers import broker_in_a_thread
from tidelog import blocking
from tidelog.blocking.message import Message
from tidelog.blocking.queue import Queue
from tidelog.wire.errors import (
    InvalidReceiptError,
    OffsetOutOfRangeError,
    UnknownQueueError,
)
from tidelog.wire.messages.queues import MessageState


@pytest.fixture
def client(tmp_path: Path) -> Iterator[blocking.Client]:
    with broker_in_a_thread(tmp_path) as address, blocking.connect(address) as client:
        client.admin.create_queue("work", partitions=2)
        yield client


@pytest.fixture
def queue(client: blocking.Client) -> Queue:
    return client.queue("work", holder="me")


def test_a_message_is_extended_released_and_settled(queue: Queue) -> None:
    receipt = queue.send(b"paid", key=b"k", headers=[("trace", b"1")])
    (message,) = queue.receive(wait=5)
    assert (message.value, message.key, message.headers) == (b"paid", b"k", (("trace", b"1"),))
    assert (message.partition, message.offset) == (receipt.partition, receipt.offset)
    assert (message.topic, message.receive_count, message.origin) == ("work", 1, None)
    assert message.timestamp_ms <= message.first_received_ms
    assert message.message_id == f"{receipt.partition}-0"
    message.extend(60)
    (seen,) = queue.in_flight()
    assert (seen.holder, seen.state) == ("me", MessageState.IN_FLIGHT)
    message.release()
    (message,) = queue.receive(wait=5)
    queue.extend(message, 60)
    queue.release(message.receipt_handle)
    message.change_visibility(60)
    queue.change_visibility(message, 30)
    queue.change_visibility_batch([message.receipt_handle], 0)
    (message,) = queue.receive(wait=5)
    assert message.receive_count == 3
    message.delete()
    queue.delete(message.receipt_handle)
    assert queue.receive(wait=0) == []


def test_a_receive_is_repeated_by_its_attempt_id(client: blocking.Client) -> None:
    client.admin.create_queue("attempts", fifo=True)
    attempts = client.queue("attempts")
    attempts.send(b"one", group=b"g")
    (first,), (again,) = (attempts.receive(wait=5, attempt_id=b"a") for _ in range(2))
    assert first.receipt_handle == again.receipt_handle
    assert attempts.receive(wait=0, raise_at_limit=True) == []


def test_a_subscription_hands_out_messages_and_gives_them_back(queue: Queue) -> None:
    queue.send_batch([b"%d" % n for n in range(6)])
    seen = 0
    with queue.subscribe(4, wait=5) as messages:
        for message in messages:
            message.delete()
            seen += 1
            if seen == 5:
                break
        next(messages)
    assert [message.receive_count for message in queue.receive(wait=5)] == [2]
    assert list(messages) == []


def test_batches_are_sent_and_settled_together(client: blocking.Client, queue: Queue) -> None:
    assert len(queue.send_batch([b"%d" % n for n in range(20)])) == 20
    messages = queue.receive(100, wait=5)
    while len(messages) < 20:
        messages += queue.receive(100, wait=5)
    queue.extend_batch(messages, 60)
    queue.release_batch(messages[:5])
    queue.delete_batch(messages[5:])
    assert sum(each.visible for each in queue.counts()) == 5
    assert len(queue.peek()) == 5
    (first, second, *_) = queue.receive(10)
    first.reject("no")
    queue.reject(second, "no")
    assert {each.reason for each in queue.dead_letters()} == {"no"}
    assert queue.purge() == 5
    assert queue.seek("earliest") == 20
    assert queue.seek({0: 0, 1: 0}) == 20
    with pytest.raises(ValueError, match="not for all of"):
        queue.seek({0: 0})
    with pytest.raises(OffsetOutOfRangeError, match=r"work/1 has offsets from 0 to \d+, not 99"):
        queue.seek({0: 0, 1: 99})
    client.admin.create_topic("elsewhere")
    assert queue.redrive(to_topic="elsewhere") == 20
    queue.cancel_redrive()
    assert queue.redrive_status().to_move == 20


def test_errors_are_those_of_the_client(client: blocking.Client, queue: Queue) -> None:
    with pytest.raises(InvalidReceiptError, match="'garbage' is no receipt handle"):
        queue.delete("garbage")
    with pytest.raises(UnknownQueueError):
        client.queue("nope").receive()


def test_a_worker_calls_a_function_in_threads_until_it_is_stopped(queue: Queue) -> None:
    queue.send_batch([b"%d" % n for n in range(30)])
    seen: list[bytes | None] = []
    threads: set[int] = set()
    together = threading.Barrier(3)

    def handle(message: Message) -> None:
        together.wait()
        threads.add(threading.get_ident())
        message.extend(60)
        seen.append(message.value)
        if len(seen) == 30:
            worker.stop()

    worker = queue.worker(handle, concurrency=3, wait=1)
    worker.run()

    assert sorted(seen) == sorted(b"%d" % n for n in range(30))  # type: ignore[type-var]
    assert threading.get_ident() not in threads
    assert worker.statistics.done_count == 30
    assert sum(each.visible + each.in_flight for each in queue.counts()) == 0


def test_what_is_told_of_errors_may_call_the_client(queue: Queue) -> None:
    queue.send(b"0")
    threads: set[int] = set()

    def handle(message: Message) -> None:
        threads.add(threading.get_ident())
        raise ValueError(message.value)

    def told(message: Message, error: Exception) -> None:
        threads.add(threading.get_ident())
        queue.send(b"told of it", key=message.value)
        message.reject(f"seen: {error}")
        worker.stop()

    worker = queue.worker(handle, concurrency=1, wait=1, on_error=told)
    worker.run()

    assert [each.reason for each in queue.dead_letters()] == ["seen: b'0'"]
    assert sum(each.visible + each.in_flight for each in queue.counts()) == 1
    clients = cast("threading.Thread", vars(attrgetter("_thread")(queue))["_thread"])
    assert clients.ident not in threads


def test_handlers_leave_the_client_threads_to_read_files_with(
    client: blocking.Client, queue: Queue
) -> None:
    queue.send(b"file")
    client.admin.create_queue("files")

    def limit() -> None:
        trio.to_thread.current_default_thread_limiter().total_tokens = 1

    vars(client)["_thread"].call_sync(limit)

    def handle(message: Message) -> None:
        client.queue("files").send(io.BytesIO(message.value or b""))
        worker.stop()

    worker = queue.worker(handle, concurrency=5, wait=1)
    worker.run()

    assert [message.value for message in client.queue("files").receive(wait=5)] == [b"file"]


def test_handlers_that_run_when_a_worker_is_interrupted_have_their_messages_settled(
    tmp_path: Path,
) -> None:
    main_thread_id = threading.get_ident()
    interrupted = threading.Event()
    with broker_in_a_thread(tmp_path) as address:
        with blocking.connect(address) as client:
            client.admin.create_queue("work")
            queue = client.queue("work")
            queue.send_batch([b"0", b"1", b"2"])

            def handle(message: Message) -> None:
                signal.pthread_kill(main_thread_id, signal.SIGINT)
                assert interrupted.wait(30)
                if message.value == b"1":
                    raise ValueError

            with pytest.raises(KeyboardInterrupt):
                queue.work(handle, concurrency=1)
            interrupted.set()

        with blocking.connect(address) as client:
            (counts,) = client.queue("work").counts()
            assert (counts.visible, counts.in_flight) == (2, 0)


def test_a_worker_of_a_queue_that_is_not_there_says_so(client: blocking.Client) -> None:
    with pytest.raises(UnknownQueueError):
        client.queue("nope").work(print)


def test_a_message_that_was_sent_before_is_kept_once(client: blocking.Client) -> None:
    client.admin.create_queue("transfers", fifo=True)
    transfers = client.queue("transfers")
    receipts = [transfers.send(b"5", group=b"a", deduplication_id="1") for _ in range(2)]

    assert [each.is_duplicate for each in receipts] == [False, True]
    assert [message.value for message in transfers.receive(wait=5)] == [b"5"]


def test_large_messages_come_from_files_and_are_read_chunk_by_chunk(
    client: blocking.Client, queue: Queue
) -> None:
    value = bytes(range(256)) * 12 * 1024
    queue.send(io.BytesIO(value))

    (message,) = queue.receive(wait=5, max_value_bytes=0)

    assert (message.is_large, message.length) == (True, len(value))
    assert b"".join(message.chunks()) == message.read() == value
    with client.consumer("work", auto_offset_reset="earliest") as consumer:
        records = [next(iter(consumer)) for _ in range(7)]
    assert [record.is_chunk for record in records] == [True] * 6 + [False]
    assert b"".join(client.chunks(records[6])) == value
    assert records[6].is_large
    assert list(client.chunks(records[0])) == [records[0].value]
