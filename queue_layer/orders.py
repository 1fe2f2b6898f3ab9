"""Which order of delivery a queue has.

Pure: no clock, no I/O.
"""

from queue_layer.config import QueueConfig
from queue_layer.delivery_order import MakeOrder
from queue_layer.fairness import FairOrder
from queue_layer.groups import GroupOrder
from queue_layer.lanes import lane_order
from queue_layer.standard_order import StandardOrder


def order_for(config: QueueConfig) -> MakeOrder:
    """Return what makes the order of a queue with these settings."""
    if config.is_fifo:
        return GroupOrder
    if config.lanes:
        return lane_order(config.lanes)
    return FairOrder if config.has_fairness else StandardOrder
