"""Choice of the delivery order, and turns of sources."""

import pytest

from tidelog.queue_layer.ordering.delivery_order import take_turns
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
def test_the_settings_choose_the_delivery_order(config: QueueConfig, order: type) -> None:
    assert isinstance(order_for(config)(0), order)


def test_each_source_yields_its_share_and_then_the_rest() -> None:
    one, other = iter([(0, 10, 0)]), iter([(20, 21, 1), (30, 40, 1)])

    assert list(take_turns([(one, 3), (other, 4)])) == [
        (0, 3, 0),
        (20, 21, 1),
        (30, 33, 1),
        (3, 10, 0),
        (33, 40, 1),
    ]


def test_a_source_without_a_share_comes_last() -> None:
    last, only = iter([(0, 2, 1)]), iter([(5, 6, 0)])

    assert list(take_turns([(last, 0), (only, 3)])) == [(5, 6, 0), (0, 2, 1)]


def test_a_source_is_not_read_further_than_needed() -> None:
    source = iter([(0, 2, 0), (5, 6, 0)])

    assert next(take_turns([(source, 2)])) == (0, 2, 0)
    assert next(source) == (5, 6, 0)
