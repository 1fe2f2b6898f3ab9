"""Encoding of commands and their replies."""

import pytest

from tidelog.coordinator.metadata.catalog import (
    AlterTopic,
    CreateTopic,
    DeleteTopic,
    TakeProducerIds,
)
from tidelog.coordinator.metadata.commands import (
    AbortTransaction,
    AcknowledgeEvents,
    AddPartitions,
    AlterClusterConfig,
    AlterPartitions,
    AlterQueue,
    AnyCommand,
    BeginShutdown,
    BeginTransaction,
    CatchUp,
    CommitTransaction,
    CreateQueue,
    CreateQueues,
    CreateReplicatedTopic,
    DeleteQueue,
    Done,
    DrainBroker,
    ElectLeaders,
    ElectRecovered,
    ExpireTransactions,
    FailedReplica,
    FenceBroker,
    FinishedPart,
    FinishParts,
    ForgetTransactionNames,
    ForgottenNames,
    InSyncReplica,
    PartitionAnswer,
    PartitionAnswers,
    ProducerIds,
    ProposedIsr,
    QueueAnswer,
    QueueResult,
    QueueResults,
    Reassignment,
    ReassignReplicas,
    RefusedTruncation,
    RefuseTruncation,
    RegisterBroker,
    Registered,
    RemoveFromIsr,
    Reply,
    ReportedLog,
    ReportedLoss,
    ReportLogEnds,
    ReportLoss,
    SetFeatureLevel,
    ShutdownProgress,
    TopicAnswer,
    TransactionAnswer,
    UnfenceBroker,
    UnregisterBroker,
    decode_command,
    decode_reply,
    encode_command,
    encode_reply,
)
from tidelog.coordinator.metadata.records import LogEnd, PartitionRegistration
from tidelog.coordinator.metadata.transactions import AppendedPart
from tidelog.coordinator.security.commands import (
    ChangeGrants,
    CreateAccessKey,
    EnableAccessKey,
    RemoveAccessKey,
    RemoveDataKeys,
    RemoveRole,
    RemoveToken,
    RemoveUser,
    SetAdministrator,
    SetDataKey,
    SetQuota,
    SetRole,
    SetToken,
    SetUser,
)
from tidelog.coordinator.security.records import Grant, ScramCredential
from tidelog.wire.errors import NotLeaderError, WireFormatError
from tidelog.wire.messages.transactions import (
    NameForgotten,
    StagedPart,
    StagedPiece,
    TransactionStatus,
)

