"""Tests of threads in virtual time: work runs piece by piece, and dies with its process."""

import errno
import os
from collections.abc import Awaitable, Callable

import pytest
import trio

from tests.simulation.machine.disk_contents import contents
from tests.simulation.machine.faulty_disk import FaultyDisk, StaleHandleError
from tests.simulation.machine.guard import RealWorldError
from tests.simulation.machine.node import Node
from tests.simulation.machine.process import Process
from tests.simulation.machine.world import Simulation, World


async def idle(_: Process) -> None:
    await trio.sleep_forever()


def play(scenario: Callable[[World, Node, Process], Awaitable[None]], *, seed: int = 1) -> None:
    """Execute `scenario` in a world with one machine and one process."""

    async def main(world: World) -> None:
        node = world.add_node("node")
        await scenario(world, node, node.start(idle))

    Simulation(seed).run(main)


def test_work_takes_a_while_and_returns_or_raises() -> None:
    async def scenario(_: World, __: Node, process: Process) -> None:
        assert await process.env.run_in_thread(lambda: 6 * 7) == 42
        assert 0 < trio.current_time() < 0.01

        def fail() -> None:
            raise LookupError("as it is")

        with pytest.raises(LookupError, match="as it is"):
            await process.env.run_in_thread(fail)

    play(scenario)


def test_a_sync_takes_time_and_covers_writes_before_its_start() -> None:
    async def scenario(world: World, node: Node, process: Process) -> None:
        node.disk_speed.sync_mean_s = 1.0
        file = process.disk.open("file", create=True)
        process.disk.sync_directory("")
        file.write_at(0, [b"before"])
        world.clock.call_later(0.01, lambda: file.write_at(6, [b"meanwhile"]))

        await process.env.run_in_thread(file.sync)

        assert trio.current_time() > 0.01
        assert file.read_at(0, 100) == b"beforemeanwhile"
        assert process.disk.durable_bytes("file") == b"before"

    play(scenario)


def test_a_directory_sync_does_not_cover_names_added_during_it() -> None:
    found: list[bool] = []

    async def scenario(world: World, node: Node, process: Process) -> None:
        disk = process.disk
        node.disk_speed.sync_mean_s = 1.0
        disk.open("before", create=True)
        world.clock.call_later(0.01, lambda: disk.open("meanwhile", create=True))
        await process.env.run_in_thread(lambda: disk.sync_directory(""))

        node.cut_power()

        assert node.disk.exists("before")
        found.append(node.disk.exists("meanwhile"))

    for seed in range(10):
        play(scenario, seed=seed)

    assert set(found) == {True, False}


def test_threads_interleave_at_their_disk_calls() -> None:
    orders: list[str] = []

    async def scenario(_: World, __: Node, process: Process) -> None:
        order: list[str] = []

        def work(name: str) -> None:
            for _ in range(5):
                process.disk.open(name, create=True)
                order.append(name)

        async with trio.open_nursery() as nursery:
            for name in "ab":
                nursery.start_soon(process.env.run_in_thread, lambda name=name: work(name))
        orders.append("".join(order))

    for seed in range(5):
        play(scenario, seed=seed)

    assert all(sorted(order) == sorted("aaaaabbbbb") for order in orders)
    assert len(set(orders)) > 1
    assert any("ab" in order and "ba" in order for order in orders)


def test_cancelled_work_runs_to_its_end_first() -> None:
    async def scenario(_: World, node: Node, process: Process) -> None:
        node.disk_speed.sync_mean_s = 100.0
        file = process.disk.open("file", create=True)
        file.write_at(0, [b"data"])

        with trio.move_on_after(0.01) as scope:
            await process.env.run_in_thread(file.sync)

        assert not scope.cancelled_caught
        assert process.disk.durable_bytes("file") == b"data"
        assert trio.current_time() > 0.01

    play(scenario)


def replace_again_and_again(disk: FaultyDisk) -> None:
    while True:
        file = disk.open("name.new", create=True)
        try:
            file.write_at(0, [b"new"])
            file.sync()
        finally:
            file.close()
        disk.rename("name.new", "name")
        disk.sync_directory("")


