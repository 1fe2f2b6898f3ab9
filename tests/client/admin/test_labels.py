"""Labels and brokers of versions that do not know them."""

from collections.abc import Awaitable, Callable, Sequence

import pytest
import trio
from msgspec.structs import replace
from trio.testing import MockClock

from tests.client.hostile_broker import HELLO, always, deceived_client
from tidelog.client.admin.admin import Admin
from tidelog.wire.errors import UnsupportedVersionError
from tidelog.wire.messages.handshake import ApiVersions
from tidelog.wire.protocol import api

Call = Callable[[Admin], Awaitable[object]]
LABELS = {"team": "billing"}


CALLS: Sequence[Call] = (
    lambda admin: admin.create_topic("t", labels=LABELS),
    lambda admin: admin.alter_topic("t", set_labels=LABELS),
    lambda admin: admin.alter_topic("t", remove_labels=["team"]),
    lambda admin: admin.alter_queue("q", set_labels=LABELS),
)


@pytest.mark.parametrize("call", CALLS)
async def test_a_broker_that_would_drop_labels_is_not_asked(
    autojump_clock: MockClock, call: Call
) -> None:
    async with deceived_client(autojump_clock) as (client, broker, _):
        older = [ApiVersions(each.key, each.min_version, 1) for each in api.APIS]
        broker.answer(api.HELLO, always(replace(HELLO, apis=older)))
        broker.break_connections()
        await trio.sleep(0.1)  # A client whose callers received notices it after 50 ms.

        with pytest.raises(UnsupportedVersionError, match="up to version 1, and the request needs"):
            await call(client.admin)
        for asked in (api.CREATE_TOPIC, api.ALTER_TOPIC, api.ALTER_QUEUE):
            assert not broker.count(asked)
