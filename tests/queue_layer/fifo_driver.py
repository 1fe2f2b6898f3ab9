"""FIFO queues to which messages of groups are sent, each group by one letter."""

from queue_layer.config import QueueConfig
from queue_layer.delivery_order import RecordFields
from queue_layer.groups import GroupOrder
from tests.queue_layer.driver import Driver, offsets_of
from wire.queues import PartitionReceived

FIFO = QueueConfig(is_fifo=True)


def fifo(groups: str = "", config: QueueConfig = FIFO) -> Driver:
    """Return a queue to which one message of each of these groups was sent."""
    driver = Driver(config, make_order=GroupOrder)
    if groups:
        send(driver, groups)
    return driver


def send(driver: Driver, groups: str, *, deliver_at_ms: int = 0) -> None:
    driver.came(
        len(groups), fields=[RecordFields(deliver_at_ms, group=name.encode()) for name in groups]
    )


def offsets(received: PartitionReceived) -> list[int]:
    return offsets_of([(run.first_offset, run.count) for run in received.runs])
