"""A small world for tests of the network: two machines and one connection between them."""

from collections.abc import Awaitable, Callable
from typing import NamedTuple

import trio

from tests.simulation.machine.link import LinkQuality
from tests.simulation.machine.process import Process
from tests.simulation.machine.world import Simulation, World
from tidelog.wire.env.env import Listener, Stream


class Place(NamedTuple):
    """Two machines; a process on `server` listens, one on `client` has connected to it."""

    world: World
    server: Process
    client: Process
    listener: Listener
    near: Stream
    """The client's end."""
    far: Stream


async def idle(_: Process) -> None:
    await trio.sleep_forever()


def play(
    scenario: Callable[[Place], Awaitable[None]],
    *,
    quality: LinkQuality | None = None,
    window_bytes: int = 64 << 10,
    seed: int = 1,
) -> None:
    """Execute `scenario` between two connected machines."""

    async def main(world: World) -> None:
        world.network.window_bytes = window_bytes
        server, client = (world.add_node(name).start(idle) for name in ("server", "client"))
        listener = await server.env.network.listen("server", 80)
        near = await client.env.network.connect("server", 80)
        far = await listener.accept()
        if quality is not None:
            world.network.set_quality(quality)
        with trio.fail_after(10_000):
            await scenario(Place(world, server, client, listener, near, far))

    Simulation(seed).run(main)


async def receive(stream: Stream, *, at_most: int = 1 << 20) -> bytes:
    """Wait for bytes and return them; empty at the end of the stream."""
    buffer = bytearray(at_most)
    await stream.wait_readable()
    count = stream.receive_nowait(memoryview(buffer))
    assert count is not None, "woken for nothing"
    return bytes(buffer[:count])


def silence(place: Place, is_down: str) -> None:
    match is_down:
        case "power":
            place.world.nodes["server"].cut_power()
        case "partition":
            place.world.network.partition(["client"], ["server"])
        case _:
            place.world.network.partition(["server"], ["client"], one_way=True)
