"""A partition of a FIFO queue. Numbers in docstrings: docs/queue-statements.md."""

import pytest

from tests.queue_layer.counting_links import CountingLinks
from tests.queue_layer.driver import SECOND, START_MS, TARGET, Driver
from tests.queue_layer.fifo_driver import FIFO, fifo, send
from tidelog.queue_layer.ordering.delivery_order import RecordFields
from tidelog.queue_layer.ordering.fifo_order import FifoOrder
from tidelog.wire.config.queue_config import QueueConfig
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages.queue_journal import decode
from tidelog.wire.messages.queues import (
    MessageState,
    PartitionReceived,
    SettleAction,
)

FIFO_WITH_DEAD_LETTERS = QueueConfig(is_fifo=True, max_receive_count=1, dead_letter_target=TARGET)


def refusals(driver: Driver, received: PartitionReceived, action: SettleAction) -> list[ErrorCode]:
    settled = driver.settle(received, action, delay_ms=SECOND)
    return [ErrorCode(refused.error.code) for refused in settled.refused]


@pytest.mark.statement("b20")
def test_extending_the_first_lease_blocks_the_group() -> None:
    """Statement 20."""
    driver = fifo("aaa")
    received = driver.take(2)
    driver.wait(29 * SECOND)

    driver.settle(received, SettleAction.EXTEND, 0, delay_ms=60 * SECOND)
    driver.wait(2 * SECOND)

    assert driver.offsets() == []
    assert driver.counts() == {"visible": 2, "in_flight": 1}


@pytest.mark.statement("b20")
def test_extending_the_second_lease_leaves_the_first_message_visible() -> None:
    """Statement 20."""
    driver = fifo("aaa")
    received = driver.take(2)

    driver.settle(received, SettleAction.EXTEND, 1, delay_ms=60 * SECOND)
    driver.wait(30 * SECOND)

    assert driver.offsets() == [0]


@pytest.mark.statement("b20")
def test_extending_the_third_lease_leaves_the_first_two_messages_visible() -> None:
    """Statement 20."""
    driver = fifo("aaaa")
    received = driver.take(3)

    driver.settle(received, SettleAction.EXTEND, 2, delay_ms=60 * SECOND)
    driver.wait(30 * SECOND)

    assert driver.offsets() == [0, 1]


@pytest.mark.statement("b21")
def test_a_released_message_is_redelivered_while_the_next_is_in_flight() -> None:
    """Statement 21."""
    driver = fifo("aaa")
    received = driver.take(2)

    driver.settle(received, SettleAction.RELEASE, 0)

    assert driver.offsets() == [0]


@pytest.mark.statement("b22", "b23")
def test_a_group_is_unblocked_when_all_its_in_flight_messages_are_deleted() -> None:
    """Statements 22 and 23."""
    driver = fifo("aaa")
    received = driver.take(2)

    driver.delete(received, 0)
    assert driver.offsets() == []
    driver.delete(received, 1)

    assert driver.offsets() == [2]


@pytest.mark.statement("b24")
def test_a_send_to_a_blocked_group_does_not_unblock_it() -> None:
    """Statement 24."""
    driver = fifo("a")
    driver.take(1)
    send(driver, "a")

    assert driver.offsets() == []


@pytest.mark.statement("b25")
def test_a_receive_fills_up_from_further_groups() -> None:
    """Statement 25: one reply, with the messages of each group in order."""
    driver = fifo("abaab")

    assert driver.offsets(4) == [0, 1, 2, 3]
    assert driver.offsets(4) == []


@pytest.mark.statement("b26")
def test_after_expired_leases_a_group_is_redelivered_in_order() -> None:
    """Statement 26."""
    driver = fifo("aaaa")
    driver.take(3)
    driver.wait(30 * SECOND)

    assert driver.offsets(2) == [0, 1]


@pytest.mark.statement("b27")
def test_groups_take_turns_even_with_visibility_timeout_0() -> None:
    """Statement 27."""
    driver = fifo("112233")

    shown = [driver.offsets(2, timeout_ms=0) for _ in range(4)]

    assert shown == [[0, 1], [2, 3], [4, 5], [0, 1]]


@pytest.mark.statement("b28")
def test_a_receipt_after_its_lease_settles_nothing_in_a_fifo_queue() -> None:
    """Statement 28."""
    driver = fifo("a")
    received = driver.take()
    driver.wait(30 * SECOND)

    for action in SettleAction:
        assert refusals(driver, received, action) == [ErrorCode.RECEIPT_EXPIRED]
    assert driver.offsets() == [0]


