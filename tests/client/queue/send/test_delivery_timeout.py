"""Sends to queues whose broker is gone."""

from pathlib import Path

import pytest
import trio

import tidelog
from tidelog.wire.errors import DeliveryTimeoutError


@pytest.mark.parametrize("fifo", [False, True])
async def test_a_send_gives_up_after_the_timeout_of_its_client(
    tmp_path: Path, *, fifo: bool
) -> None:
    async with trio.open_nursery() as nursery:
        async with tidelog.open_broker(tmp_path) as broker:
            ready, gone = trio.Event(), trio.Event()

            async def send() -> None:
                async with tidelog.connect(
                    broker.address, queue_delivery_timeout=1.0, request_timeout=2.0
                ) as client:
                    await client.admin.create_queue("jobs", fifo=fifo)
                    queue = client.queue("jobs")
                    await queue.send(b"first", key=b"a")
                    ready.set()
                    await gone.wait()
                    with pytest.raises(DeliveryTimeoutError):
                        await queue.send(b"second", key=b"a")

            nursery.start_soon(send)
            await ready.wait()
        gone.set()
