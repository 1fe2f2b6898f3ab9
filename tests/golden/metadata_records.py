"""The records of the metadata log, as a golden file: `python -m tests.golden.metadata_records`.

One line for each record of any version: its bytes, and the result of an independent decoder. Lines
are added and never changed, or else existing logs become unreadable.
"""

from pathlib import Path

import msgpack
import msgspec
from msgspec.structs import replace

from tidelog.coordinator.metadata import catalog
from tidelog.coordinator.metadata.records import (
    BrokerChanged,
    BrokerDrained,
    BrokerRegistered,
    BrokerRegistration,
    BrokerUnregistered,
    ChangedPartition,
    ChangedTopic,
    ClusterConfigSet,
    ClusterEvent,
    DataLossAccepted,
    EqualPartitions,
    EqualPartitionsChanged,
    EventsAcknowledged,
    FeatureLevelSet,
    LogEnd,
    PartitionRegistration,
    PartitionsAdded,
    PartitionsChanged,
    Record,
    RefusingReplica,
    UnverifiedReplica,
)
from tidelog.coordinator.metadata.transactions import (
    UNBOUND,
    AppendedPart,
    OpenTransaction,
    PartsAppended,
    TransactionBegun,
    TransactionCommitted,
    TransactionNamesForgotten,
    TransactionProlonged,
    TransactionsDropped,
)
from tidelog.coordinator.security.records import (
    AccessKeyRemoved,
    AccessKeySet,
    DataKeySet,
    DataKeysRemoved,
    Grant,
    GrantsChanged,
    QuotaSet,
    RoleRemoved,
    RoleSet,
    ScramCredential,
    TokenRemoved,
    TokenSet,
    UserRemoved,
    UserSet,
)
from tidelog.wire.messages.features import SupportedLevels
from tidelog.wire.messages.transactions import StagedPart, StagedPiece

FILE = Path(__file__).parent / "metadata_records_v1.hex"
TOPIC_ID = bytes(range(0xA0, 0xB0))
STAGING_ID = bytes(range(0xC0, 0xD0))
JOURNAL_ID = bytes(range(0xB0, 0xC0))
BROKER = BrokerRegistration(
    1,
    "disk-1",
    "process-2",
    7,
    "broker-1.example",
    8433,
    "rack-a",
    is_fenced=False,
    replaced_incarnation_ids=("process-1",),
)
HEALTHY = PartitionRegistration((1, 2, 3), (1, 2, 3), leader=1)
MOVING = PartitionRegistration(
    replicas=(4, 2, 3, 1),
    in_sync_replicas=(3,),
    eligible_leader_replicas=(2, 1),
    leader=3,
    leader_epoch=300,
    partition_epoch=70_000,
    adding_replicas=(4,),
    removing_replicas=(1,),
    data_loss_epoch=12,
    offline_replicas=(1,),
    wiped_replicas=(4,),
)
REFUSED = PartitionRegistration(
    (1, 2, 3), (1, 2), leader=1, refusing_replicas=(RefusingReplica(3, 300, 70_000),)
)
LEADERLESS = PartitionRegistration((1, 2), (), (1,), None, 4, 9, 1)
UNVERIFIED = PartitionRegistration(
    (1, 2),
    (),
    (1,),
    last_known_leader=2,
    unverified_replicas=(
        UnverifiedReplica(1),
        UnverifiedReplica(2, LogEnd(4, 70_000, is_whole=True)),
    ),
)

CREATED = catalog.TopicCreated("orders", TOPIC_ID, 3, {"retention_ms": "1h"})
ALTERED = catalog.TopicAltered(TOPIC_ID, {"durability": "replicated"})
QUEUE = catalog.QueueSpec(
    TOPIC_ID,
    is_fifo=True,
    start_offsets=(0, 300, 70_000),
    created_at_ms=1_700_000_000_000,
    receipt_key=bytes(range(32)),
    frozen={"deduplication_scope": "group"},
    overrides={"priority_weights": "none"},
)
JOURNAL_CREATED = catalog.TopicCreated(
    "queue@billing", JOURNAL_ID, 3, {"retention_ms": "unlimited"}, QUEUE
)

