"""A short attack on real brokers and on clients; `make fuzz` is the long one."""

from pathlib import Path

from tests.fuzz.hostile_broker import deceive_clients
from tests.fuzz.hostile_peers import Pace, attack

INPUTS_MIN = 1_000
"""A free machine sends a hundred times as many."""


async def test_brokers_survive_hostile_peers_and_come_back_after_them(tmp_path: Path) -> None:
    course = await attack(tmp_path, 1, Pace(seconds=24, block_s=12, paced_per_s=200, quiet_s=0.5))

    assert course.problems == []
    assert course.inputs > INPUTS_MIN
    assert len(course.answers) > 10


async def test_clients_survive_a_hostile_broker() -> None:
    assert await deceive_clients(1, seconds=6) == []
