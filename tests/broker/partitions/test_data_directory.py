"""Tests of the data directory: owner, lock, and mark of a clean stop."""

from collections.abc import Callable
from random import Random
from typing import final

import pytest

from tests.simulation.machine.faulty_disk import FaultyDisk, StaleHandleError
from tidelog.broker.partitions.data_directory import (
    DataDirectory,
    DiskIds,
    NodeIdentity,
    open_data_directory,
)
from tidelog.logstore.checkpoint import write_small_file
from tidelog.wire.errors import DataDirectoryError
from tidelog.wire.messages.cluster import Peer

ID = b"0123456789abcdef"
_OWN_IDS = DiskIds("d1", "d2")


@final
class ProcessEndedError(BaseException):
    """End of the process at this call."""


def opened(disk: FaultyDisk, *, node_id: int = 1, disk_ids: DiskIds = _OWN_IDS) -> DataDirectory:
    return open_data_directory(disk, node_id=node_id, disk_ids=disk_ids)


def test_a_new_data_directory_gets_a_lasting_identity() -> None:
    disk = FaultyDisk()

    first = opened(disk, disk_ids=DiskIds("a1", "a2"))
    first.release()
    again = opened(disk, disk_ids=DiskIds("b1", "b2"))

    assert first.was_clean
    assert again.identity == first.identity == NodeIdentity(1, "", "a1", "a2")
    assert again.peer == Peer(1, b"\xa2")
    assert not again.has_old_catalog


def test_the_node_identity_survives_a_power_cut_right_after_the_start() -> None:
    for seed in range(10):
        disk = FaultyDisk()
        opened(disk, disk_ids=DiskIds("a1", "a2"))

        again = opened(disk.power_cut(Random(seed)), disk_ids=DiskIds("b1", "b2"))

        assert (again.identity.disk_id, again.identity.metadata_disk_id) == ("a1", "a2")


@pytest.mark.parametrize("seed", range(10))
def test_the_cluster_id_of_a_data_directory_is_lasting(seed: int) -> None:
    disk = FaultyDisk()
    directory = opened(disk)
    assert directory.cluster_id == ""

    directory.settle("a cluster")

    assert directory.cluster_id == "a cluster"
    disk = disk.power_cut(Random(seed))
    again = opened(disk)
    assert again.identity == NodeIdentity(1, "a cluster", "d1", "d2")
    changes = len(disk.changes)
    again.settle("a cluster")
    assert len(disk.changes) == changes, "an unchanged identity is not written"


@pytest.mark.parametrize("seed", range(10))
def test_the_metadata_may_get_another_peer_id_while_the_logs_stay(seed: int) -> None:
    disk = FaultyDisk()
    directory = opened(disk)
    directory.settle("a cluster")

    directory.renew_peer(b"\xff\xee")

    assert directory.peer == Peer(1, b"\xff\xee")
    again = opened(disk.power_cut(Random(seed)))
    assert again.identity == NodeIdentity(1, "a cluster", "d1", "ffee")


@pytest.mark.parametrize("seed", range(10))
def test_a_data_directory_from_before_clusters_keeps_its_identity(seed: int) -> None:
    disk = FaultyDisk()
    write_small_file(disk, "node", [1, "its cluster", "d0"])

    directory = opened(disk)

    assert directory.has_old_catalog
    assert directory.cluster_id == "its cluster"
    assert directory.peer == Peer(1, b"\xd0"), "the id of the disk, since there is no other"
    directory.settle("its cluster")
    again = opened(disk.power_cut(Random(seed)))
    assert not again.has_old_catalog
    assert again.identity == NodeIdentity(1, "its cluster", "d0", "d0")


def test_a_directory_in_use_is_refused_with_the_process_id() -> None:
    disk = FaultyDisk()
    holder = opened(disk)

    with pytest.raises(DataDirectoryError, match="is in use by process 1; stop it or choose"):
        opened(disk)

    holder.release()
    opened(disk)


def test_the_directory_of_another_node_is_refused_with_its_node_id() -> None:
    disk = FaultyDisk()
    opened(disk, node_id=3).release()

    with pytest.raises(DataDirectoryError, match="node 3, this is node 4; use --node-id 3"):
        opened(disk, node_id=4)

    opened(disk, node_id=3)  # The attempt has not left it locked.


@pytest.mark.parametrize("data", ["topics", "metadata"])
def test_data_without_a_node_identity_is_refused(data: str) -> None:
    disk = FaultyDisk()
    disk.make_directory(data)

    with pytest.raises(DataDirectoryError, match="has data, but not the file 'node'"):
        opened(disk)

    assert disk.locked_paths == set()


def test_a_damaged_node_identity_is_refused_rather_than_replaced() -> None:
    disk = FaultyDisk()
    opened(disk).release()
    disk.flip_bit("node", 20, 1)

    with pytest.raises(DataDirectoryError, match="start the broker with an empty one"):
        opened(disk)

    assert disk.locked_paths == set()


