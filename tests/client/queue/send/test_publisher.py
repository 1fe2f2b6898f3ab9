"""Which messages a queue takes, by a real broker on virtual time."""

import pytest
from trio.testing import MockClock

from tests.client.queue_world import values, work_queue
from tidelog.client.queue.send.message_fields import OutgoingMessage
from tidelog.wire.errors import InvalidRequestError


async def test_a_queue_without_lanes_takes_no_priorities_and_nothing_is_sent(
    autojump_clock: MockClock,
) -> None:
    async with work_queue(autojump_clock) as (client, queue):
        with pytest.raises(InvalidRequestError, match="no priorities; it needs `lanes`"):
            await queue.send(b"urgent", priority=0)
        with pytest.raises(InvalidRequestError, match="no priorities"):
            await queue.send_batch([b"plain", OutgoingMessage(value=b"urgent", priority=0)])
        assert await queue.receive(wait=0) == []

        await client.admin.alter_queue("work", set={"lanes": "2,1"})

        await queue.send(b"later", priority=1)
        await queue.send(b"urgent", priority=0)
        assert values(await queue.receive()) == [b"later", b"urgent"]
