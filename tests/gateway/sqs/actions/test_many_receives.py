"""Tests for many receives at a time: brokers get few requests, because a connection has a limit."""

from pathlib import Path

import pytest
import trio

from tests.gateway.sqs.callers import open_caller
from tidelog.gateway.sqs.actions.queues import create_queue
from tidelog.gateway.sqs.actions.receive import receive_message
from tidelog.gateway.sqs.protocol.requests import CreateQueueCall, ReceiveMessageCall
from tidelog.wire.protocol import api
from tidelog.wire.transport.rpc import RpcConnection

_COUNT = 300


async def test_receives_that_begin_together_share_requests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []
    submit = RpcConnection.submit

    def counting(connection: RpcConnection, api_: object, *rest: object, **options: object) -> int:
        if api_ is api.RECEIVE:
            asked.append(api_)
        return submit(connection, api_, *rest, **options)  # type: ignore[arg-type]

    async with open_caller(tmp_path) as caller:
        url = (await create_queue(caller, CreateQueueCall("q"))).queue_url
        call = ReceiveMessageCall(url, wait_time_seconds=1)
        await receive_message(caller, ReceiveMessageCall(url))
        monkeypatch.setattr(RpcConnection, "submit", counting)
        found: list[object] = []

        async def receive() -> None:
            found.append((await receive_message(caller, call)).messages)

        async with trio.open_nursery() as nursery:
            for _ in range(_COUNT):
                nursery.start_soon(receive)

    assert found == [None] * _COUNT
    assert len(asked) <= 5
