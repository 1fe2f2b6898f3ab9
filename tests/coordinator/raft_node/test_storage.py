"""The durable state of a voter, under crashes and damage."""

# Empties the cache of open files.
# pyright: reportPrivateUsage=false

import errno
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from random import Random

import msgspec
import pytest

from tests.logstore.crashes import POWER_CUTS, crash
from tests.simulation.machine.faulty_disk import FaultyDisk
from tidelog.coordinator.metadata.catalog import TopicCreated
from tidelog.coordinator.raft.membership import Identity, Membership
from tidelog.coordinator.raft.messages import Entry, EntryKind, SnapshotMeta
from tidelog.coordinator.raft.ready import HardState
from tidelog.coordinator.raft_node.storage import (
    CONFIG,
    OWNER,
    DamagedStorageError,
    RaftStorage,
    Stored,
    StoredSnapshot,
    Vote,
    found_raft_storage,
    is_founded,
    open_raft_storage,
)
from tidelog.logstore.checkpoint import write_small_file
from tidelog.logstore.recovery.recovery import open_log
from tidelog.logstore.segments.file_cache import FileCache
from tidelog.logstore.segments.segment import segment_path
from tidelog.wire.batch.record_batch import Columns, encode_batch, parse_header
from tidelog.wire.errors import DataDirectoryError, DiskFullError, LogOfflineError, OverloadedError

DIRECTORY = "metadata"
NOW_MS = 1_700_000_000_000
ME = Identity(1, b"disk of 1")
OTHER = Identity(2, b"disk of 2")
MEMBERSHIP = Membership.of_voters([ME, OTHER])


def entry(index: int, term: int = 1, payload: bytes | None = None) -> Entry:
    content = b"entry %d of %d" % (index, term) if payload is None else payload
    return Entry(index, term, EntryKind.COMMAND, content)


def entries(first: int, last: int, term: int = 1) -> list[Entry]:
    """Return entries, both ends inclusive."""
    return [entry(index, term) for index in range(first, last + 1)]


def snapshot(index: int, term: int = 1) -> StoredSnapshot:
    return StoredSnapshot(SnapshotMeta(index, term, MEMBERSHIP), b"state at %d" % index)


def vote(term: int, voted_for: Identity | None = None) -> Vote:
    return Vote(ME, "a cluster", HardState(term, voted_for))


def reopen(disk: FaultyDisk) -> tuple[RaftStorage, Stored]:
    storage, stored, _ = open_raft_storage(DIRECTORY, FileCache(disk), now_ms=NOW_MS)
    return storage, stored


def founded(disk: FaultyDisk | None = None) -> tuple[FaultyDisk, RaftStorage]:
    disk = disk or FaultyDisk()
    found_raft_storage(disk, DIRECTORY, vote(0), snapshot=snapshot(0, 0))
    return disk, reopen(disk)[0]


def test_a_new_voter_has_a_membership_and_no_entries() -> None:
    disk, _ = founded()

    assert reopen(disk.power_cut(Random(0)))[1] == Stored(vote(0), snapshot(0, 0), [])


def test_a_voter_directory_is_initialized_by_its_vote() -> None:
    disk = FaultyDisk()
    assert not is_founded(disk, DIRECTORY)

    found_raft_storage(disk, DIRECTORY, vote(0), snapshot=snapshot(0, 0))

    assert is_founded(disk, DIRECTORY)


@pytest.mark.invariant("I66")
@pytest.mark.parametrize("seed", POWER_CUTS)
def test_votes_and_entries_are_durable_when_the_call_returns(seed: int) -> None:
    disk, storage = founded()
    storage.save_vote(vote(4, OTHER))
    kinds = [EntryKind.TERM_START, EntryKind.MEMBERSHIP, EntryKind.COMMAND]
    written = [Entry(number + 1, 4, kind, b"%d" % number) for number, kind in enumerate(kinds)]
    storage.append(written, now_ms=NOW_MS)

    assert reopen(disk.power_cut(Random(seed)))[1] == Stored(
        vote(4, OTHER), snapshot(0, 0), written
    )