@pytest.mark.statement("b28")
def test_a_receipt_with_an_extended_lease_settles_past_the_first_deadline() -> None:
    """Statement 28."""
    driver = fifo("ab")
    received = driver.take(1)
    driver.settle(received, SettleAction.EXTEND, delay_ms=60 * SECOND)
    driver.wait(59 * SECOND)

    assert driver.delete(received).refused == []
    assert driver.offsets() == [1]


@pytest.mark.statement("b28")
def test_only_the_last_receipt_of_a_message_settles_it() -> None:
    """Statements 8, 10 and 28: FIFO queues always fence."""
    driver = fifo("a")
    old = driver.take()
    driver.wait(30 * SECOND)
    new = driver.take()

    assert refusals(driver, old, SettleAction.DELETE) == [ErrorCode.RECEIPT_EXPIRED]
    assert driver.delete(new).refused == []


@pytest.mark.statement("b29")
def test_an_emptied_group_works_again() -> None:
    """Statement 29."""
    driver = fifo("a")
    driver.delete(driver.take())
    send(driver, "ab")

    assert driver.offsets() == [1, 2]


@pytest.mark.statement("b30")
def test_a_dead_letter_at_the_head_does_not_block_its_group() -> None:
    """Statement 30: as soon as its last delivery is released."""
    driver = fifo("aa", FIFO_WITH_DEAD_LETTERS)
    driver.settle(driver.take(1), SettleAction.RELEASE)

    assert driver.offsets() == [1]
    assert driver.counts() == {"in_flight": 1, "dead": 1}


@pytest.mark.statement("b30")
def test_a_moved_head_does_not_block_its_group() -> None:
    """Statement 30."""
    driver = fifo("aa", FIFO_WITH_DEAD_LETTERS)
    driver.settle(driver.take(1), SettleAction.REJECT)
    batch = driver.queue.state.moves.next_batch(TARGET)
    assert batch is not None
    driver.do(driver.queue.moved(batch, 1, now_ms=driver.now_ms))

    assert driver.offsets() == [1]
    send(driver, "a")
    assert driver.offsets() == []


@pytest.mark.statement("b30")
def test_a_dead_letter_that_cannot_be_moved_returns_to_its_place() -> None:
    driver = fifo("aa", FIFO_WITH_DEAD_LETTERS)
    driver.settle(driver.take(1), SettleAction.REJECT)
    batch = driver.queue.state.moves.next_batch(TARGET)
    assert batch is not None
    driver.config = FIFO
    driver.fail_over()

    driver.do(driver.queue.move_failed(batch, 1, "no such topic", now_ms=driver.now_ms))

    assert driver.offsets() == [0, 1]


@pytest.mark.statement("b31")
def test_a_blocked_group_blocks_no_other_group() -> None:
    """Statement 31."""
    driver = fifo("aabb")
    first = driver.take(2)
    driver.take(2)
    driver.settle(first, SettleAction.EXTEND, delay_ms=90 * SECOND)
    driver.wait(30 * SECOND)

    assert driver.offsets() == [2, 3]


@pytest.mark.statement("b32")
def test_messages_behind_an_in_flight_one_count_as_visible() -> None:
    """Statement 32: three groups of two messages, two messages leased."""
    driver = fifo("aabbcc")
    driver.take(1)
    driver.take(1)

    assert driver.counts() == {"visible": 4, "in_flight": 2}


@pytest.mark.statement("b33")
def test_delivery_delay_of_a_fifo_queue_blocks_later_messages_of_the_group() -> None:
    """Statement 33."""
    driver = fifo()
    send(driver, "a", deliver_at_ms=START_MS + 5 * SECOND)
    send(driver, "b")

    assert driver.offsets() == [1]
    driver.wait(5 * SECOND)
    assert driver.offsets() == [0]


@pytest.mark.statement("b37")
def test_a_long_backlog_of_one_group_starves_no_other_group() -> None:
    """Statement 37: for any start of the other group."""
    driver = fifo("a" * 5_000 + "b")
    driver.take(1)

    assert driver.offsets() == [5_000]


def test_leases_blocked_groups_and_turns_survive_a_failover() -> None:
    """Statements 73 to 75."""
    driver = fifo("aabbc")
    received = driver.take(1)
    driver.fail_over()

    assert driver.counts() == {"visible": 4, "in_flight": 1}
    assert driver.offsets() == [2, 3, 4]
    assert driver.delete(received).refused == []
    assert driver.offsets() == [1]


