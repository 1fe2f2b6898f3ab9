"""Names of topics and queues, read in pages from a broker that a test plays."""

import pytest
from trio.testing import MockClock

from tests.client.hostile_broker import always, deceived_client, in_turn
from tidelog.wire.errors import WireFormatError
from tidelog.wire.messages.names import ListNamesReply
from tidelog.wire.protocol import api

FIRST = [f"q-{number:04d}" for number in range(1000)]


async def test_more_names_than_a_page_has_are_read_page_by_page(autojump_clock: MockClock) -> None:
    async with deceived_client(autojump_clock) as (client, broker, _):
        pages = (ListNamesReply(FIRST, True), ListNamesReply(["r"], False))
        broker.answer(api.LIST_QUEUES, in_turn(*map(always, pages)))

        assert await client.admin.list_queues() == [*FIRST, "r"]
        assert broker.count(api.LIST_QUEUES) == 2


@pytest.mark.parametrize("names", [["q-1"], []])
async def test_a_broker_that_repeats_a_page_is_refused(
    autojump_clock: MockClock, names: list[str]
) -> None:
    async with deceived_client(autojump_clock) as (client, broker, _):
        broker.answer(api.LIST_TOPICS, always(ListNamesReply(names, True)))

        with pytest.raises(WireFormatError, match="LIST_TOPICS: a page of names ends before 'q-1'"):
            await client.admin.list_topics(after="q-1")