def test_appended_entries_replace_conflicting_ones() -> None:
    disk, storage = founded()
    storage.append(entries(1, 10, term=1), now_ms=NOW_MS)

    storage.append(entries(5, 6, term=3), now_ms=NOW_MS)

    assert storage.last_index == 6
    assert reopen(disk.kill())[1].entries == [*entries(1, 4), *entries(5, 6, term=3)]


@pytest.mark.invariant("I69")
def test_an_installed_snapshot_replaces_the_log() -> None:
    disk, storage = founded()
    storage.append(entries(1, 10), now_ms=NOW_MS)

    storage.install(snapshot(7, term=2), now_ms=NOW_MS)
    assert storage.last_index == 7
    storage.append(entries(8, 9, term=2), now_ms=NOW_MS)

    stored = reopen(disk.power_cut(Random(1)))[1]
    assert stored.snapshot == snapshot(7, term=2)
    assert stored.entries == entries(8, 9, term=2)


def test_an_own_snapshot_removes_old_entries_and_keeps_later_ones() -> None:
    disk, storage = founded()
    large = [entry(index, 1, b"x" * (1 << 20)) for index in range(1, 61)]
    storage.append(large, now_ms=NOW_MS)
    before_bytes = storage.size_bytes

    storage.compact(snapshot(50), keep_entries=3, now_ms=NOW_MS)

    assert storage.size_bytes < before_bytes / 2
    assert storage.last_index == 60
    stored = reopen(disk.kill())[1]
    assert stored.snapshot == snapshot(50)
    assert stored.entries == large[50:]


def test_a_snapshot_may_cover_the_whole_log() -> None:
    disk, storage = founded()
    storage.append(entries(1, 10), now_ms=NOW_MS)

    storage.compact(snapshot(10), keep_entries=0, now_ms=NOW_MS)
    storage.append(entries(11, 12), now_ms=NOW_MS)

    assert reopen(disk.kill())[1] == Stored(vote(0), snapshot(10), entries(11, 12))


# Crashes


@dataclass
class Told:
    """The history of a voter, with the state that it was told to be durable."""

    disk: FaultyDisk
    storage: RaftStorage
    states: list[Stored] = field(default_factory=list[Stored])
    """The states that a start may find: the last durable one, and those under way."""

    def doing(self, do: Callable[[], None], *after: Stored) -> None:
        """Make a call that leads to the last of `after`, maybe over the others."""
        self.states += after
        do()
        self.states = [after[-1]]


def life(told: Told) -> None:
    """Make every call of a voter, once."""
    storage = told.storage
    old = Stored(vote(0), snapshot(0, 0), [])
    told.states = [old]
    voted = msgspec.structs.replace(old, vote=vote(1, OTHER))
    told.doing(lambda: storage.save_vote(vote(1, OTHER)), voted)
    prefixes = [msgspec.structs.replace(voted, entries=entries(1, last)) for last in range(1, 7)]
    told.doing(lambda: storage.append(entries(1, 6), now_ms=NOW_MS), *prefixes)
    replaced = [
        msgspec.structs.replace(voted, entries=[*entries(1, 3), *entries(4, last, term=2)])
        for last in (3, 4, 5)
    ]
    told.doing(lambda: storage.append(entries(4, 5, term=2), now_ms=NOW_MS), *replaced)
    compacted = msgspec.structs.replace(
        replaced[-1], snapshot=snapshot(3), entries=entries(4, 5, term=2)
    )
    told.doing(lambda: storage.compact(snapshot(3), keep_entries=1, now_ms=NOW_MS), compacted)
    # The leader has 4 and 5 in another term: no part of them may be left.
    installed = msgspec.structs.replace(compacted, snapshot=snapshot(4, term=3), entries=[])
    told.doing(lambda: storage.install(snapshot(4, term=3), now_ms=NOW_MS), installed)
    further = msgspec.structs.replace(installed, snapshot=snapshot(90, term=3))
    told.doing(lambda: storage.install(snapshot(90, term=3), now_ms=NOW_MS), further)
    last = [msgspec.structs.replace(further, entries=entries(91, end, term=3)) for end in (91, 92)]
    told.doing(lambda: storage.append(entries(91, 92, term=3), now_ms=NOW_MS), *last)


