"""Tests that every API has its handler."""

from trio.testing import MockClock

from tests.broker.world import World
from tidelog.broker.client_apis import APIS
from tidelog.wire.protocol.api import ApiKey


async def test_every_api_that_is_offered_is_served(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        assert client.hello is not None
        offered = {each.api_key: each for each in client.hello.apis}

        assert set(offered) == set(ApiKey)
        spoken = {served.key: (served.min_version, served.max_version) for served in APIS}
        assert spoken == {
            key: (each.min_version, each.max_version) for key, each in offered.items()
        }
