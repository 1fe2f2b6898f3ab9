"""Each queue has the order that its settings ask for."""

import pytest

from tidelog.queue_layer.ordering.factory import order_for
from tidelog.queue_layer.ordering.fair_order import FairOrder
from tidelog.queue_layer.ordering.fifo_order import FifoOrder
from tidelog.queue_layer.ordering.priority_order import PriorityOrder
from tidelog.queue_layer.ordering.standard_order import StandardOrder
from tidelog.wire.config.queue_config import QueueConfig


@pytest.mark.parametrize(
    ("config", "order"),
    [
        (QueueConfig(), StandardOrder),
        (QueueConfig(priority_weights=(3, 1)), PriorityOrder),
        (QueueConfig(fair_delivery=True), FairOrder),
        (QueueConfig(is_fifo=True), FifoOrder),
    ],
)
def test_the_order_follows_from_the_settings(config: QueueConfig, order: type) -> None:
    assert isinstance(order_for(config)(0), order)
