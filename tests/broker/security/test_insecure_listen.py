"""The warning of a broker that is open to other machines."""

import pytest
from trio.testing import MockClock

from tests.broker.world import World


async def test_a_broker_that_is_open_warns_at_its_start_and_each_hour(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker(insecure_listen="on"):
        assert len(world.told("insecure_listen")) == 1
        await world.pass_time(3_599)
        assert len(world.told("insecure_listen")) == 1
        await world.pass_time(2)

    warnings = world.told("insecure_listen")
    assert [(each["severity"], each["listen"]) for each in warnings] == [
        ("warning", "broker:8433")
    ] * 2


@pytest.mark.parametrize("settings", [{}, {"insecure_listen": "on", "listen": "127.0.0.1:8433"}])
async def test_a_broker_that_is_not_open_on_request_does_not_warn(
    settings: dict[str, str], mock_clock: MockClock
) -> None:
    world = World(mock_clock)
    async with world.broker(**settings):
        await world.pass_time(7_200)

    assert world.told("insecure_listen") == []
