"""Metrics of groups while leaders answer slowly: pages do not wait long, and answers are kept."""

from collections.abc import Sequence

import trio
from trio.testing import MockClock

from tidelog.broker.collectors.group_collector import GroupCollector
from tidelog.coordinator.group_coordinator.admin import GroupLags
from tidelog.wire.metrics.metric import Family


class SlowAdministration:
    """Groups whose progress takes long."""

    def __init__(self, *, seconds: float, partition_count: int) -> None:
        self.asked_count = partition_count
        self.call_count = 0
        self._seconds = seconds

    async def progress(self) -> list[GroupLags]:
        """Return the progress of one group."""
        self.call_count += 1
        await trio.sleep(self._seconds)
        return [GroupLags("readers", 1, self.call_count, {}, has_settings=False)]


def members(families: Sequence[Family]) -> list[float]:
    return [
        value
        for each in families
        if each.metric.name == "tidelog_group_members"
        for _, value in each.samples
        if not isinstance(value, tuple)
    ]


async def test_slow_answers_are_shown_at_the_next_reading(autojump_clock: MockClock) -> None:
    del autojump_clock
    async with trio.open_nursery() as nursery:
        administration = SlowAdministration(seconds=8, partition_count=5_000)
        groups = GroupCollector(
            administration,
            nursery,
            is_controller=lambda: True,
            topic_name=lambda _: None,
        )
        began_at = trio.current_time()
        first = members(await groups.families())
        waited_s = trio.current_time() - began_at
        await trio.sleep(10)
        second = members(await groups.families())
        await trio.sleep(5)
        third = members(await groups.families())

    assert (first, second, third) == ([], [1], [1])
    assert waited_s <= 5
    assert administration.call_count == 2


async def test_readers_at_the_same_time_ask_once(autojump_clock: MockClock) -> None:
    del autojump_clock
    found: list[list[float]] = []
    async with trio.open_nursery() as nursery:
        administration = SlowAdministration(seconds=3, partition_count=10)
        groups = GroupCollector(
            administration, nursery, is_controller=lambda: True, topic_name=lambda _: None
        )

        async def read() -> None:
            found.append(members(await groups.families()))

        async with trio.open_nursery() as readers:
            for _ in range(3):
                readers.start_soon(read)
        took_s = trio.current_time()

    assert found == [[1]] * 3
    assert administration.call_count == 1
    assert took_s <= 5
