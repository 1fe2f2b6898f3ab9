"""A balancer of TCP connections, as one stands before the fronts of a cluster."""

import itertools
from collections.abc import Sequence
from contextlib import suppress

import trio


async def serve_balanced(
    ports: Sequence[int], task_status: trio.TaskStatus[int] = trio.TASK_STATUS_IGNORED
) -> None:
    """Forward each connection to the next port that answers; report the port of the balancer."""
    turns = itertools.cycle(ports)

    async def forward(client: trio.SocketStream) -> None:
        for _ in ports:
            with suppress(OSError):
                front = await trio.open_tcp_stream("127.0.0.1", next(turns))
                break
        else:
            await client.aclose()
            return
        async with client, front, trio.open_nursery() as nursery:
            nursery.start_soon(_copy, client, front, nursery.cancel_scope)
            nursery.start_soon(_copy, front, client, nursery.cancel_scope)

    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port: int = listeners[0].socket.getsockname()[1]
    async with trio.open_nursery() as nursery:
        await nursery.start(trio.serve_listeners, forward, listeners)
        task_status.started(port)


async def _copy(
    source: trio.SocketStream, target: trio.SocketStream, scope: trio.CancelScope
) -> None:
    """Copy until one side ends, and end the other direction then."""
    with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
        async for chunk in source:
            await target.send_all(bytes(chunk))
    scope.cancel()