@pytest.mark.parametrize("end", [Node.kill, Node.cut_power])
def test_a_process_may_end_in_the_middle_of_any_work(end: Callable[[Node], None]) -> None:
    found: set[str] = set()

    async def scenario(world: World, node: Node, process: Process) -> None:
        process.disk.open("name", create=True).write_at(0, [b"old"])
        await process.env.run_in_thread(process.disk.open("name").sync)
        await process.env.run_in_thread(lambda: process.disk.sync_directory(""))
        random = world.streams.stream("test")
        world.clock.call_later(random.random() * 0.01, lambda: end(node))

        with pytest.raises(StaleHandleError):
            await process.env.run_in_thread(lambda: replace_again_and_again(process.disk))

        found.add(str(contents(node.disk)))
        assert contents(node.disk)["name"] in {b"old", b"new"}

    for seed in range(60):
        play(scenario, seed=seed)

    assert len(found) > 3


def test_a_pause_stops_threads_and_a_stalled_loop_does_not() -> None:
    async def scenario(world: World, node: Node, process: Process) -> None:
        file = process.disk.open("file", create=True)
        done_at: list[float] = []

        def sync() -> None:
            file.sync()
            done_at.append(world.clock.now)

        for hold in node.pause, node.stall_loop:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(process.env.run_in_thread, sync)
                hold(10)

        assert done_at[0] > 10
        assert done_at[1] - done_at[0] < 1

    play(scenario)


def test_a_stalled_disk_blocks_threads() -> None:
    async def scenario(_: World, node: Node, process: Process) -> None:
        node.stall_disk(30)

        await process.env.run_in_thread(process.disk.open("file", create=True).sync)

        assert trio.current_time() > 30

    play(scenario)


def test_the_end_of_a_disk_stall_resumes_blocked_threads() -> None:
    async def scenario(world: World, node: Node, process: Process) -> None:
        node.stall_disk(30)
        world.clock.call_later(5, lambda: node.stall_disk(0))

        await process.env.run_in_thread(process.disk.open("file", create=True).sync)

        assert 5 < trio.current_time() < 5.2

    play(scenario)


def test_at_most_forty_threads_run_at_once() -> None:
    async def scenario(_: World, node: Node, process: Process) -> None:
        file = process.disk.open("file", create=True)
        node.stall_disk(10)
        async with trio.open_nursery() as nursery:
            for _number in range(60):
                nursery.start_soon(process.env.run_in_thread, file.sync)
            await trio.sleep(5)
            assert len([call for call in process.disk.calls if call[0] == "sync"]) == 40

    play(scenario)


def test_an_aimed_fault_comes_before_a_call_takes_effect() -> None:
    async def scenario(world: World, node: Node, process: Process) -> None:
        process.disk.open("old", create=True)

        def watch(operation: str, path: str) -> None:
            if (operation, path) == ("rename", "old"):
                world.clock.call_later(0, node.kill)
            if operation == "truncate":
                raise OSError(errno.EIO, "aimed")

        node.disk_watcher = watch
        with pytest.raises(OSError, match="aimed"):
            process.disk.open("old").truncate(0)
        with pytest.raises(StaleHandleError):
            await process.env.run_in_thread(lambda: process.disk.rename("old", "new"))

        assert contents(node.disk) == {"old": b""}

    play(scenario)


def test_a_leak_in_a_thread_is_found() -> None:
    async def scenario(_: World, __: Node, process: Process) -> None:
        await process.env.run_in_thread(lambda: os.urandom(1))

    with pytest.raises(
        RealWorldError, match=r"test_thread_pool.py:\d+ called os.urandom inside of"
    ):
        play(scenario)


def test_a_thread_must_not_end_its_own_process_except_by_the_clock() -> None:
    async def scenario(_: World, node: Node, process: Process) -> None:
        await process.env.run_in_thread(node.kill)

    with pytest.raises(AssertionError, match="ask the clock"):
        play(scenario)


def test_brief_work_sometimes_runs_in_the_loop_but_never_during_a_disk_stall() -> None:
    async def scenario(__: World, node: Node, process: Process) -> None:
        file = process.disk.open("file", create=True)
        node.disk_speed.sync_mean_s = 1.0

        async def syncs_at_once() -> int:
            count = 0
            for _ in range(20):
                began = trio.current_time()
                await process.env.run_in_thread(file.sync, is_brief=True)
                count += trio.current_time() == began
            return count

        assert 0 < await syncs_at_once() < 20
        for _ in range(10):
            node.stall_disk(100)
            await process.env.run_in_thread(file.sync, is_brief=True)
            assert trio.current_time() >= node.disk_speed.stalled_until

    play(scenario)
