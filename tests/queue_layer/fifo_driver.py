"""Driver of FIFO queues with messages of groups, each group by one letter."""

from tests.queue_layer.driver import Driver, offsets_of
from tidelog.queue_layer.ordering.delivery_order import RecordFields
from tidelog.queue_layer.ordering.fifo_order import FifoOrder
from tidelog.wire.config.queue_config import QueueConfig
from tidelog.wire.messages.queues import PartitionReceived

FIFO = QueueConfig(is_fifo=True)


def fifo(groups: str = "", config: QueueConfig = FIFO) -> Driver:
    """Return a queue with one message of each of these groups."""
    driver = Driver(config, make_order=FifoOrder)
    if groups:
        send(driver, groups)
    return driver


def send(driver: Driver, groups: str, *, deliver_at_ms: int = 0) -> None:
    driver.came(
        len(groups), fields=[RecordFields(deliver_at_ms, group=name.encode()) for name in groups]
    )


def offsets(received: PartitionReceived) -> list[int]:
    return offsets_of([(run.first_offset, run.count) for run in received.runs])