def crashed_lives() -> Iterator[Told]:
    for number in count():
        told = Told(*founded())
        if crash(told.disk, number, partial(life, told)) is None:
            assert number > 30, "there is much to crash in"
            return
        yield told


@pytest.mark.invariant("I66", "I72")
@pytest.mark.parametrize("seed", [None, *POWER_CUTS])
def test_a_crash_at_any_disk_call_loses_no_durable_raft_state(
    seed: int | None,
) -> None:
    for told in crashed_lives():
        disk = told.disk.kill() if seed is None else told.disk.power_cut(Random(seed))

        storage, stored = reopen(disk)

        assert stored in told.states
        storage.append([entry(storage.last_index + 1, 9)], now_ms=NOW_MS)
        again = reopen(disk.kill())[1]
        assert again.entries == [*stored.entries, entry(storage.last_index, 9)]


@pytest.mark.parametrize("seed", POWER_CUTS)
def test_a_crash_during_the_initialization_leaves_no_voter_or_a_whole_one(seed: int) -> None:
    for number in count():
        disk = FaultyDisk()
        found = partial(found_raft_storage, disk, DIRECTORY, vote(0), snapshot=snapshot(0, 0))
        if crash(disk, number, found) is None:
            return
        after = disk.power_cut(Random(seed))
        if is_founded(after, DIRECTORY):
            assert reopen(after)[1] == Stored(vote(0), snapshot(0, 0), [])


# Damage


def written() -> FaultyDisk:
    disk, storage = founded()
    storage.append(entries(1, 10), now_ms=NOW_MS)
    storage.close()
    return disk.power_cut(Random(0))


@pytest.mark.invariant("I71")
@pytest.mark.parametrize("name", ["vote", "snapshot"])
def test_a_damaged_or_missing_vote_or_snapshot_is_refused(name: str) -> None:
    disk = written()
    path = f"{DIRECTORY}/{name}"
    disk.damage(path, 20, b"??")
    with pytest.raises(DamagedStorageError, match=f"{name} does not match"):
        reopen(disk)

    disk.remove(path)
    with pytest.raises(DamagedStorageError, match=f"{name} is missing"):
        reopen(disk)


@pytest.mark.invariant("I71")
def test_a_damaged_entry_does_not_truncate_the_log() -> None:
    disk = written()
    disk.damage(segment_path(DIRECTORY, 0), 300, b"damage")

    with pytest.raises(DamagedStorageError, match="is damaged"):
        reopen(disk)


def test_a_log_that_begins_behind_its_snapshot_is_refused() -> None:
    disk, storage = founded()
    storage.install(snapshot(50), now_ms=NOW_MS)
    write_small_file(disk, f"{DIRECTORY}/snapshot", snapshot(20))

    with pytest.raises(DamagedStorageError, match="begins behind its snapshot"):
        reopen(disk)


# Bad disks


def test_an_append_to_a_full_disk_can_be_retried() -> None:
    disk, storage = founded()
    storage.append(entries(1, 3), now_ms=NOW_MS)
    names = disk.list_directory(DIRECTORY)
    disk.capacity_bytes = sum(disk.open(f"{DIRECTORY}/{name}").size() for name in names)
    with pytest.raises(DiskFullError):
        storage.append(entries(4, 6), now_ms=NOW_MS)
    disk.capacity_bytes = None

    storage.append(entries(4, 6), now_ms=NOW_MS)

    assert reopen(disk.power_cut(Random(3)))[1].entries == entries(1, 6)


