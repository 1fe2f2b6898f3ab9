"""Each queue has the order that its settings ask for."""

import pytest

from queue_layer.config import QueueConfig
from queue_layer.fairness import FairOrder
from queue_layer.groups import GroupOrder
from queue_layer.lanes import LaneOrder
from queue_layer.orders import order_for
from queue_layer.standard_order import StandardOrder


@pytest.mark.parametrize(
    ("config", "order"),
    [
        (QueueConfig(), StandardOrder),
        (QueueConfig(lanes=(3, 1)), LaneOrder),
        (QueueConfig(has_fairness=True), FairOrder),
        (QueueConfig(is_fifo=True), GroupOrder),
    ],
)
def test_the_order_follows_from_the_settings(config: QueueConfig, order: type) -> None:
    assert isinstance(order_for(config)(0), order)
