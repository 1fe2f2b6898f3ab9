"""The small files of a data directory, as golden files: one of each kind.

Node 2 belongs to a cluster of one voter; a topic has partitions 0 and 3 there, and partition 3 has
lost records. The node was stopped in order, with closed logs.
"""

import msgspec

from tests.simulation.machine.faulty_disk import FaultyDisk
from tidelog.broker.partitions.data_directory import CleanShutdown, NodeIdentity
from tidelog.broker.partitions.idle_replicas import IdleLogsContent, IdleReplica
from tidelog.broker.partitions.replica_manifest import ManifestContent, SuspectReplica
from tidelog.coordinator.raft.membership import Identity, Membership
from tidelog.coordinator.raft.messages import SnapshotMeta
from tidelog.coordinator.raft.ready import HardState
from tidelog.coordinator.raft_node.storage import StoredSnapshot, Vote
from tidelog.logstore.checkpoint import write_small_file

VOTER = Identity(2, b"disk of two!")
TOPIC_ID = bytes(range(0xA0, 0xB0))
CLUSTER_ID = "5f3a9c1e7b2d4f60a8c1e3d5"
SMALL_FILES: dict[str, msgspec.Struct] = {
    "node": NodeIdentity(2, CLUSTER_ID, "0123456789abcdef01234567", VOTER.disk_id.hex(), True, 17),
    "replicas": ManifestContent([(TOPIC_ID, [0, 3])], [SuspectReplica(TOPIC_ID, 3, False)]),
    "idle_logs": IdleLogsContent(
        [
            (TOPIC_ID, 0, IdleReplica(0x1234ABCD, 0, 64, 0, 0, 64, None)),
            (TOPIC_ID, 3, IdleReplica(0x5678ABCD, 9, 512, 4, 17, 900, 1_700_600_000_000, True)),
        ]
    ),
    "clean_shutdown": CleanShutdown(1_700_000_000_000, 17),
    "vote": Vote(VOTER, CLUSTER_ID, HardState(4, VOTER)),
    "snapshot": StoredSnapshot(SnapshotMeta(0, 0, Membership((VOTER,))), b""),
}


def small_files() -> dict[str, bytes]:
    """Return the names of the golden files with their present encoding."""
    disk = FaultyDisk()
    for name, content in SMALL_FILES.items():
        write_small_file(disk, name, content)
    return {f"{name}_v1.bin": disk.visible_bytes(name) for name in SMALL_FILES}
