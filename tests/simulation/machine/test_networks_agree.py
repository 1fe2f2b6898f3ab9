"""Tests that the simulated TCP and the operating system's TCP agree without faults."""

import errno
import math
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import NamedTuple

import pytest
import trio

from tests.simulation.machine.process import Process
from tests.simulation.machine.world import Simulation, World
from tidelog.wire.env.env import FileRegionSource, Listener, Network, Stream
from tidelog.wire.env.real.tcp import TcpNetwork
from tidelog.wire.errors import ConnectionLostError


class Place(NamedTuple):
    """The network of a scenario."""

    server: Network
    client: Network
    host: str
    elsewhere: str
    """An address of another machine than the server."""
    opened: ExitStack


Scenario = Callable[[Place], Awaitable[list[object]]]

IN_VAIN_S = 0.005
"""Seconds for a wait that must not end."""
SETTLE_S = 0.05
"""Seconds for unobservable work of the kernel on the loopback interface."""


async def listen(place: Place) -> Listener:
    listener = await place.server.listen(place.host, 0)
    place.opened.callback(listener.close)
    return listener


async def connect(place: Place, listener: Listener) -> Stream:
    stream = await place.client.connect(*listener.address)
    place.opened.callback(stream.close)
    return stream


async def ends(place: Place) -> tuple[Stream, Stream]:
    listener = await listen(place)
    near = await connect(place, listener)
    far = await listener.accept()
    place.opened.callback(far.close)
    return near, far


def receive(stream: Stream) -> object:
    buffer = bytearray(100)
    try:
        count = stream.receive_nowait(memoryview(buffer))
    except ConnectionLostError as error:
        return "closed here" if "closed here" in str(error) else str(error).rpartition(": ")[2]
    return count and bytes(buffer[:count])


def send(stream: Stream, data: bytes) -> object:
    try:
        return stream.send_nowait([data])
    except ConnectionLostError as error:
        return "closed here" if "closed here" in str(error) else "lost"


async def wait(call: Callable[[], Awaitable[None]], limit_s: float = math.inf) -> object:
    try:
        with trio.fail_after(limit_s):
            await call()
    except (trio.TooSlowError, trio.BusyResourceError, ConnectionLostError) as error:
        return type(error)
    return "ready"


async def os_error(call: Awaitable[object]) -> object:
    try:
        await call
    except OSError as error:
        return type(error), error.errno
    return "no error"


async def a_conversation(place: Place) -> list[object]:
    near, far = await ends(place)
    seen = [receive(near), await wait(near.wait_readable, IN_VAIN_S)]
    seen += [await wait(near.wait_writable), send(near, b"hello")]
    seen += [await wait(far.wait_readable), receive(far), receive(far)]
    near.close()
    near.close()
    return [*seen, await wait(far.wait_readable), receive(far), receive(far)]


async def after_closing_here(place: Place) -> list[object]:
    near, _ = await ends(place)
    near.close()
    return [
        receive(near),
        send(near, b"x"),
        await wait(near.wait_readable),
        await wait(near.wait_writable),
    ]


async def closing_with_unread_bytes(place: Place) -> list[object]:
    near, far = await ends(place)
    seen = [send(near, b"unread"), send(far, b"read"), await wait(far.wait_readable)]
    await trio.sleep(SETTLE_S)
    far.close()
    await trio.sleep(SETTLE_S)
    return [*seen, await wait(near.wait_readable), receive(near), receive(near)]


async def sending_to_a_closed_end(place: Place) -> list[object]:
    near, far = await ends(place)
    seen = [send(far, b"last words")]
    far.close()
    await trio.sleep(SETTLE_S)
    seen += [send(near, b"too late")]
    await trio.sleep(SETTLE_S)
    return [*seen, send(near, b"too late"), receive(near), receive(near)]


@dataclass(frozen=True)
class FileWithoutDescriptor:
    """A file of which only the first bytes can be read."""

    readable: bytes

    def fileno(self) -> None:
        """Return `None`: there is no descriptor."""

    def read_at(self, position: int, length: int) -> bytes:
        """See `FileRegionSource`."""
        if position > len(self.readable):
            raise OSError(errno.EIO, "a bad sector")
        return self.readable[position : position + length]


