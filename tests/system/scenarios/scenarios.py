"""The scenarios: each one is a way in which another broker lost acknowledged records.

NATS JetStream 2.12.1 (Jepsen, 2025) lost 131,418 of 930,005 records when power was lost, and
679,153 of 1,367,069 after bit flips or truncation of files on a minority of its nodes. Kafka
without eligible leader replicas loses records when the last replica in the ISR restarts uncleanly
(KIP-966). Redpanda 21.10.1 (Jepsen, 2022) lost and reordered records under pauses, kills and
partitions.
"""

import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import trio

from tests.system.scenarios.trial import Scenario, Trial

_WRITING_S: Final = 4.0
_LATER_S: Final = 4.0
"""Delay in seconds of the other nodes behind the damaged one."""
_NATS: Final = "NATS 2.12.1"
_KAFKA: Final = "Kafka before KIP-966"
_REDPANDA: Final = "Redpanda 21.10.1"
_FAULTS: Final = 12


def _flip_at_the_end(segment: Path) -> None:
    data = bytearray(segment.read_bytes())
    data[-5] ^= 1
    segment.write_bytes(data)


def _cut_the_end(segment: Path) -> None:
    segment.write_bytes(segment.read_bytes()[:-300])


def _flip_everywhere(segment: Path) -> None:
    data = bytearray(segment.read_bytes())
    for position in range(200, len(data), 20_000):
        data[position] ^= 1
    segment.write_bytes(data)


async def _die_at_once(trial: Trial) -> None:
    """All processes end while clients write, and come back in any order."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trial.write_on)
        await trio.sleep(_WRITING_S)
        await trial.kill(1, 2, 3)
        order = [1, 2, 3]
        trial.random.shuffle(order)
        await trial.start(*order, apart_s=1.0)
        await trio.sleep(_WRITING_S)
        nursery.cancel_scope.cancel()


def _damage_one(damage: Callable[[Path], None]) -> Callable[[Trial], Awaitable[None]]:
    async def act(trial: Trial) -> None:
        """Node 3 is away before; node 1 is damaged, and returns before node 2."""
        await trial.write(_WRITING_S)
        await trial.kill(3)
        await trial.wait_out_of_sync(3)
        await trial.write(_WRITING_S)
        await trial.kill(1, 2)
        for segment in trial.newest_segments(1):
            damage(segment)
        await trial.start(1, 3)
        await trio.sleep(_LATER_S)
        await trial.start(2)
        await trial.write(_WRITING_S)

    return act


async def _last_one_standing(trial: Trial) -> None:
    """The ISR shrinks to one replica, which ends uncleanly and loses the end of its logs."""
    await trial.write(_WRITING_S)
    await trial.kill(3)
    await trial.wait_out_of_sync(3)
    await trial.write(_WRITING_S)
    await trial.kill(2)
    await trial.write(2.0)
    await trial.kill(1)
    for segment in trial.newest_segments(1):
        _cut_the_end(segment)
    await trial.start(1, 2, 3, apart_s=1.0)
    await trial.write(_WRITING_S)


async def _restore_a_copy(trial: Trial) -> None:
    """The directory of one node is replaced by an earlier copy during an outage of all nodes."""
    await trial.write(_WRITING_S)
    await trial.kill(1)
    copy = trial.directory(1).with_name("copy")
    shutil.copytree(trial.directory(1), copy)
    await trial.start(1)
    await trial.write(_WRITING_S)
    await trial.kill(1, 2, 3)
    shutil.rmtree(trial.directory(1))
    copy.rename(trial.directory(1))
    await trial.start(1, 2, 3, apart_s=2.0)
    await trial.write(_WRITING_S)


async def _pause_and_kill(trial: Trial) -> None:
    """One node after the other is paused or killed while clients write."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trial.write_on)
        for _ in range(_FAULTS):
            await trio.sleep(1.0)
            victim = trial.random.choice(trial.nodes.ids)
            if trial.random.random() < 0.5:
                trial.nodes.stop(victim)
                await trio.sleep(trial.random.choice((0.5, 3.0, 12.0)))
                trial.nodes.go_on(victim)
            else:
                await trial.kill(victim)
                await trial.start(victim)
        nursery.cancel_scope.cancel()


SCENARIOS: Final = (
    Scenario("all nodes end at once while clients write", _NATS, _die_at_once),
    Scenario(
        "a bit flips at the end of the logs of one node", _NATS, _damage_one(_flip_at_the_end)
    ),
    Scenario("the logs of one node are truncated", _NATS, _damage_one(_cut_the_end)),
    Scenario("bits flip everywhere in the logs of one node", _NATS, _damage_one(_flip_everywhere)),
    Scenario("the last replica in the ISR ends uncleanly", _KAFKA, _last_one_standing),
    Scenario("an old copy of one node's directory comes back", _NATS, _restore_a_copy),
    Scenario("nodes are paused and killed", _REDPANDA, _pause_and_kill),
)