def test_an_append_without_file_descriptors_can_be_retried() -> None:
    disk, storage = founded()
    storage.append(entries(1, 3), now_ms=NOW_MS)
    disk.fail("open", error_number=errno.EMFILE, count=2)
    storage._files.clear()
    with pytest.raises(OverloadedError):
        storage.append(entries(4, 6), now_ms=NOW_MS)

    storage.append(entries(4, 6), now_ms=NOW_MS)

    assert reopen(disk.power_cut(Random(3)))[1].entries == entries(1, 6)


def test_a_snapshot_install_on_a_full_disk_can_be_retried() -> None:
    first, has_failed = 0, True
    while has_failed:
        disk, storage = founded()
        storage.append(entries(1, 30), now_ms=NOW_MS)
        calls, has_failed = 0, False

        def fill_up(operation: str, path: str) -> None:
            nonlocal calls, has_failed
            if operation in {"create", "write_at"} and not has_failed:
                calls += 1
                if calls > first:  # noqa: B023  (called before it changes)
                    has_failed = True
                    raise OSError(errno.ENOSPC, "No space left on device", path)

        disk.before_call = fill_up
        try:
            storage.install(snapshot(40), now_ms=NOW_MS)
        except (OSError, DiskFullError):
            storage.install(snapshot(40), now_ms=NOW_MS)
        disk.before_call = None
        storage.append(entries(41, 43), now_ms=NOW_MS)

        _, stored = reopen(disk.power_cut(Random(first)))
        assert stored.snapshot == snapshot(40)
        assert stored.entries == entries(41, 43)
        first += 1
    assert first > 4


def test_a_failed_fsync_takes_the_storage_offline() -> None:
    disk, storage = founded()
    disk.fail("sync")

    with pytest.raises(LogOfflineError, match="offline"):
        storage.append(entries(1, 3), now_ms=NOW_MS)
    with pytest.raises(LogOfflineError, match="offline"):
        storage.append(entries(1, 3), now_ms=NOW_MS)


# Logs of earlier versions


def test_a_log_with_catalog_records_only_is_read() -> None:
    disk = FaultyDisk()
    record = TopicCreated("orders", b"0123456789abcdef", 3, {})
    log, _ = open_log(DIRECTORY, OWNER, FileCache(disk), config=CONFIG, now_ms=NOW_MS)
    values = [msgspec.msgpack.encode(record)] * 2
    batch = memoryview(encode_batch(Columns(2, values=values), first_timestamp_ms=NOW_MS))
    header = parse_header(batch)
    assert header is not None
    log.append(batch, header, leader_epoch=0, now_ms=NOW_MS)
    flush = log.begin_flush()
    assert flush is not None
    flush.run()
    found_raft_storage(disk, DIRECTORY, vote(0), snapshot=snapshot(0, 0))

    stored = reopen(disk.kill())[1]

    assert [each.index for each in stored.entries] == [1, 2]
    assert {each.kind for each in stored.entries} == {EntryKind.COMMAND}
    assert msgspec.msgpack.decode(stored.entries[0].payload, type=list[TopicCreated]) == [record]


def test_an_entry_of_a_newer_version_is_refused_and_is_no_damage() -> None:
    disk, storage = founded()
    storage.close()
    log, _ = open_log(DIRECTORY, OWNER, FileCache(disk), config=CONFIG, now_ms=NOW_MS)
    batch = memoryview(encode_batch(Columns(1, values=[b"\x07"]), first_timestamp_ms=NOW_MS))
    header = parse_header(batch)
    assert header is not None
    log.append(batch, header, leader_epoch=1, now_ms=NOW_MS)

    with pytest.raises(DataDirectoryError, match=r"entry 1 is of the unknown kind 7; use the"):
        reopen(disk)