def test_after_a_failover_messages_are_served_while_the_log_is_still_being_read() -> None:
    driver = fifo("aab")
    send(driver, "ab")
    received = driver.take()
    driver.delete(received, 0)
    driver.settle(received, SettleAction.RELEASE, 2, 4)
    queue = driver.queue = driver.new_queue()
    for data in driver.journal:
        queue.state.apply(decode(data))
    queue.start(driver.now_ms)
    fields = [RecordFields(group=b"a"), RecordFields(group=b"b")]

    queue.state.on_records(1, 3, fields)

    is_ready = [queue.state.is_ready]
    assert driver.offsets() == [2]
    assert driver.delete(received, 1).refused == []
    driver.tell_again()
    is_ready.append(queue.state.is_ready)
    assert is_ready == [False, True]
    assert driver.offsets() == []
    assert driver.delete(received, 3).refused == []
    assert driver.counts() == {"in_flight": 1, "visible": 1}


def test_a_purged_queue_is_empty_and_its_groups_work_again() -> None:
    """Statement 70."""
    driver = fifo("aabb")
    received = driver.take(1)
    assert driver.purge() == 4
    driver.tell_again()
    send(driver, "ab")
    driver.wait(30 * SECOND)

    assert driver.counts() == {"visible": 2}
    assert driver.delete(received).refused == []
    assert driver.offsets() == [4, 5]


def test_groups_continue_after_messages_deleted_by_retention() -> None:
    """Statement 13."""
    driver = fifo("aabbaab")
    driver.take(1)
    driver.do(driver.queue.trim(5, now_ms=driver.now_ms))

    assert driver.offsets() == [5, 6]


@pytest.mark.parametrize("action", [SettleAction.RELEASE, SettleAction.RETURN])
def test_a_delayed_release_blocks_the_group_and_an_immediate_one_does_not(
    action: SettleAction,
) -> None:
    driver = fifo("aa")
    received = driver.take(1)
    driver.settle(received, action, delay_ms=SECOND if action is SettleAction.RELEASE else None)

    assert driver.offsets() == ([] if action is SettleAction.RELEASE else [0, 1])
    driver.wait(SECOND)
    assert driver.offsets() == ([0, 1] if action is SettleAction.RELEASE else [])


def test_a_purge_reads_no_links() -> None:
    """For any length of the backlog."""
    links: list[CountingLinks] = []

    def make_order(start: int) -> FifoOrder:
        links.append(CountingLinks())
        return FifoOrder(start, links[-1])

    driver = Driver(FIFO, make_order=make_order)
    send(driver, "a" * 1000)
    before = sum(each.count for each in links)

    driver.purge()

    assert sum(each.count for each in links) == before
    assert driver.queue.state.records_from == 1000


def test_a_peek_returns_blocked_messages() -> None:
    driver = fifo("abaab")
    driver.settle(driver.take(4), SettleAction.RELEASE, 0)

    seen, next_offset = driver.queue.peek([MessageState.VISIBLE, MessageState.BLOCKED], 0, 10)

    assert [(run.first_offset, run.count, run.state) for run in seen] == [
        (0, 1, MessageState.VISIBLE),
        (4, 1, MessageState.BLOCKED),
    ]
    assert next_offset is None


def test_a_peek_of_a_page_costs_only_that_page() -> None:
    """For any length of the backlog: it is not searched to its end."""
    links = CountingLinks()
    driver = Driver(FIFO, make_order=lambda start: FifoOrder(start, links))
    send(driver, "ab" * 10_000)
    before = links.count

    seen, next_offset = driver.queue.peek([], 0, 10)

    assert [run.count for run in seen] == [10]
    assert next_offset == 10
    assert links.count - before <= 1_000


def test_a_peek_without_matches_continues_page_by_page() -> None:
    driver = fifo("a" * 150_000)

    assert driver.queue.peek([MessageState.BLOCKED], 0, 10) == ([], 100_000)
    assert driver.queue.peek([MessageState.BLOCKED], 100_000, 10) == ([], None)


def test_the_rank_of_a_message_is_the_turn_of_its_group() -> None:
    driver = fifo("abcab")
    driver.settle(driver.take(2), SettleAction.RELEASE, 0, 3, delay_ms=0)

    received = driver.take(5)

    runs = [(run.first_offset, run.count, run.rank) for run in received.runs]
    assert runs == [(0, 1, 2), (1, 1, 0), (2, 1, 1), (3, 1, 2), (4, 1, 0)]
