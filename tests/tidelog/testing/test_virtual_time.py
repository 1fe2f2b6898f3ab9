"""Everything of a broker that ends by time ends when a test advances the time."""

import threading
from contextlib import ExitStack

import pytest

import tidelog.testing
from tidelog import blocking
from tidelog.client.client import connect
from tidelog.client.topic_partition import TopicPartition
from tidelog.testing import EphemeralBroker
from tidelog.testing.virtual_time import steps_of
from tidelog.wire.errors import TransactionGoneError

HOUR_S = 3600
YEAR_S = 365 * 24 * 3600


def values(messages: list[blocking.Message]) -> list[bytes | None]:
    return [message.value for message in messages]


def test_a_delayed_message_is_delivered_at_once_and_not_before(
    broker: EphemeralBroker, client: blocking.Client
) -> None:
    broker.create_queue("delayed")
    queue = client.queue("delayed")

    for _ in range(3):  # The clients' clocks are ahead as well.
        queue.send(b"later", delay=30)
        broker.advance(25)
        early = queue.receive(wait=0)
        broker.advance(6)
        (message,) = queue.receive(wait=0)
        message.delete()

        assert early == []


def test_an_expired_lease_leads_to_a_second_delivery(
    broker: EphemeralBroker, client: blocking.Client
) -> None:
    broker.create_queue("leased")
    queue = client.queue("leased")
    queue.send(b"slow")
    (first,) = queue.receive(wait=0, visibility_timeout=30)

    broker.advance(29)
    hidden = queue.receive(wait=0)
    broker.advance(2)
    (second,) = queue.receive(wait=0)

    assert hidden == []
    assert (first.receive_count, second.receive_count) == (1, 2)


def test_a_message_that_never_succeeds_becomes_a_dead_letter(
    broker: EphemeralBroker, client: blocking.Client
) -> None:
    broker.create_queue("dead")
    broker.create_queue("poisoned", max_receive_count=3, dead_letter_queue="dead")
    queue = client.queue("poisoned")
    queue.send(b"poison")

    for _ in range(3):
        (_message,) = queue.receive(wait=0, visibility_timeout=30)
        broker.advance(31)

    assert queue.receive(wait=0) == []
    broker.settle()
    (letter,) = broker.messages("dead")
    assert letter.record.value == b"poison"
    assert broker.messages("poisoned") == []


def test_a_retry_waits_for_its_backoff(broker: EphemeralBroker, client: blocking.Client) -> None:
    broker.create_queue("retried", retry_backoff="exponential(10s,3,1h)")
    queue = client.queue("retried")
    queue.send(b"try")

    for backoff_s in (10, 30, 90):
        (message,) = queue.receive(wait=0)
        message.release()
        broker.advance(backoff_s - 1)
        early = queue.receive(wait=0)
        broker.advance(2)

        assert early == []
    (message,) = queue.receive(wait=0)
    assert message.receive_count == 4


def test_a_deduplication_window_ends(broker: EphemeralBroker, client: blocking.Client) -> None:
    broker.create_queue("deduplicated", fifo=True)
    queue = client.queue("deduplicated")

    def send() -> bool:
        receipt = queue.send(b"pay", group=b"account", deduplication_id="1")
        return receipt.is_duplicate

    first, again = send(), send()
    broker.advance(301)

    assert (first, again, send()) == (False, True, False)


def test_retention_deletes_old_records(broker: EphemeralBroker, client: blocking.Client) -> None:
    broker.create_topic("kept", retention_ms="1h")
    with client.producer() as producer:
        producer.send("kept", b"old")
        broker.advance(3500)
        before = broker.records("kept")
        broker.advance(110)
        producer.send("kept", b"new")

    assert [record.value for record in before] == [b"old"]
    assert [record.value for record in broker.records("kept")] == [b"new"]


def test_records_carry_the_virtual_time(broker: EphemeralBroker, client: blocking.Client) -> None:
    broker.create_topic("stamped")
    with client.producer() as producer:
        producer.send("stamped", b"")
        broker.advance(1000)
        producer.send("stamped", b"")

    first, second = broker.records("stamped")
    assert 1_000_000 <= second.timestamp_ms - first.timestamp_ms < 1_060_000


def test_a_transaction_times_out(broker: EphemeralBroker, client: blocking.Client) -> None:
    broker.create_topic("staged")
    transaction = client.transaction("job", 1, timeout=HOUR_S)
    with transaction.task() as task:
        task.send_many("staged", [b"unwanted"])
    open_before = client.admin.list_transactions(["job"])
    broker.advance(HOUR_S + 1)

    assert len(open_before) == 1
    assert client.admin.list_transactions(["job"]) == []
    with pytest.raises(TransactionGoneError):
        transaction.commit([task.result])
    assert broker.records("staged") == []


