"""Records cross from the caller's thread in the order in which they were put down."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from tests.tidelog.brokers import broker_in_a_thread
from tidelog.blocking.handover import Handover
from tidelog.blocking.thread import TrioThread
from tidelog.client.client import Client, connect
from tidelog.client.producer.producer import Producer
from tidelog.client.producer.producer_record import ProducerRecord
from tidelog.wire.errors import UnknownTopicError


@pytest.fixture
def thread(tmp_path: Path) -> Iterator[TrioThread[Client]]:
    with broker_in_a_thread(tmp_path) as address:
        thread = TrioThread(connect(address))
        thread.call(lambda: thread.resource.admin.create_topic("orders"))
        yield thread
        thread.close()


def opened(thread: TrioThread[Client]) -> tuple[Handover, Producer]:
    producer = thread.resource.producer()
    thread.call(producer.__aenter__)
    return Handover(thread, producer), producer


def close(thread: TrioThread[Client], handover: Handover) -> None:
    thread.call(lambda: handover.aclose(None, None, None))


def test_work_is_done_after_everything_that_was_put_down(thread: TrioThread[Client]) -> None:
    handover, producer = opened(thread)
    for number in range(500):
        handover.put(ProducerRecord("orders", b"%d" % number))

    receipt = handover.call(lambda: producer.send("orders", b"last"))

    assert receipt.offset == 500
    close(thread, handover)


def test_a_failure_is_raised_once_and_instead_of_the_next_work(
    thread: TrioThread[Client],
) -> None:
    handover, producer = opened(thread)
    handover.put(ProducerRecord("nope", b"v"))

    with pytest.raises(UnknownTopicError):
        handover.call(producer.flush)

    assert handover.call(lambda: producer.send("orders", b"v")).offset == 0
    close(thread, handover)


def test_close_flushes_records_of_the_handover(thread: TrioThread[Client]) -> None:
    handover, producer = opened(thread)
    for _ in range(100):
        handover.put(ProducerRecord("orders", b"v"))

    close(thread, handover)

    assert producer.statistics().acknowledged_record_count == 100
    with pytest.raises(trio.ClosedResourceError):
        handover.put(ProducerRecord("orders", b"v"))


def test_nothing_is_put_down_for_a_client_that_is_closed(thread: TrioThread[Client]) -> None:
    handover, _ = opened(thread)
    handover.put(ProducerRecord("orders", b"v"))
    thread.close()

    with pytest.raises(trio.ClosedResourceError, match="the client is closed"):
        handover.put(ProducerRecord("orders", b"v"))
