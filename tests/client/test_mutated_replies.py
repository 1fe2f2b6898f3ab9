"""Brokers that mutate their replies: no client has a defect, hangs, or asks without a pause."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from random import Random

import pytest
import trio
from trio.testing import MockClock

from tests.client.hostile_broker import ALL, Answer, deceived_client
from tests.fuzz.hostile_broker import CALLS
from tests.fuzz.inputs import Inputs, Targets
from tidelog.client.client import Client
from tidelog.coordinator.raft.membership import Identity
from tidelog.wire.errors import TidelogError
from tidelog.wire.protocol.connection import Request

LIVES = 4
"""Brokers for each call, each with another share of honest replies."""
TARGETS = Targets(Identity(1, b"a"), [Identity(2, b"b")])
RATE_MAX = 20
"""Requests of one API in a second; each call may send 40 more at once."""


def mutating(honest: Answer | None, inputs: Inputs, random: Random, *, share: float) -> Answer:
    """Return an answer that is honest in a share of the cases, if it can be."""

    def answer(request: Request) -> bytes | None:
        if honest is not None and random.random() < share:
            return honest(request)
        return inputs.reply_to(request.api_key, request.version, request.correlation_id)

    return answer


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("seed", range(LIVES))
async def test_a_client_of_a_broker_that_mutates_replies_ends_with_an_error_and_few_requests(
    autojump_clock: MockClock, call: Callable[[Client], Awaitable[None]], seed: int
) -> None:
    random = Random(f"{seed} {call.__name__}")
    inputs = Inputs(random, TARGETS)
    share = random.choice((0.3, 0.6, 0.9))
    async with deceived_client(autojump_clock) as (client, broker, _):
        for served in ALL:
            honest = broker.answers.get(served)
            broker.answer(served, mutating(honest, inputs, random, share=share))
        began = trio.current_time()
        for _ in range(3):
            with suppress(TidelogError):
                await call(client)
        seconds = trio.current_time() - began
        assert max(map(broker.count, ALL)) <= 40 + RATE_MAX * seconds
