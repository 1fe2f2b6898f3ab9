"""Tests of machines and processes: start, pause, end and restart."""

from collections.abc import Awaitable, Callable

import pytest
import trio

from tests.simulation.machine.disk_contents import contents
from tests.simulation.machine.faulty_disk import StaleHandleError
from tests.simulation.machine.node import Node
from tests.simulation.machine.process import Process, Program
from tests.simulation.machine.world import Simulation, World
from tidelog.wire.env.env import Listener


async def idle(_: Process) -> None:
    await trio.sleep_forever()


def play(scenario: Callable[[World, Node], Awaitable[None]], *, seed: int = 1) -> None:
    """Execute `scenario` in a world with one idle machine."""

    async def main(world: World) -> None:
        await scenario(world, world.add_node("node"))

    Simulation(seed).run(main)


def ticking(ticks: list[float]) -> Program:
    async def tick(_: Process) -> None:
        while True:
            await trio.sleep(1)
            ticks.append(trio.current_time())

    return tick


def test_a_process_that_returns_has_ended_and_another_can_follow() -> None:
    async def scenario(_: World, node: Node) -> None:
        async def write(process: Process) -> None:
            process.disk.open("file", create=True).write_at(0, [b"data"])

        await node.start(write).ended.wait()

        assert node.process is None
        assert contents(node.disk) == {"file": b"data"}
        assert node.start(idle).name == "node#2"

    play(scenario)


def test_two_processes_do_not_run_at_once() -> None:
    async def scenario(_: World, node: Node) -> None:
        node.start(idle)

        with pytest.raises(AssertionError, match="runs on node already"):
            node.start(idle)

    play(scenario)


def test_an_exception_in_a_process_ends_the_run() -> None:
    async def scenario(_: World, node: Node) -> None:
        async def fail(_: Process) -> None:
            raise LookupError("a defect")

        node.start(fail)
        await trio.sleep_forever()

    with pytest.raises(LookupError, match="a defect"):
        play(scenario)


def test_a_kill_keeps_written_bytes() -> None:
    async def scenario(_: World, node: Node) -> None:
        process = node.start(idle)
        process.disk.open("file", create=True).write_at(0, [b"unsynced"])

        node.kill()

        assert contents(node.disk) == {"file": b"unsynced"}

    play(scenario)


def test_a_power_cut_may_lose_unsynced_bytes() -> None:
    found: list[bytes | None] = []

    async def scenario(_: World, node: Node) -> None:
        process = node.start(idle)
        process.disk.open("file", create=True).write_at(0, [b"unsynced"])
        process.disk.open("synced", create=True).sync()
        process.disk.sync_directory("")

        node.cut_power()

        assert "synced" in contents(node.disk)
        found.append(contents(node.disk).get("file"))

    for seed in range(20):
        play(scenario, seed=seed)

    assert b"unsynced" not in found or len(set(found)) > 1
    assert len(set(found)) > 2


def test_after_a_power_cut_nothing_is_cached_until_it_is_read() -> None:
    async def scenario(_: World, node: Node) -> None:
        for name in "ab":
            node.start(idle).disk.open(name, create=True).sync()
            node.disk.sync_directory("")
            node.kill()
        node.cut_power()
        a, b = (node.start(idle).disk.open("a"), node.disk.open("b"))
        assert not a.is_cached(0, 1)

        a.read_at(0, 1)

        assert a.is_cached(0, 1)
        assert not b.is_cached(0, 1)

    play(scenario)


@pytest.mark.parametrize("end", [Node.kill, Node.cut_power])
def test_exit_handlers_of_a_dead_process_have_no_effect(end: Callable[[Node], None]) -> None:
    attempts: list[str] = []
    events: list[str] = []

    async def scenario(world: World, node: Node) -> None:
        world.observe(lambda _, event, __: events.append(event))

        async def say_goodbye(process: Process) -> None:
            env, disk = process.env, process.disk
            file = disk.open("file", create=True)
            stream = await env.network.connect("localhost", (await listen(process)).address[1])
            env.probe("alive")
            calls: list[tuple[str, Callable[[], object]]] = [
                ("write", lambda: file.write_at(0, [b"goodbye"])),
                ("send", lambda: stream.send_nowait([b"goodbye"])),
                ("close", stream.close),
                ("probe", lambda: env.probe("goodbye")),
                ("clock", env.clock.now_ms),
                ("buggify", lambda: env.buggify("goodbye")),
            ]
            try:
                await trio.sleep_forever()
            finally:
                for name, call in calls:
                    with pytest.raises(StaleHandleError):
                        call()
                    attempts.append(name)
                with trio.CancelScope(shield=True), pytest.raises(StaleHandleError):
                    await env.run_in_thread(lambda: None)
                attempts.append("run_in_thread")

        node.start(say_goodbye)
        await trio.sleep(1)

        end(node)
        await trio.sleep(1)

    play(scenario)

    assert attempts == ["write", "send", "close", "probe", "clock", "buggify", "run_in_thread"]
    assert events == ["alive"]


