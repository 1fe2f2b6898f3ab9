"""Tests of damage to files at rest."""

from random import Random

import pytest

from tests.simulation.machine.disk_damage import Damage, bring_back, damage_file, durable_state
from tests.simulation.machine.faulty_disk import FaultyDisk


def disk_with(path: str, *states: bytes) -> FaultyDisk:
    disk = FaultyDisk()
    disk.make_directory("topics")
    file = disk.open(path, create=True)
    for state in states:
        file.truncate(0)
        file.write_at(0, [state])
        file.sync()
    disk.sync_directory("topics")
    disk.sync_directory("")
    return disk


@pytest.mark.parametrize("seed", range(20))
def test_a_truncated_file_keeps_its_beginning(seed: int) -> None:
    disk = disk_with("topics/a", b"0123456789")

    damage_file(disk, "topics/a", Damage.SHORT, random=Random(seed))

    left = disk.power_cut(Random(0)).visible_bytes("topics/a")
    assert len(left) < 10
    assert b"0123456789".startswith(left)


def test_bit_flips_change_nothing_else() -> None:
    disk = disk_with("topics/a", bytes(100))

    damage_file(disk, "topics/a", Damage.BITS, random=Random(1))

    left = disk.durable_bytes("topics/a")
    assert len(left) == 100
    assert 1 <= sum(byte.bit_count() for byte in left) <= 2


@pytest.mark.parametrize("damage", Damage)
def test_an_empty_file_can_be_damaged(damage: Damage) -> None:
    disk = disk_with("topics/a", b"")

    damage_file(disk, "topics/a", damage, random=Random(1))

    assert disk.paths() == ([] if damage is Damage.GONE else ["topics/a"])


def test_a_lost_file_stays_lost_and_open_handles_still_read_it() -> None:
    disk = disk_with("topics/a", b"0123")
    file = disk.open("topics/a")
    disk.rename("topics/a", "topics/b")

    damage_file(disk, "topics/b", Damage.GONE, random=Random(1))

    assert file.read_at(0, 4) == b"0123"
    disk.sync_directory("topics")
    assert disk.power_cut(Random(0)).paths() in ([], ["topics/a"])


def test_a_file_becomes_stale_wholly_or_in_some_sectors() -> None:
    found = set[bytes]()
    for seed in range(30):
        disk = disk_with("topics/a", b"old" * 400)
        earlier = durable_state(disk, disk.paths())
        file = disk.open("topics/a")
        file.write_at(0, [b"new" * 500])
        file.sync()

        assert bring_back(disk, earlier, Random(seed)) in (0, 1)
        found.add(disk.power_cut(Random(0)).visible_bytes("topics/a"))

    assert b"old" * 400 in found
    assert any(b"old" in each and b"new" in each and len(each) == 1500 for each in found)


def test_a_deleted_file_does_not_become_stale() -> None:
    disk = disk_with("topics/a", b"0123")
    earlier = durable_state(disk, disk.paths())
    disk.remove("topics/a")

    assert bring_back(disk, earlier, Random(1)) == 0
    assert disk.paths() == []
