"""The composition of the SQS front: what a request leaves behind if its client needs no answer."""

from collections.abc import Callable
from pathlib import Path
from random import Random

import msgspec
import pytest
import trio

from tests.gateway.sqs.callers import open_caller
from tidelog.gateway.sqs.actions.queues import create_queue
from tidelog.gateway.sqs.actions.receive import receive_message
from tidelog.gateway.sqs.actions.send import send_message
from tidelog.gateway.sqs.callers import UnsignedCallers
from tidelog.gateway.sqs.front import Front
from tidelog.gateway.sqs.http.messages import HttpRequest, HttpResponse
from tidelog.gateway.sqs.metrics import FrontMetrics
from tidelog.gateway.sqs.protocol.requests import (
    CreateQueueCall,
    ReceiveMessageCall,
    SendMessageCall,
)


class Exchange:
    """A connection that ends while messages arrive for it."""

    def __init__(self, end: str) -> None:
        self._end = end
        self._is_ended = False
        self._on_stop: Callable[[], HttpResponse] | None = None

    @property
    def on_stop(self) -> Callable[[], HttpResponse] | None:
        return self._on_stop

    @on_stop.setter
    def on_stop(self, call: Callable[[], HttpResponse] | None) -> None:
        self._is_ended = call is None  # The messages are there, and the answer is not yet.
        self._on_stop = call

    @property
    def has_hung_up(self) -> bool:
        return self._is_ended and self._end == "hang-up"

    @property
    def is_stopped(self) -> bool:
        return self._is_ended and self._end == "stop"


async def no_page(_: bytes) -> HttpResponse | None:
    return None


@pytest.mark.parametrize("end", ["hang-up", "stop"])
async def test_no_message_stays_leased_that_arrives_with_the_end_of_its_wait(
    tmp_path: Path, end: str
) -> None:
    async with open_caller(tmp_path) as caller:
        url = (await create_queue(caller, CreateQueueCall("jobs"))).queue_url
        await send_message(caller, SendMessageCall(url, "hello"))
        front = Front(
            UnsignedCallers(caller.client, caller.settings, address="127.0.0.1:1"),
            FrontMetrics(),
            pages=no_page,
            clock=trio.current_time,
            random=Random(1),
        )
        request = HttpRequest(
            b"POST",
            b"/",
            {b"x-amz-target": b"AmazonSQS.ReceiveMessage"},
            msgspec.json.encode({"QueueUrl": url}),
        )

        response = await front.answer(request, Exchange(end))  # pyright: ignore[reportArgumentType]  (a property)
        received = await receive_message(caller, ReceiveMessageCall(url))

    assert response is None
    assert [each.body for each in received.messages or ()] == ["hello"]
