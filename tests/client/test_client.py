"""Connecting, and arguments that are refused before any request."""

import pytest
import trio
from trio.testing import MockClock

import tidelog
from tests.broker.world import World
from tests.client.clients import client_of
from tidelog.client.client import connect
from tidelog.client.config import ConsumerConfig, ProducerConfig
from tidelog.wire.errors import ConfigError, ConnectError


async def test_an_unreachable_address_raises_one_line_with_advice() -> None:
    with pytest.raises(ConnectError) as caught:
        async with connect("127.0.0.1:1"):
            raise AssertionError("connected without a broker")

    assert "127.0.0.1:1" in str(caught.value)
    assert "tidelog serve" in str(caught.value)
    assert "\n" not in str(caught.value)


async def test_one_broker_that_answers_is_enough(autojump_clock: MockClock) -> None:
    world = World(autojump_clock)
    async with world.broker(), connect("unknown:1,broker:8433", env=world.env) as client:
        assert await client.admin.list_topics() == []


async def test_an_exception_of_the_block_is_raised_unchanged(autojump_clock: MockClock) -> None:
    world = World(autojump_clock)
    with pytest.raises(KeyError, match="mine"):
        async with client_of(world):
            raise KeyError("mine")


async def test_a_cancelled_block_ends(autojump_clock: MockClock) -> None:
    world = World(autojump_clock)
    with trio.move_on_after(1) as scope:
        async with client_of(world):
            await trio.sleep_forever()

    assert scope.cancelled_caught


@pytest.mark.parametrize("addresses", ["", "a:b:c", "http://x"])
async def test_an_illegal_address_is_refused(addresses: str) -> None:
    with pytest.raises(ConfigError):
        async with connect(addresses):
            raise AssertionError("connected without a broker")


async def test_group_id_excludes_partitions(autojump_clock: MockClock) -> None:
    world = World(autojump_clock)
    async with client_of(world) as client:
        with pytest.raises(ConfigError, match="the group assigns partitions"):
            client.consumer("orders", group_id="billing", partitions=[0])


async def test_partitions_require_a_single_topic(autojump_clock: MockClock) -> None:
    world = World(autojump_clock)
    async with client_of(world) as client:
        with pytest.raises(ConfigError, match="for one topic"):
            client.consumer(["a", "b"], partitions=[0])


async def test_settings_come_as_keywords_or_as_an_object_but_not_both(
    autojump_clock: MockClock,
) -> None:
    world = World(autojump_clock)
    async with client_of(world) as client:
        assert client.producer(linger=0.5).config == ProducerConfig(linger=0.5)
        assert client.consumer(config=ConsumerConfig(fetch_min_bytes=7)).config.fetch_min_bytes == 7
        with pytest.raises(ConfigError, match="not both"):
            client.producer(ProducerConfig(), linger=0.5)


def test_the_package_exports_this_client() -> None:
    assert tidelog.connect is connect
