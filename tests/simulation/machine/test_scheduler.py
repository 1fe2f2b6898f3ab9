"""Tests of the deterministic scheduler, and of holding tasks back."""

from random import Random

import trio

from tests.simulation.machine.scheduler import ProcessTasks, deterministic_scheduling
from tests.simulation.machine.world import Simulation, World


def order_of_tasks() -> list[int]:
    order: list[int] = []

    async def note(number: int) -> None:
        for _ in range(3):
            await trio.lowlevel.checkpoint()
            order.append(number)

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            for number in range(10):
                nursery.start_soon(note, number)

    trio.run(main)
    return order


def test_the_order_of_tasks_depends_on_the_seed_alone() -> None:
    orders: list[list[int]] = []
    for seed in (1, 1, 2):
        with deterministic_scheduling(Random(seed)):
            orders.append(order_of_tasks())

    assert orders[0] == orders[1] != orders[2]


def test_held_tasks_make_no_step_until_they_are_released() -> None:
    steps: list[tuple[str, float]] = []

    async def main(world: World) -> None:
        tasks = ProcessTasks()

        async def work(name: str) -> None:
            while True:
                await trio.sleep(1)
                steps.append((name, trio.current_time()))

        async def held() -> None:
            tasks.adopt_this_task()
            async with trio.open_nursery() as inner:
                inner.start_soon(work, "held")
                inner.start_soon(work, "held too")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(held)
            nursery.start_soon(work, "free")
            world.clock.call_at(1.5, tasks.hold)
            world.clock.call_at(3.5, tasks.release)
            await trio.sleep(4.25)
            nursery.cancel_scope.cancel()

    Simulation(1).run(main)

    assert [time for name, time in steps if name == "free"] == [1, 2, 3, 4]
    assert [time for name, time in steps if name == "held"] == [1, 3.5]
    assert [time for name, time in steps if name == "held too"] == [1, 3.5]


def test_a_runnable_task_stays_where_it_is_when_held() -> None:
    steps: list[float] = []

    async def main(world: World) -> None:
        tasks = ProcessTasks()
        event = trio.Event()

        async def work() -> None:
            tasks.adopt_this_task()
            await event.wait()
            steps.append(trio.current_time())

        def wake_and_hold() -> None:
            event.set()
            tasks.hold()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(work)
            world.clock.call_at(1.0, wake_and_hold)
            world.clock.call_at(2.0, tasks.release)

    Simulation(1).run(main)

    assert steps == [2.0]
