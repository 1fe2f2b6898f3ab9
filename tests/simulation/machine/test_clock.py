"""Tests of virtual time: jumps, order of events, and detection of deadlocks and busy loops."""

import pytest
import trio

from tests.simulation.machine.clock import (
    TICK_S,
    DeadlockError,
    EventBudgetError,
    SimulatedClock,
    WallClock,
    quantised,
)
from tests.simulation.machine.world import Simulation, World


def test_a_year_passes_at_once() -> None:
    async def main(world: World) -> float:
        await trio.sleep(365 * 86400)
        return world.clock.now

    assert Simulation(1).run(main) == 365 * 86400


def test_events_happen_in_the_order_of_their_times_and_then_of_their_calls() -> None:
    happened: list[tuple[str, float]] = []

    async def main(world: World) -> None:
        def event(name: str, delay: float) -> None:
            world.clock.call_later(delay, lambda: happened.append((name, world.clock.now)))

        event("third", 2.0)
        event("first", 1.0)
        event("second", 1.0)
        await trio.sleep(3.0)

    Simulation(1).run(main)

    assert happened == [("first", 1.0), ("second", 1.0), ("third", 2.0)]


def test_an_event_comes_before_a_task_that_sleeps_until_the_same_time() -> None:
    happened: list[str] = []

    async def main(world: World) -> None:
        world.clock.call_later(1.0, lambda: happened.append("event"))
        await trio.sleep(1.0)
        happened.append("task")

    Simulation(1).run(main)

    assert happened == ["event", "task"]


def test_events_may_wake_tasks_and_call_for_more_events() -> None:
    async def main(world: World) -> float:
        event = trio.Event()
        world.clock.call_later(1.0, lambda: world.clock.call_later(1.0, event.set))
        await event.wait()
        return world.clock.now

    assert Simulation(1).run(main) == 2.0


async def wait_for_godot() -> None:
    await trio.Event().wait()


def test_a_deadlock_names_waiting_tasks_and_their_places() -> None:
    async def main(_: World) -> None:
        await trio.sleep(5)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait_for_godot, name="vladimir")

    simulation = Simulation(1)

    with pytest.raises(DeadlockError, match=r"vladimir in wait_for_godot:\d+ > Event.wait:\d+"):
        simulation.run(main)

    assert simulation.clock.now == 5


def test_a_deadlock_that_outlives_the_end_of_the_run_is_reported_too() -> None:
    async def main(_: World) -> None:
        with trio.CancelScope(shield=True):
            await wait_for_godot()

    with pytest.raises(DeadlockError, match="wait_for_godot"):
        Simulation(1).run(main)


def test_a_storm_of_events_ends_the_run() -> None:
    async def main(world: World) -> None:
        def event() -> None:
            world.clock.call_later(0.001, event)
            world.clock.call_later(0.001, event)

        event()
        await trio.sleep_forever()

    with pytest.raises(EventBudgetError, match=r"more than 10000 events .* it is 0\.01"):
        Simulation(1, events_per_s_max=10_000).run(main)


def test_a_quiet_time_does_not_save_up_for_a_storm() -> None:
    async def main(world: World) -> None:
        await trio.sleep(30.0)
        for number in range(20_000):
            world.clock.call_later(number / 20_000, lambda: None)
        await trio.sleep(30.0)

    with pytest.raises(EventBudgetError, match=r"the simulated second that ends at 31 s"):
        Simulation(1, events_per_s_max=10_000).run(main)


def test_many_events_in_a_long_time_are_no_storm() -> None:
    async def main(world: World) -> None:
        for number in range(20_000):
            world.clock.call_later(number / 5_000, lambda: None)
        await trio.sleep(30.0)

    Simulation(1, events_per_s_max=10_000).run(main)


def test_a_task_that_never_waits_ends_the_run() -> None:
    async def main(_: World) -> None:
        while True:
            await trio.lowlevel.checkpoint()

    with pytest.raises(EventBudgetError, match=r"more than 10000 events .* it is 0\.000"):
        Simulation(1, events_per_s_max=10_000).run(main)


def test_an_exception_in_an_event_ends_the_run() -> None:
    async def main(world: World) -> None:
        def fail() -> None:
            raise KeyError("nothing")

        world.clock.call_later(1.0, fail)
        await trio.sleep_forever()

    with pytest.raises(KeyError, match="nothing"):
        Simulation(1).run(main)


def test_an_exception_in_a_task_is_reraised_unchanged() -> None:
    async def main(_: World) -> None:
        raise LookupError("as it is")

    with pytest.raises(LookupError, match="as it is"):
        Simulation(1).run(main)


def test_delays_are_multiples_of_a_tick_so_that_their_sums_are_exact() -> None:
    delays = [quantised(0.1 * number) for number in range(1000)]

    assert all(delay % TICK_S == 0 for delay in delays)
    assert sum(delays) == sum(reversed(delays))


def test_a_wall_clock_is_wrong_jumps_and_drifts() -> None:
    clock = SimulatedClock(events_per_s_max=1)
    wall = WallClock(clock.current_time, skew_s=2.0)
    start_ms = WallClock(clock.current_time).now_ms()

    clock.now = 10.0
    assert wall.now_ms() == start_ms + 12_000

    wall.jump(-3600)
    assert wall.now_ms() == start_ms + 12_000 - 3_600_000

    wall.drift(1.01)
    clock.now = 110.0
    assert wall.now_ms() == start_ms + 12_000 - 3_600_000 + 101_000
