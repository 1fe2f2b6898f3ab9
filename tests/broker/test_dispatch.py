"""Tests of the way from a request to its handler."""

from typing import final

import pytest
from trio.testing import MockClock

from tests.broker.asking import batch_of, create_topic, produce, submit
from tests.broker.world import World
from tidelog.wire.errors import UnexpectedServerError
from tidelog.wire.messages.handshake import HelloRequest
from tidelog.wire.messages.metadata import MetadataRequest
from tidelog.wire.messages.produce import InitProducerRequest
from tidelog.wire.messages.topics import DescribeTopicsRequest
from tidelog.wire.protocol import api


async def test_a_slow_request_does_not_keep_those_behind_it(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        await create_topic(client)
        world.work.hold_work()
        slow = submit(client, api.INIT_PRODUCER, InitProducerRequest())

        await submit(client, api.METADATA, MetadataRequest(None)).reply()
        await submit(client, api.DESCRIBE_TOPICS, DescribeTopicsRequest(None)).reply()
        await submit(client, api.HELLO, HelloRequest("again", "0")).reply()

        assert not slow.is_answered
        world.work.let_all()
        assert (await slow.reply()).producer_id >= 1


async def test_a_defect_in_a_slow_request_is_answered_and_harms_nobody(
    mock_clock: MockClock, defects: list[str]
) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        topic = await create_topic(client)
        world.clock.defect = NoSuchLuckError()

        with pytest.raises(UnexpectedServerError, match="NoSuchLuckError"):
            await create_topic(client, "other")

        world.clock.defect = None
        assert "NoSuchLuckError" in defects.pop()
        await produce(client, topic, batch_of(b"a"))
        await create_topic(client, "other")


@final
class NoSuchLuckError(Exception):
    """A defect."""
