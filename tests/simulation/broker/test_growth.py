"""Tests of a topic's growth: requested and observed partition counts, and their listeners."""

import pytest
from trio.testing import MockClock

from tests.broker.world import World
from tests.simulation.broker.partition_growth import PARTITIONS_MAX, Growth
from tests.simulation.broker.partition_numbers import PartitionNumbers
from tests.simulation.broker.sometimes import Sometimes
from tests.simulation.machine.broker_host import TOPIC
from tidelog.client.client import connect


class Promise:
    """Records its calls."""

    def __init__(self) -> None:
        self.told: list[tuple[str, int]] = []

    def growing(self, count: int) -> None:
        self.told.append(("growing", count))

    def seen(self, count: int, asked_at: float) -> None:
        del asked_at
        self.told.append(("seen", count))


@pytest.mark.parametrize(("dice", "count"), [(0.1, 4), (0.9, 3)])
async def test_growth_adds_one_or_two_partitions_and_calls_listeners(
    autojump_clock: MockClock, dice: float, count: int
) -> None:
    world = World(autojump_clock)
    promise, heard = Promise(), list[int]()
    growth = Growth(2, promise, Sometimes())
    growth.listeners.append(heard.append)
    async with world.broker(), connect("broker:8433", env=world.env) as client:
        await client.admin.create_topic(TOPIC, 2)

        await growth.add(client.admin, dice)

        (topic,) = await client.admin.describe_topics([TOPIC])
    assert len(topic.partitions) == growth.count == count
    assert heard == [count]
    assert promise.told == [("growing", 2), ("growing", count), ("seen", count)]


async def test_growth_stops_at_the_maximum_partition_count(autojump_clock: MockClock) -> None:
    world = World(autojump_clock)
    growth = Growth(PARTITIONS_MAX, Promise(), Sometimes())
    async with world.broker(), connect("broker:8433", env=world.env) as client:
        await client.admin.create_topic(TOPIC, PARTITIONS_MAX)

        await growth.add(client.admin, 0.1)

        (topic,) = await client.admin.describe_topics([TOPIC])
    assert len(topic.partitions) == growth.count == PARTITIONS_MAX


def test_an_observed_partition_count_reaches_listeners() -> None:
    heard = list[int]()
    growth = Growth(2, Promise(), Sometimes())
    growth.listeners.append(heard.append)

    for count in (2, 4, 3):
        growth.seen(count, 0.0)

    assert heard == [4]
    assert growth.count == 4


ONE, OTHER = bytes(16), bytes(15) + b"\x01"


def test_partitions_of_topics_of_one_name_have_different_numbers() -> None:
    numbers = PartitionNumbers()
    directories = [
        f"topics/flights.{topic_id.hex()}/{n}" for topic_id in (ONE, OTHER) for n in (0, 1)
    ]

    assert [numbers.of_directory(path) for path in directories] == [0, 1, 1000, 1001]
    assert (numbers.first(ONE), numbers.first(OTHER)) == (0, 1000)


def test_a_directory_without_a_log_has_no_partition_number() -> None:
    assert PartitionNumbers().of_directory("metadata") is None
    assert PartitionNumbers().of_directory(f"topics/flights.{ONE.hex()}") is None
