"""Choice of the delivery order of a queue.

Pure: no clock, no I/O.
"""

from tidelog.queue_layer.ordering.delivery_order import MakeOrder
from tidelog.queue_layer.ordering.fair_order import FairOrder
from tidelog.queue_layer.ordering.fifo_order import FifoOrder
from tidelog.queue_layer.ordering.priority_order import priority_order
from tidelog.queue_layer.ordering.standard_order import StandardOrder
from tidelog.wire.config.queue_config import PriorityDelivery, QueueConfig


def order_for(config: QueueConfig) -> MakeOrder:
    """Return the factory of delivery orders for these settings."""
    if config.is_fifo:
        return FifoOrder
    if config.priority_weights:
        return priority_order(
            config.priority_weights,
            is_strict=config.priority_delivery is PriorityDelivery.STRICT,
            default=config.default_priority,
        )
    return FairOrder if config.fair_delivery else StandardOrder
