"""Tests of the simulated TCP with trio's own test suite for streams."""

import pytest
import trio
from trio.testing import check_half_closeable_stream

from tests.simulation.machine.link import LinkQuality
from tests.simulation.machine.process import Process
from tests.simulation.machine.tcp import SimulatedStream
from tests.simulation.machine.trio_stream import TrioStream
from tests.simulation.machine.world import Simulation, World

Ends = tuple[TrioStream, TrioStream]


@pytest.mark.parametrize("split", [0.0, 1.0])
@pytest.mark.parametrize("window_bytes", [20_000, 65_536])
def test_streams_pass_trio_stream_checks(split: float, window_bytes: int) -> None:
    async def main(world: World) -> None:
        world.network.set_quality(LinkQuality(split=split))
        world.network.window_bytes = window_bytes
        listening, connecting = [world.add_node(name).start(idle) for name in ("a", "b")]

        async def make_ends() -> Ends:
            return await connected(listening, connecting)

        async def make_clogged_ends() -> Ends:
            near, far = await make_ends()
            for end in near, far:
                with trio.move_on_after(1):
                    await end.send_all(bytes(10 * window_bytes))
            return near, far

        await check_half_closeable_stream(make_ends, make_clogged_ends)

    Simulation(f"{split} {window_bytes}").run(main)


async def idle(_: Process) -> None:
    await trio.sleep_forever()


async def connected(listening: Process, connecting: Process) -> Ends:
    listener = await listening.env.network.listen("a", 0)
    near = await connecting.env.network.connect(*listener.address)
    far = await listener.accept()
    listener.close()
    assert isinstance(near, SimulatedStream)
    assert isinstance(far, SimulatedStream)
    return TrioStream(near), TrioStream(far)