ID = b"0123456789abcdef"
COMMANDS: list[AnyCommand] = [
    CreateTopic("orders", ID, 3, {"retention_ms": "1h"}),
    AlterTopic("orders", {"segment_ms": "1h"}, ["retention_ms"]),
    DeleteTopic("orders"),
    TakeProducerIds(),
    RegisterBroker(1, "disk", "incarnation", "host", 8433, "rack", clean_stop_epoch=6),
    UnfenceBroker(1, 7),
    FenceBroker(1, 7),
    BeginShutdown(1, 7),
    UnregisterBroker(1),
    CatchUp(),
    DrainBroker(1, is_drained=False),
    CreateReplicatedTopic("orders", ID, 2, {}, 3, [[1, 2, 3], [2, 3, 1]]),
    AddPartitions("orders", 9, ID),
    AlterPartitions(1, 7, [ProposedIsr(ID, 0, 3, 9, [InSyncReplica(1, 7)])]),
    ElectLeaders([(ID, 0)], accept_data_loss=True),
    ReassignReplicas([Reassignment(ID, 0, [1, 2]), Reassignment(ID, 1, None)]),
    RefuseTruncation(1, 7, [RefusedTruncation(ID, 0, 3, 5, 10, 12, None, is_whole=False)]),
    RemoveFromIsr(1, 7, [FailedReplica(ID, 0, True), FailedReplica(ID, 1, False, True)]),
    ReportLogEnds(1, 7, [ReportedLog(ID, 0, 3, LogEnd(2, 70_000, is_whole=True))]),
    ElectRecovered([(ID, 0, 3)]),
    ReportLoss(1, 7, [ReportedLoss(ID, 0, 3, 585, 600, "a detail")]),
    AcknowledgeEvents([3, 4], 2),
    AlterClusterConfig({"min_insync_replicas": "2"}, []),
    CreateQueue(
        "q", ID, ID + ID, ID[::-1], 9, "orders", ID, [1, 2], True, {"priority_weights": "1"}, 2, {}
    ),
    CreateQueues([CreateQueue("q", ID, ID + ID, ID[::-1], 9, "q", None, [], False, {})]),
    AlterQueue("q", {"priority_weights": "2"}, ["retention_ms"]),
    BeginTransaction("query-1", 7, 3_600_000, ["orders"], [ID]),
    CommitTransaction("query-1", 7, 3, [StagedPart(ID, 0, [StagedPiece(1, 0, 20, 10)])]),
    AbortTransaction("query-1", 7, 0),
    ExpireTransactions(),
    FinishParts(1, [FinishedPart(AppendedPart(3, ID, 0, is_lost=True), 5)]),
    ForgetTransactionNames(["query-1", "query-2"], 86_400_000),
    DeleteQueue("q", ID, with_topic=True, detach_sources=True),
    SetFeatureLevel(1, [1, 2]),
    SetUser("alice", ScramCredential(b"a salt", 4096, b"stored", b"server"), is_new=True),
    RemoveUser("alice"),
    SetToken("7f3a", "alice", bytes(32), 1_700_000_000_000, "ci"),
    RemoveToken("7f3a"),
    CreateAccessKey("TDLA1", "alice", "111122223333", bytes(32), bytes(8), "ci"),
    EnableAccessKey("TDLA1", is_enabled=False),
    RemoveAccessKey("TDLA1"),
    SetAdministrator("root", None, "7f3a", bytes(32), 1),
    SetRole("writers", ("alice",), ("bob",)),
    RemoveRole("writers"),
    ChangeGrants((Grant("user:alice", "topic", "orders*", ("read",)),), ()),
    SetQuota("user:alice", {"requests_per_s": 100}, ("busy_ms_per_s",)),
    SetDataKey(ID, 1, b"wrapped", "master-1", "master-0"),
    RemoveDataKeys(ID, (1,)),
]
REPLIES: list[Reply] = [
    Registered(7),
    ShutdownProgress(3),
    TopicAnswer(ID),
    QueueAnswer(ID, ID[::-1]),
    QueueResults(
        [
            QueueResult(QueueAnswer(ID, ID[::-1])),
            QueueResult(None, NotLeaderError("not the leader").to_wire()),
        ]
    ),
    ProducerIds(1, 1001),
    PartitionAnswers(
        [
            PartitionAnswer(ID, 0, PartitionRegistration((1, 2), (1,), (2,), 1, 3, 9)),
            PartitionAnswer(ID, 1, None, NotLeaderError("not the leader").to_wire()),
        ]
    ),
    TransactionAnswer(3, TransactionStatus.COMMITTED),
    ForgottenNames([NameForgotten(), NameForgotten(NotLeaderError("in use").to_wire())]),
    Done(),
]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: type(command).__name__)
def test_a_command_survives_encoding(command: AnyCommand) -> None:
    assert decode_command(encode_command(command)) == command


def test_every_command_is_encoded_in_a_test() -> None:
    assert {type(command) for command in COMMANDS} == set(AnyCommand.__args__)


@pytest.mark.parametrize("reply", REPLIES, ids=lambda reply: type(reply).__name__)
def test_a_reply_survives_encoding(reply: Reply) -> None:
    assert decode_reply(encode_reply(reply)) == reply


@pytest.mark.parametrize("data", [b"", b"nonsense", b"\x91\xa5other", b"\x91" * 5000])
def test_bytes_without_a_command_are_refused(data: bytes) -> None:
    with pytest.raises(WireFormatError, match="not a command"):
        decode_command(data)
    with pytest.raises(WireFormatError, match="not a command"):
        decode_reply(data)
