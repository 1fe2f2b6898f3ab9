"""Retry loop for clients under connection failures."""

from collections.abc import Awaitable, Callable

import trio

from tests.simulation.broker.readers import BACKOFF_S, PATIENCE_S
from tests.simulation.machine.process import Process
from tidelog.client.client import Client, connect
from tidelog.wire.errors import TidelogError


async def work_connected(
    process: Process,
    addresses: str,
    work: Callable[[Client], Awaitable[None]],
    *,
    should_stop: Callable[[], bool],
) -> None:
    """Repeat `work` with a client until told to stop; reconnect after each failure."""
    while not should_stop():
        try:
            async with connect(addresses, env=process.env, request_timeout=PATIENCE_S) as client:
                while not should_stop():
                    await work(client)
        except TidelogError:
            await trio.sleep(BACKOFF_S)
