"""Tests of moments aside: what happens there leaves the rest of a run as it is."""

import trio

from tests.simulation.machine.process import Process
from tests.simulation.machine.two_machines import idle, receive
from tests.simulation.machine.world import Simulation, World
from tidelog.wire.env.env import Stream


async def serve(process: Process) -> None:
    async def answer(stream: Stream) -> None:
        while data := await receive(stream):
            stream.send_nowait([data, process.env.random.randbytes(4)])
        stream.close()

    listener = await process.env.network.listen("server", 80)
    async with trio.open_nursery() as nursery:
        while True:
            nursery.start_soon(answer, await listener.accept())


async def ask(process: Process) -> None:
    stream = await process.env.network.connect("server", 80)
    for _ in range(50):
        stream.send_nowait([process.env.random.randbytes(4)])
        await receive(stream)
        await trio.sleep(process.env.random.random())


async def call_once(process: Process) -> None:
    stream = await process.env.network.connect("server", 80)
    stream.send_nowait([b"hello"])
    await receive(stream)
    stream.close()


def life(visit_count: int, *, is_instant: bool = True) -> tuple[str, int]:
    """Return the fingerprint of a run, and the number of its events."""

    async def main(world: World) -> None:
        if is_instant:
            world.network.instant_hosts.add("stranger")
        world.add_node("server").start(serve)
        client = world.add_node("client").start(ask)
        stranger = world.add_node("stranger")
        for number in range(visit_count):
            world.call_aside(0.5 + number, lambda: stranger.start(call_once))
        await client.ended.wait()

    simulation = Simulation(1)
    simulation.run(main)
    return simulation.trace.fingerprint(), simulation.trace.line_count


def test_visits_aside_change_nothing() -> None:
    assert life(0) == life(5)


def test_visits_that_take_time_change_the_run() -> None:
    assert life(0) != life(5, is_instant=False)


def test_events_aside_are_shown_and_marked() -> None:
    lines: list[str] = []

    async def main(world: World) -> None:
        node = world.add_node("stranger")
        world.call_aside(1.0, lambda: node.start(idle))
        await trio.sleep(2)

    Simulation(1, show=lines.append).run(main)

    assert lines[0] == "1.000000 aside stranger starts"
