"""Tests of the small files of a data directory, and of newer versions of them."""

import struct

import pytest
from crc32c import crc32c

from tests.simulation.machine.faulty_disk import FaultyDisk
from tidelog.broker.inspection.file_kinds import FileKind
from tidelog.broker.inspection.small_files import SMALL_FILES, small_file_line
from tidelog.broker.partitions.data_directory import CleanShutdown, NodeIdentity, WantedRecovery
from tidelog.broker.partitions.idle_replicas import IdleLogsContent, IdleReplica
from tidelog.broker.partitions.replica_manifest import ManifestContent, SuspectReplica
from tidelog.coordinator.raft.membership import Identity, Membership
from tidelog.coordinator.raft.messages import SnapshotMeta
from tidelog.coordinator.raft.ready import HardState
from tidelog.coordinator.raft_node.storage import StoredSnapshot, Vote
from tidelog.coordinator.security.commands import SetAdministrator
from tidelog.logstore.checkpoint import write_small_file

VOTER = Identity(1, b"a disk")
CONTENTS = {
    FileKind.NODE: NodeIdentity(1, "c", "d"),
    FileKind.CLEAN_SHUTDOWN: CleanShutdown(7, 3),
    FileKind.RECOVERY: WantedRecovery(SetAdministrator("root", None, "01", b"", 1)),
    FileKind.REPLICAS: ManifestContent([(b"\x01", [0, 1])], [SuspectReplica(b"\x01", 1, True)]),
    FileKind.IDLE_LOGS: IdleLogsContent([(b"\x01", 0, IdleReplica(5, 0, 64, 0, 0, 64, None))]),
    FileKind.VOTE: Vote(VOTER, "c", HardState()),
    FileKind.SNAPSHOT: StoredSnapshot(SnapshotMeta(0, 0, Membership((VOTER,))), b""),
}


def written(kind: FileKind) -> FaultyDisk:
    disk = FaultyDisk()
    write_small_file(disk, kind.value, CONTENTS[kind])
    return disk


def test_all_small_files_but_the_log_checkpoint_are_covered() -> None:
    assert CONTENTS.keys() | {FileKind.CHECKPOINT} == SMALL_FILES.keys()


@pytest.mark.parametrize("kind", CONTENTS)
def test_all_fields_of_small_files_are_shown_by_name(kind: FileKind) -> None:
    line = small_file_line(written(kind), kind.value, kind)

    names = CONTENTS[kind].__struct_fields__
    assert list(line) == ["file", "type", "format_version", *names]


@pytest.mark.parametrize("kind", CONTENTS)
def test_a_newer_version_of_a_small_file_is_refused_in_one_line(kind: FileKind) -> None:
    disk = written(kind)
    data = disk.visible_bytes(kind.value)
    prefix = data[:4] + struct.pack("<H", 2) + data[6:12]
    crc = struct.pack("<I", crc32c(data[16:], crc32c(prefix)))
    disk.put_back(kind.value, prefix + crc + data[16:])

    line = small_file_line(disk, kind.value, kind)

    assert line["reason"] == (
        f"/faulty/{kind.value} has format version 2, this tidelog reads 1; use the version that"
        " wrote it, or a newer one"
    )


def test_a_snapshot_of_a_newer_version_is_not_guessed() -> None:
    disk = FaultyDisk()
    write_small_file(
        disk, "snapshot", StoredSnapshot(SnapshotMeta(3, 1, Membership((VOTER,))), b"\x91\xa1x")
    )

    line = small_file_line(disk, "snapshot", FileKind.SNAPSHOT)

    assert str(line["reason"]).startswith("the contents of the snapshot cannot be decoded, a newer")
