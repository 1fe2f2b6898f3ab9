"""Random runs of a group with faults, then a part without faults in which it must settle."""

from collections import Counter

from tests.simulation.groups.world import Faults, World

BAD_MS = 120_000
GOOD_MS = 150_000
"""Milliseconds; more than the last delayed message, a session, a delayed target and a few
heartbeats, and more than the longest revocation that has begun."""


def run(seed: int) -> World:
    """Execute one run and return its world; raises `ViolationError` when a promise is broken."""
    world = World(seed, {"orders": 7, "payments": 5})
    random = world.random
    instances = [f"instance-{number}" for number in range(2)]
    for instance_id in [*instances, None, None, None]:
        world.start(instance_id=instance_id)
    world.faults = Faults(
        loss=random.choice([0.0, 0.05, 0.2]), repeats=random.choice([0.0, 0.1, 0.3])
    )
    for _ in range(BAD_MS // 4_000):
        world.run(random.randint(1, 8_000))
        _disturb(world, instances)
    world.faults = Faults()
    if world.leading is None:
        world.fail_over(0)
    for process in world.living:
        process.standstill_end_ms = min(process.standstill_end_ms, world.now_ms)
        process.revocation_ms = (0, 500)
    world.start()
    world.run(GOOD_MS)
    world.checks.converged()
    return world


def ping_pong(seed: int) -> World:
    """Move partitions back and forth between members while old messages reappear."""
    world = World(seed, {"orders": 3})
    random = world.random
    # A member that stays gets back the visitor's partitions; with two, either may.
    steady = [world.start() for _ in range(random.choice([1, 2]))]
    world.faults = Faults(repeats=0.9, loss=random.choice([0.0, 0.1]), returns=0.5)
    visitor = world.start()
    for _ in range(25):
        world.run(random.randint(500, 10_000))
        if visitor.core.is_over:
            visitor = world.start()
        elif random.random() < 0.5:
            world.leave(visitor)
        for process in [*steady, visitor]:
            process.commit_chance = random.choice([0.0, 0.0, 0.3])
            process.fickleness = random.choice([0.0, 0.0, 0.3])
            process.revocation_ms = random.choice([(0, 500), (2_000, 15_000)])
    world.faults = Faults()
    world.run(GOOD_MS)
    world.checks.converged()
    return world


def quiet(seed: int) -> World:
    """Start some members one after the other without faults, and stop one."""
    world = World(seed, {"orders": 12})
    for _ in range(3):
        world.start()
        world.run(20_000)
        world.checks.converged()
    world.leave(world.living[0])
    world.run(20_000)
    world.checks.converged()
    return world


def check_all(seed: int) -> dict[str, int]:
    """Execute all three runs of a seed; return counts of their events.

    Raises:
        ViolationError: A promise was broken.
    """
    counts: Counter[str] = Counter()
    for act in (quiet, ping_pong, run):
        checks = act(seed).checks
        counts["targets"] += checks.target_count
        counts["moves"] += checks.moved_count
        counts["members fenced"] += checks.fenced_count
        counts["commits accepted"] += checks.accepted_count
        counts["commits refused"] += checks.refused_count
    return counts


def _disturb(world: World, instances: list[str]) -> None:
    random = world.random
    process = random.choice(world.living) if world.living else None
    match random.randrange(9):
        case 0:
            world.fail_over(random.choice([0, 1_000, 5_000, 60_000]))
        case 1 if process is not None:
            world.crash(process)
        case 2 if process is not None:
            process.standstill_end_ms = world.now_ms + random.choice([2_000, 20_000, 70_000])
        case 3 if process is not None:
            world.leave(process, is_restart=process.settings.instance_id is not None)
        case 4 if process is not None:
            world.leave(process)
        case 5:
            # The next process of a static member, whatever the state of the previous one.
            world.start(instance_id=random.choice(instances))
        case 6 if process is not None:
            process.revocation_ms = random.choice([(0, 500), (5_000, 20_000), (40_000, 60_000)])
        case 7 if process is not None:
            topics = random.choice([["orders"], ["payments"], ["orders", "payments"]])
            world.subscribe(process, topics)
        case _:
            if len(world.living) < 8:
                world.start()