RECORDS: list[Record] = [
    CREATED,
    ALTERED,
    catalog.TopicDeleted(TOPIC_ID),
    catalog.ProducerIdsTaken(1001),
    catalog.TopicGrown(TOPIC_ID, 5),
    BrokerRegistered(BROKER),
    BrokerChanged(1, is_fenced=True, is_shutting_down=False),
    BrokerUnregistered(1),
    PartitionsAdded(TOPIC_ID, [HEALTHY, HEALTHY]),
    PartitionsChanged(
        [ChangedTopic(TOPIC_ID, [ChangedPartition(0, MOVING), ChangedPartition(1, LEADERLESS)])]
    ),
    DataLossAccepted(TOPIC_ID, 1, 2, 5, 1, (1, 3), 1_700_000_000_000),
    ClusterConfigSet({"default_replication_factor": "3"}),
    BrokerDrained(1, is_drained=True),
    CREATED,
    ALTERED,
    JOURNAL_CREATED,
    catalog.TopicAltered(JOURNAL_ID, {"retention_ms": "unlimited"}, {"max_receive_count": "5"}),
    CREATED,
    JOURNAL_CREATED,
    catalog.TopicCreated("staged@orders", STAGING_ID, 3, {}, staging_of=TOPIC_ID),
    TransactionBegun("query-1", OpenTransaction(7, 300, 1_700_000_000_000, 1_700_003_600_000)),
    TransactionProlonged("query-1", 1_700_007_200_000),
    TransactionCommitted(
        "query-1",
        70_000,
        [StagedPart(TOPIC_ID, 1, [StagedPiece(1001, 0, 300, 200), StagedPiece(1002, 9, 10, 1)])],
        1_700_000_001_000,
    ),
    TransactionsDropped(["query-1", "query-2"]),
    PartsAppended([AppendedPart(70_000, TOPIC_ID, 1), AppendedPart(1, TOPIC_ID, 0, is_lost=True)]),
    TransactionNamesForgotten(["query-1"]),
    PartitionsAdded(TOPIC_ID, [HEALTHY, HEALTHY]),
    PartitionsChanged([ChangedTopic(TOPIC_ID, [ChangedPartition(0, UNVERIFIED)])]),
    BrokerChanged(1, is_fenced=False, is_shutting_down=False, directory_epoch=7),
    BrokerRegistered(replace(BROKER, directory_epoch=6)),
    PartitionsChanged(
        [
            ChangedTopic(
                TOPIC_ID,
                [
                    ChangedPartition(0, MOVING),
                    ChangedPartition(1, LEADERLESS),
                    ChangedPartition(2, REFUSED),
                ],
            )
        ]
    ),
    ClusterEvent(
        300,
        1_700_000_000_000,
        "records_lost",
        TOPIC_ID,
        "orders",
        1,
        2,
        5,
        585,
        70_000,
        "broker 2 removed 69,415 committed records, which broker 1, the leader, lacks",
        is_reported=True,
    ),
    EventsAcknowledged([1, 300]),
    BrokerChanged(1, True, False, supported_levels=SupportedLevels(0, 1)),
    BrokerRegistered(replace(BROKER, directory_epoch=6, supported_levels=SupportedLevels(0, 1))),
    FeatureLevelSet(1),
    catalog.TopicLabelsSet(TOPIC_ID, {"team": "billing"}),
    UserSet("alice", ScramCredential(b"a salt", 600_000, bytes(range(32)), bytes(32))),
    UserSet("service@example.com", None),
    UserRemoved("alice"),
    TokenSet("7f3a", "alice", bytes(range(32)), 1_700_000_000_000, 1_700_003_600_000, "ci"),
    TokenRemoved("7f3a"),
    RoleSet("writers", ("alice", "bob")),
    RoleRemoved("writers"),
    GrantsChanged(
        (Grant("role:writers", "topic", "orders*", ("read", "write")),),
        (Grant("user:alice", "queue", "billing", ("*",), is_deny=True),),
    ),
    QuotaSet("user:alice", {"requests_per_s": 100}),
    DataKeySet(TOPIC_ID, 1, b"a wrapped key", "master-1", 1_700_000_000_000),
    DataKeysRemoved(TOPIC_ID, (1,)),
    catalog.TopicOwned(TOPIC_ID, "user:alice"),
    TransactionCommitted(
        "query-1",
        70_001,
        [StagedPart(TOPIC_ID, 1, [StagedPiece(1001, 300, 310, 10)])],
        1_700_000_002_000,
        transaction_id=8,
        next=OpenTransaction(UNBOUND, 302, 1_700_000_002_000, 1_700_000_062_000),
    ),
    TransactionCommitted("spark-1", 70_002, [], 1_700_000_003_000, is_last=True),
    EqualPartitionsChanged([EqualPartitions(HEALTHY, [(TOPIC_ID, [0, 300]), (JOURNAL_ID, [1])])]),
    AccessKeySet(
        "TDLAABCDEFGHIJKLMNOP",
        "alice",
        "111122223333",
        bytes(range(32)),
        bytes(range(8)),
        1_700_000_000_000,
        "ci",
        is_enabled=False,
    ),
    AccessKeyRemoved("TDLAABCDEFGHIJKLMNOP"),
    catalog.QueueModified(JOURNAL_ID, 1_700_000_004_000),
]
IN_OLDER_FORM = (0, 1, 5, 6, 8, 9, 13, 15, 22, 28, 29)
"""Lines of records that have more fields now, with new lines further below."""


def line(record: Record) -> str:
    """Return the line of one record."""
    data = msgspec.msgpack.encode(record)
    return f"{data.hex()} {msgpack.unpackb(data)!r}"


if __name__ == "__main__":
    kept = FILE.read_text(encoding="utf-8").splitlines()
    written = [
        kept[number] if number in IN_OLDER_FORM else line(record)
        for number, record in enumerate(RECORDS)
    ]
    FILE.write_text("".join(f"{each}\n" for each in written), encoding="utf-8")
