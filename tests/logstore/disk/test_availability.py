"""A log reports why it is unavailable, and accepts writes again when there is room."""

import errno

import pytest

from tests.simulation.machine.faulty_disk import FaultyDisk
from tidelog.logstore.disk.availability import Availability
from tidelog.wire.errors import DiskFullError, LogOfflineError


def test_an_offline_log_shows_its_first_failure() -> None:
    availability = Availability("flights/3", FaultyDisk())
    availability.require_online()

    availability.fail("fsync failed")
    availability.fail("the log was closed")

    with pytest.raises(
        LogOfflineError, match=r"^flights/3 is offline: fsync failed; restart the bro"
    ):
        availability.require_online()


def test_durable_intact_stays_false_after_one_doubtful_failure() -> None:
    availability = Availability("flights/3", FaultyDisk())
    assert availability.durable_intact

    availability.fail("fsync failed", durable_intact=True)
    assert availability.durable_intact
    availability.fail("reading failed")
    availability.fail("the log was closed", durable_intact=True)

    assert not availability.durable_intact


def test_an_error_of_the_disk_takes_the_log_offline() -> None:
    availability = Availability("flights/3", FaultyDisk())

    with pytest.raises(LogOfflineError, match="writing failed"):
        availability.write_failed("writing", OSError(errno.EIO, "Input/output error"))

    assert availability.failure is not None
    assert not availability.is_disk_full


def test_a_full_disk_is_full_until_there_is_room_with_some_to_spare() -> None:
    disk = FaultyDisk(capacity_bytes=1 << 20)
    availability = Availability("flights/3", disk)

    with pytest.raises(DiskFullError, match="read-only until there is room"):
        availability.write_failed("writing", OSError(errno.ENOSPC, "No space left on device"))
    was_full = availability.is_disk_full
    with pytest.raises(DiskFullError):
        availability.require_room(1)
    disk.capacity_bytes = (1 << 20) + 1
    availability.require_room(1)

    assert (was_full, availability.is_disk_full) == (True, False)
    availability.require_online()