async def listen(process: Process) -> Listener:
    return await process.env.network.listen("localhost", 0)


def test_exceptions_of_a_dead_process_have_no_effect() -> None:
    async def scenario(_: World, node: Node) -> None:
        async def complain(process: Process) -> None:
            try:
                await trio.sleep_forever()
            finally:
                process.disk.open("file", create=True)

        node.start(complain)
        await trio.sleep(1)

        node.kill()
        await trio.sleep(1)

    play(scenario)


def test_a_process_killed_before_its_first_step_does_nothing() -> None:
    async def scenario(_: World, node: Node) -> None:
        async def write(process: Process) -> None:
            process.disk.open("file", create=True)

        node.start(write)
        node.kill()
        await trio.sleep(1)

        assert contents(node.disk) == {}

    play(scenario)


def test_a_paused_process_stops_and_resumes() -> None:
    ticks: list[float] = []

    async def scenario(world: World, node: Node) -> None:
        node.start(ticking(ticks))
        world.clock.call_at(2.5, lambda: node.pause(3))
        await trio.sleep(7.25)

    play(scenario)

    assert ticks == [1, 2, 5.5, 6.5]


def test_pauses_and_stalls_overlap() -> None:
    ticks: list[float] = []

    async def scenario(world: World, node: Node) -> None:
        node.start(ticking(ticks))
        world.clock.call_at(0.5, lambda: node.pause(3))
        world.clock.call_at(1.5, lambda: node.stall_loop(4))
        world.clock.call_at(2.0, lambda: node.pause(1))
        await trio.sleep(6)

    play(scenario)

    assert ticks == [5.5]


def test_a_pause_that_is_ended_early_does_not_end_another_one() -> None:
    ticks: list[float] = []

    async def scenario(_: World, node: Node) -> None:
        node.start(ticking(ticks))
        await trio.sleep(0.5)
        resume = node.pause(3)
        node.stall_loop(1.5)
        resume()
        resume()
        await trio.sleep(4)

    play(scenario)

    assert ticks == [2, 3, 4]


def test_a_paused_process_can_be_killed() -> None:
    async def scenario(world: World, node: Node) -> None:
        process = node.start(ticking([]))
        await trio.sleep(1.5)
        node.pause(100)
        await trio.sleep(2)

        node.kill()

        assert process.is_dead
        node.start(idle)
        await trio.sleep(200)
        assert world.clock.now < 300

    play(scenario)


def test_a_new_disk_is_empty() -> None:
    async def scenario(_: World, node: Node) -> None:
        node.start(idle).disk.open("file", create=True)
        node.kill()

        node.wipe_disk()

        assert contents(node.disk) == {}
        node.start(idle).disk.open("other", create=True)

    play(scenario)


def test_events_of_processes_are_observed_and_an_observer_may_end_the_run() -> None:
    async def scenario(world: World, node: Node) -> None:
        async def tell(process: Process) -> None:
            await trio.sleep(1)
            process.env.probe("elected", epoch=7)

        def observe(name: str, event: str, fields: object) -> None:
            raise LookupError(f"{name} {event} {fields}")

        world.observe(observe)
        node.start(tell)
        await trio.sleep_forever()

    with pytest.raises(LookupError, match=r"node elected \{'epoch': 7\}"):
        play(scenario)


def test_each_process_has_its_own_random_stream_and_each_machine_its_own_clock() -> None:
    async def scenario(world: World, node: Node) -> None:
        other = world.add_node("other", skew_s=3600)
        first = node.start(idle).env.random.random()
        node.kill()
        process = node.start(idle)
        elsewhere = other.start(idle)

        assert len({first, process.env.random.random(), elsewhere.env.random.random()}) == 3
        assert elsewhere.env.clock.now_ms() - process.env.clock.now_ms() == 3_600_000

    play(scenario)


def test_buggify_draws_by_site_for_a_run_and_then_by_visit() -> None:
    counts: list[int] = []

    async def scenario(world: World, node: Node) -> None:
        process = node.start(idle)
        assert not any(process.env.buggify("site") for _ in range(100))
        world.buggify.site_rate = 0.5
        world.buggify.fire_rate = 0.25

        counts.append(sum(process.env.buggify("site") for _ in range(100)))

    for seed in range(40):
        play(scenario, seed=seed)

    active = [count for count in counts if count]
    assert 10 < len(active) < 30
    assert 20 < sum(active) / len(active) < 30
