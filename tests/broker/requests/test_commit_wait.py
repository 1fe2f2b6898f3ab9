"""Tests of waiting for decisions."""

import pytest
import trio

from tidelog.broker.requests.commit_wait import Commit
from tidelog.wire.errors import NotLeaderError
from tidelog.wire.messages.produce import AckLevel


async def test_who_waits_is_told_when_it_is_committed() -> None:
    commit = Commit()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(commit.wait)

        commit.acknowledged(0, AckLevel.DURABLE)


async def test_who_waits_is_told_that_nobody_knows() -> None:
    commit = Commit()

    commit.failed(0, NotLeaderError("another broker leads now"))

    with pytest.raises(NotLeaderError):
        await commit.wait()
