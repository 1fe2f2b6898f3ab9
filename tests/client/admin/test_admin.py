"""Administration through the client, carried out by a real broker."""

from collections.abc import Awaitable, Callable

import pytest
from trio.testing import MockClock

from tests.broker.world import World
from tests.client.worlds import client_of
from tidelog.client.admin.admin import Admin
from tidelog.wire.errors import (
    InvalidConfigError,
    InvalidTopicError,
    TopicExistsError,
    UnknownPartitionError,
    UnknownTopicError,
)

Call = Callable[[Admin], Awaitable[object]]

REFUSED: list[tuple[Call, type[Exception]]] = [
    (lambda admin: admin.create_topic("taken"), TopicExistsError),
    (lambda admin: admin.create_topic("a/b"), InvalidTopicError),
    (lambda admin: admin.create_topic("more", 0), InvalidTopicError),
    (lambda admin: admin.create_topic("more", colour="red"), InvalidConfigError),
    (lambda admin: admin.alter_topic("nope", set={}), UnknownTopicError),
    (lambda admin: admin.alter_topic("taken", set={"retention_ms": "soon"}), InvalidConfigError),
    (lambda admin: admin.delete_topic("nope"), UnknownTopicError),
    (lambda admin: admin.delete_records("taken", 1, 0), UnknownPartitionError),
]


@pytest.mark.parametrize(("call", "error"), REFUSED)
async def test_what_is_refused_raises_what_the_broker_said(
    autojump_clock: MockClock, call: Call, error: type[Exception]
) -> None:
    world = World(autojump_clock)
    async with client_of(world) as client:
        await client.admin.create_topic("taken")

        with pytest.raises(error):
            await call(client.admin)