def test_a_long_poll_gets_what_becomes_visible(
    broker: EphemeralBroker, client: blocking.Client
) -> None:
    broker.create_queue("polled")
    queue = client.queue("polled")
    queue.send(b"later", delay=50)
    assert queue.receive(wait=0) == []
    received: list[blocking.Message] = []
    sent_bytes = client.statistics().connections.sent_bytes
    poll = threading.Thread(target=lambda: received.extend(queue.receive(wait=20)))
    poll.start()
    while client.statistics().connections.sent_bytes == sent_bytes:
        broker.settle()

    broker.advance(60)
    poll.join()

    assert values(received) == [b"later"]


def test_clients_may_keep_the_broker_busy(broker: EphemeralBroker, client: blocking.Client) -> None:
    for name in ("busy", "waiting"):
        broker.create_queue(name)
    client.queue("waiting").send(b"later", delay=HOUR_S)
    is_over = threading.Event()

    def poll() -> None:
        while not is_over.is_set():
            client.queue("busy").receive(wait=0)

    poller = threading.Thread(target=poll)
    poller.start()
    try:
        broker.advance(HOUR_S + 1)
        (message,) = client.queue("waiting").receive(wait=0)
    finally:
        is_over.set()
        poller.join()

    assert message.value == b"later"


def test_the_members_of_a_group_stay_while_time_jumps(
    broker: EphemeralBroker, client: blocking.Client
) -> None:
    broker.create_topic("grouped", partitions=4)
    lost: list[list[TopicPartition]] = []
    with ExitStack() as stack:
        consumer = stack.enter_context(
            client.consumer(
                "grouped", group_id="group", auto_offset_reset="earliest", on_lost=lost.append
            )
        )
        with client.producer() as producer:
            producer.send("grouped", b"before")
            records = iter(consumer)
            before = next(records)
            consumer.commit()
            for seconds in (60, 3600, YEAR_S, *[60] * 9):
                broker.advance(seconds)
            producer.send("grouped", b"after")
            after = next(records)
            consumer.commit()

    assert (before.value, after.value) == (b"before", b"after")
    assert lost == []


def test_the_broker_leads_its_partitions_after_a_year(
    broker: EphemeralBroker, client: blocking.Client, caplog: pytest.LogCaptureFixture
) -> None:
    broker.create_topic("led", retention_ms="unlimited")
    with client.producer() as producer:
        broker.advance(YEAR_S)
        producer.send("led", b"value")

    assert [record.value for record in broker.records("led")] == [b"value"]
    assert caplog.records == []


async def test_a_test_of_trio_advances_the_time(broker: EphemeralBroker) -> None:
    broker.create_queue("of-trio")
    async with connect(broker.address) as client:
        queue = client.queue("of-trio")
        await queue.send(b"later", delay=30)
        broker.advance(31)
        (message,) = await queue.receive(wait=0)

    assert message.value == b"later"


def test_brokers_share_the_time_until_the_last_one_is_closed() -> None:
    with tidelog.testing.broker() as one, tidelog.testing.broker() as other:
        one.create_queue("jobs")
        with blocking.connect(one.address) as client:
            client.queue("jobs").send(b"later", delay=30)
            other.advance(31)
            one.restart()
            (message,) = client.queue("jobs").receive(wait=0)

    assert message.value == b"later"


def test_a_killed_broker_wakes_up_later(broker: EphemeralBroker, client: blocking.Client) -> None:
    broker.create_queue("slept")
    client.queue("slept").send(b"later", delay=3600)

    broker.kill()
    broker.advance(3601)
    broker.start()
    (message,) = client.queue("slept").receive(wait=1)

    assert message.value == b"later"


def test_time_does_not_go_back(broker: EphemeralBroker) -> None:
    with pytest.raises(ValueError, match="cannot advance by -1 s"):
        broker.advance(-1)


@pytest.mark.parametrize(
    ("total_ms", "steps"),
    [
        (0, [0]),
        (500, [500]),
        (1_000, [1_000]),
        (1_500, [500, 1_000]),
        (3_000, [1_000, 1_000, 1_000]),
        (60_000, [58_000, 1_000, 1_000]),
    ],
)
def test_an_advance_ends_with_ticks(total_ms: int, steps: list[int]) -> None:
    assert list(steps_of(total_ms)) == steps