def send_file(stream: Stream, source: FileRegionSource, position: int, *, length: int) -> object:
    try:
        return stream.send_file_nowait(source, position, length)
    except ConnectionLostError as error:
        return str(error).rpartition(": ")[2]


async def a_file_that_cannot_be_read(place: Place) -> list[object]:
    near, far = await ends(place)
    file = FileWithoutDescriptor(b"good")
    seen = [send_file(near, file, 0, length=4), await wait(far.wait_readable), receive(far)]
    return [*seen, send_file(near, file, 9, length=4), send_file(near, file, 4, length=4)]


async def closing_wakes_waiting_tasks(place: Place) -> list[object]:
    near, _ = await ends(place)
    seen: list[object] = []

    async def wait_for_bytes() -> None:
        seen.append(await wait(near.wait_readable))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait_for_bytes)
        await trio.sleep(SETTLE_S)
        near.close()
    return seen


async def waiting_twice(place: Place) -> list[object]:
    near, _ = await ends(place)
    seen: list[object] = []

    async def wait_for_bytes() -> None:
        seen.append(await wait(near.wait_readable, IN_VAIN_S))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait_for_bytes)
        nursery.start_soon(wait_for_bytes)
    return sorted(seen, key=str)


async def a_reader_that_does_not_read(place: Place) -> list[object]:
    near, far = await ends(place)
    sent = 0
    while count := near.send_nowait([bytes(1 << 20)]):
        sent += count
        await trio.sleep(SETTLE_S)
    seen = [await wait(near.wait_writable, IN_VAIN_S)]
    buffer = memoryview(bytearray(1 << 20))
    while sent:
        await far.wait_readable()
        sent -= far.receive_nowait(buffer) or 0
    await trio.sleep(SETTLE_S)
    return [*seen, await wait(near.wait_writable), send(near, b"more")]


async def a_listener_that_closes_before_it_accepts(place: Place) -> list[object]:
    listener = await listen(place)
    near = await connect(place, listener)
    await trio.sleep(SETTLE_S)
    listener.close()
    await trio.sleep(SETTLE_S)
    return [receive(near)]


async def addresses_that_cannot_be(place: Place) -> list[object]:
    listener = await listen(place)
    port = listener.address[1]
    seen = [
        await os_error(place.server.listen(place.host, port)),
        await os_error(place.server.listen(place.elsewhere, 0)),
        await os_error(place.server.listen(place.host, 65_536)),
        await os_error(place.client.connect(place.host, -1)),
    ]
    listener.close()
    return [*seen, await os_error(place.client.connect(place.host, port))]


async def accepting_from_a_closed_listener(place: Place) -> list[object]:
    listener = await listen(place)
    seen: list[object] = []

    async def accept() -> None:
        try:
            await listener.accept()
        except trio.ClosedResourceError as error:
            seen.append(type(error))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(accept)
        await trio.sleep(SETTLE_S)
        listener.close()
        listener.close()
    return seen


SCENARIOS: list[Scenario] = [
    a_conversation,
    after_closing_here,
    closing_with_unread_bytes,
    sending_to_a_closed_end,
    a_file_that_cannot_be_read,
    closing_wakes_waiting_tasks,
    waiting_twice,
    a_reader_that_does_not_read,
    a_listener_that_closes_before_it_accepts,
    addresses_that_cannot_be,
    accepting_from_a_closed_listener,
]


async def idle(_: Process) -> None:
    await trio.sleep_forever()


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_simulated_and_real_tcp_agree(scenario: Scenario) -> None:
    async def simulated(world: World) -> list[object]:
        server, client = (world.add_node(name).start(idle) for name in ("server", "client"))
        with ExitStack() as opened:
            return await scenario(
                Place(server.env.network, client.env.network, "server", "client", opened)
            )

    async def real() -> list[object]:
        with ExitStack() as opened:
            return await scenario(
                Place(TcpNetwork(), TcpNetwork(), "127.0.0.1", "192.0.2.1", opened)
            )

    assert Simulation(1).run(simulated) == trio.run(real)