def test_the_mark_of_a_clean_stop_is_used_once() -> None:
    disk = FaultyDisk()
    directory = opened(disk)
    directory.mark_clean(now_ms=5, broker_epoch=7)
    directory.release()

    second = opened(disk)
    second.release()
    third = opened(disk)

    assert (second.was_clean, third.was_clean) == (True, False)
    assert (second.clean_stop_epoch, third.clean_stop_epoch) == (7, None)


def test_a_mark_from_before_broker_epochs_has_none() -> None:
    disk = FaultyDisk()
    opened(disk).release()
    write_small_file(disk, "clean-shutdown", [5])

    directory = opened(disk)

    assert directory.was_clean
    assert directory.clean_stop_epoch is None


def test_an_unreadable_mark_of_a_clean_stop_is_ignored() -> None:
    disk = FaultyDisk()
    directory = opened(disk)
    directory.mark_clean(now_ms=5, broker_epoch=7)
    directory.release()
    disk.flip_bit("clean-shutdown", 12, 1)

    assert not opened(disk).was_clean


def test_the_mark_of_a_clean_stop_does_not_return_with_a_power_cut() -> None:
    for seed in range(10):
        disk = FaultyDisk()
        directory = opened(disk)
        directory.mark_clean(now_ms=5, broker_epoch=7)
        directory.release()
        opened(disk)

        assert not opened(disk.power_cut(Random(seed))).was_clean


def test_a_stop_is_clean_only_when_its_mark_is_synced() -> None:
    for seed in range(10):
        disk = FaultyDisk()
        directory = opened(disk)
        directory.mark_clean(now_ms=5, broker_epoch=7)

        assert opened(disk.power_cut(Random(seed))).was_clean


def test_a_crash_at_any_disk_call_of_a_start_leaves_a_usable_directory() -> None:
    complete = FaultyDisk()
    opened(complete)
    for last in range(len(complete.changes)):
        disk = FaultyDisk()
        disk.before_call = end_process_after(disk, last)
        with pytest.raises((ProcessEndedError, StaleHandleError)):
            opened(disk, disk_ids=DiskIds("a1", "a2"))
        for after in (disk.kill(), disk.power_cut(Random(last))):
            found = opened(after, disk_ids=DiskIds("b1", "b2")).identity
            assert (found.disk_id, found.metadata_disk_id) in {("a1", "a2"), ("b1", "b2")}


def test_a_failed_disk_is_not_left_locked() -> None:
    disk = FaultyDisk()
    disk.fail("sync")

    with pytest.raises(OSError, match="Input/output error"):
        opened(disk)

    assert disk.locked_paths == set()
    opened(disk)


def test_topics_of_one_name_have_separate_directories() -> None:
    directory = opened(FaultyDisk())

    assert directory.partition_directory("orders", ID, 3) == (
        "topics/orders.30313233343536373839616263646566/3"
    )
    assert directory.topic_directory("orders", bytes(16)) != directory.topic_directory("orders", ID)


def test_the_longest_names_fit_into_a_directory_name() -> None:
    directory = opened(FaultyDisk())
    longest, other = "a" * 249, "a" * 248 + "b"

    assert len(directory.topic_directory(longest, ID).removeprefix("topics/")) <= 255
    assert directory.topic_directory(longest, ID) != directory.topic_directory(other, bytes(16))


def test_stored_topics_are_directories_with_an_id() -> None:
    disk = FaultyDisk()
    directory = opened(disk)
    for name in ("orders." + ID.hex(), "a.b-c_d." + bytes(16).hex()):
        disk.make_directory(f"topics/{name}/0")
    for stranger in ("orders", "abcd", "orders.abcd", "orders." + "0" * 33, "orders." + "X" * 32):
        disk.make_directory(f"topics/{stranger}")

    assert directory.stored_topics() == [("a.b-c_d", bytes(16)), ("orders", ID)]


def test_a_topic_that_is_set_aside_is_no_longer_stored_and_removed_later() -> None:
    disk = FaultyDisk()
    directory = opened(disk)
    disk.make_directory(directory.partition_directory("orders", ID, 0))
    write_small_file(disk, directory.partition_directory("orders", ID, 0) + "/checkpoint", 1)

    directory.set_aside("orders", ID)
    directory.set_aside("orders", ID)  # A second start after a crash repeats it.

    assert directory.stored_topics() == []
    assert disk.exists(f"deleted/{ID.hex()}/0/checkpoint")
    directory.remove_deleted()
    directory.remove_deleted()
    assert not disk.exists("deleted")


def end_process_after(disk: FaultyDisk, count: int) -> Callable[[str, str], None]:
    """Return a hook that ends the process after so many changing calls."""

    def end(operation: str, path: str) -> None:
        del operation
        if len(disk.changes) > count:
            raise ProcessEndedError(path)

    return end
