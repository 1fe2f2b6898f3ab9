"""Cost of operations: independent of the number of waiting messages.

Counted are calls of functions, those of C too: the same on every machine.
"""

import sys
import tracemalloc
from collections.abc import Callable
from functools import partial
from types import FrameType

import pytest

from tests.queue_layer.driver import KEY, QUEUE_ID, SECOND, START_MS, Driver
from tidelog.queue_layer.ordering.delivery_order import RecordFields
from tidelog.queue_layer.queue_partition import QueuePartition
from tidelog.queue_layer.receipts import Receipts
from tidelog.wire.config.queue_config import QueueConfig
from tidelog.wire.messages.queue_journal import JournalFrame, Seeked
from tidelog.wire.messages.queues import SettleAction

FEW, MANY = 100, 1_000_000
RECEIPTS = Receipts(queue_id=QUEUE_ID, partition=7, key=KEY)


def calls_of(work: Callable[[], object]) -> int:
    """Return the number of function calls of some work."""
    count = 0

    def note(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count


def work_on(driver: Driver) -> None:
    """Receive, extend, release and delete messages, let time pass, and count."""
    for _ in range(20):
        received = driver.take(5)
        first = received.runs[0].first_offset
        driver.settle(received, SettleAction.EXTEND, delay_ms=SECOND)
        driver.settle(received, SettleAction.RELEASE, first, delay_ms=0)
        driver.delete(received)
        driver.take(1, timeout_ms=1)
        driver.wait(5)
        driver.came(5)
        driver.counts()


def cost(driver: Driver, rounds: int = 3) -> float:
    work_on(driver)
    return sum(calls_of(lambda: work_on(driver)) for _ in range(rounds)) / rounds


def test_a_backlog_of_a_million_costs_as_much_as_one_of_a_hundred() -> None:
    few, many = cost(Driver(records=FEW)), cost(Driver(records=MANY))

    assert many <= 1.05 * few


def test_a_million_delayed_messages_cost_as_much_as_a_hundred() -> None:
    drivers = [Driver(records=FEW), Driver(records=FEW)]
    for driver, count in zip(drivers, (FEW, MANY), strict=True):
        driver.came(count, deliver_at_ms=START_MS + 3600 * SECOND)
        driver.came(1000)

    few, many = map(cost, drivers)

    assert many <= 1.05 * few


@pytest.mark.statement("b86")
@pytest.mark.parametrize("state", ["in_flight", "returned", "deleted"])
def test_many_runs_cost_little_more_than_few(state: str) -> None:
    """Only the search for a place among them grows."""
    costs: list[float] = []
    for count in (FEW, 100 * FEW):
        driver = Driver(records=2 * count + 1000)
        for _ in range(0, 2 * count, 100):
            received = driver.take(100)
            odd = range(received.runs[0].first_offset + 1, received.runs[0].first_offset + 100, 2)
            driver.delete(received, *odd)
            if state == "deleted":
                driver.delete(received)
            elif state == "in_flight":
                driver.settle(received, SettleAction.EXTEND, *(o - 1 for o in odd), delay_ms=10**7)
        driver.wait(31 * SECOND)
        costs.append(cost(driver))

    few, many = costs
    assert many <= 1.3 * few


def test_an_idle_queue_takes_few_bytes() -> None:
    config = QueueConfig()
    Driver(config, records=1000)
    tracemalloc.start()
    try:
        idle = [QueuePartition(config, RECEIPTS) for _ in range(100)]
        for queue in idle:
            queue.state.apply(JournalFrame(START_MS, [Seeked(0)]))
            queue.start(START_MS)
            queue.state.on_records(0, 1000)
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert size / len(idle) < 3_000


def test_a_stretch_of_records_costs_the_same_however_long_it_is() -> None:
    short, long = Driver(), Driver()

    assert calls_of(lambda: long.came(MANY)) == calls_of(lambda: short.came(1))


def test_a_receive_costs_the_same_however_many_messages_it_has() -> None:
    few, many = Driver(records=MANY), Driver(records=MANY)

    assert calls_of(lambda: many.take(1000)) == calls_of(lambda: few.take(1))


def test_fields_of_a_record_cost_only_that_record() -> None:
    """A thousand records of which a tenth is delayed do not need a thousand ranges."""
    driver = Driver(QueueConfig())
    later = RecordFields(deliver_at_ms=START_MS + SECOND)
    fields = [later if place % 10 == 0 else RecordFields() for place in range(1000)]

    assert calls_of(lambda: driver.came(1000, fields=fields)) < 100 * 60


@pytest.mark.statement("b86")
def test_leases_that_end_together_cost_little_each_and_once() -> None:
    """Statement 86: the leases are separate, and all end in the same millisecond."""
    costs: list[int] = []
    for count in (FEW, 100 * FEW):
        driver = Driver(records=2 * count)
        for _ in range(count):
            driver.take(1, timeout_ms=30 * SECOND)
        kept = [driver.take(1, timeout_ms=60 * SECOND) for _ in range(2)]
        journal = len(driver.journal)
        driver.now_ms += 30 * SECOND

        at_once = calls_of(partial(driver.delete, kept[0]))
        costs.append(calls_of(partial(driver.delete, kept[1])) + calls_of(driver.offsets))

        assert at_once < 60 * count + 1000
        assert len(driver.journal) == journal + 3, "that a lease ended is not written"
    few, many = costs
    assert many <= 1.3 * few
