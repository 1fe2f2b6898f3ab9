"""Tests of the administrative APIs: each API has its place, and records have no secrets."""

from base64 import b64encode
from typing import Any

import msgspec
import pytest

from tests.wire.samples import EXCHANGES
from tidelog.broker.audit.administration import (
    ADMINISTRATIVE_APIS,
    AdministrativeApi,
    outcome_of,
    repairs_audit,
)
from tidelog.broker.audit.event import AuditEvent
from tidelog.broker.audit.record import RecordWriter, encode_record
from tidelog.wire.errors import ErrorCode, NotAuthorizedError
from tidelog.wire.messages.cluster_admin import ElectLeadersRequest, TopicToElect
from tidelog.wire.messages.features import UpdateFeaturesRequest
from tidelog.wire.messages.queues import QueueDoneReply, QueuePartitionDone, QueueSeekRequest
from tidelog.wire.messages.reassignment import PartitionMove, ReassignRequest
from tidelog.wire.messages.topics import AlterTopicRequest, DeleteTopicRequest
from tidelog.wire.messages.users import (
    AlterUsersRequest,
    PasswordHash,
    TokenToSet,
    UserToSet,
)
from tidelog.wire.protocol import api
from tidelog.wire.protocol.api import Api
from tidelog.wire.security.audit_topic import AUDIT_TOPIC

REQUESTS = {each.api.key: each.request for each in EXCHANGES}

OTHERS = {
    *(api.HELLO, api.PROVE_NODE, api.AUTHENTICATE, api.METADATA, api.READ_METRICS),
    # Authentication, with records of its own.
    *(api.GET_SIGNING_KEY, api.IMPERSONATE),
    # Between nodes.
    *(api.PEER_STATUS, api.RAFT, api.RAFT_SNAPSHOT, api.FORWARD_COMMAND, api.JOIN),
    *(api.BROKER_HEARTBEAT, api.REPLICA_FETCH, api.REPLICA_DURABLE, api.REPLICA_READ),
    *(api.DESCRIBE_PRODUCER, api.GET_PURGE_OFFSET),
    # Traffic: usage counts it.
    *(api.INIT_PRODUCER, api.PRODUCE, api.FETCH, api.SEND, api.RECEIVE, api.SETTLE, api.PEEK),
    *(api.END_RECEIVES, api.CANCEL_SCHEDULED, api.GROUP_HEARTBEAT, api.COMMIT_OFFSETS, api.STAGE),
    *(api.BEGIN_TRANSACTION, api.COMMIT_TRANSACTION, api.ABORT_TRANSACTION),
    # Reads.
    *(api.DESCRIBE_TOPICS, api.LIST_TOPICS, api.TOPIC_USAGE, api.LIST_OFFSETS, api.HOT_KEYS),
    *(api.DESCRIBE_QUEUES, api.LIST_QUEUES, api.COUNT_MESSAGES, api.DESCRIBE_REDRIVE),
    *(api.FETCH_OFFSETS, api.LIST_GROUPS, api.DESCRIBE_GROUPS, api.LIST_TRANSACTIONS),
    *(
        api.LIST_KEYS,
        api.LIST_CERTIFICATES,
        api.LIST_QUOTAS,
        *(api.LIST_USERS, api.LIST_ACCESS_KEYS, api.LIST_ACCESS, api.EXPLAIN_ACCESS),
        *(api.AWAIT_METADATA, api.AWAIT_APPENDED),
        api.DESCRIBE_CLUSTER,
        api.DESCRIBE_CONFIG,
        api.LIST_REASSIGNMENTS,
        api.SAFE_TO_STOP,
    ),
}
"""APIs without an audit record for each request."""


def test_every_api_is_administrative_or_known_not_to_be() -> None:
    unknown = {each.key.name for each in api.APIS if each not in {*ADMINISTRATIVE_APIS, *OTHERS}}

    assert not unknown, "name them in ADMINISTRATIVE_APIS, or here in OTHERS"
    assert not ADMINISTRATIVE_APIS.keys() & OTHERS


@pytest.mark.parametrize("served", ADMINISTRATIVE_APIS, ids=lambda each: each.key.name)
def test_the_record_of_each_administrative_request_is_short_json(served: Api[Any, Any]) -> None:
    entry: AdministrativeApi = ADMINISTRATIVE_APIS[served]
    request = entry.parts(REQUESTS[served.key])[0]
    event = AuditEvent(
        entry.kind,
        entry.action,
        "ok",
        None,
        entry.resource(request, lambda _: "topic:orders"),
        detail=entry.detail(request),
    )

    data = encode_record(RecordWriter(1, 0).of_event(event, now_ms=1))

    assert len(data) < 8_000
    assert msgspec.json.decode(data)["action"] == entry.action
    room, _, name = entry.action.partition(".")
    assert room in {"topic", "queue", "group", "cluster", "user", "access", "quota", "key"}
    assert name


def test_records_of_users_and_tokens_have_no_secret() -> None:
    secrets = [bytes([fill]) * 32 for fill in (0xA1, 0xB2, 0xC3, 0xD4)]
    request = AlterUsersRequest(
        [UserToSet("alice", PasswordHash(secrets[0], 4_096, secrets[1], secrets[2]), is_new=True)],
        ["bob"],
        [TokenToSet("0123456789ab", "alice", secrets[3], None)],
        [],
    )
    entry = ADMINISTRATIVE_APIS[api.ALTER_USERS]
    event = AuditEvent(entry.kind, entry.action, detail=entry.detail(request))

    text = encode_record(RecordWriter(1, 0).of_event(event, now_ms=1)).decode()

    assert '"set_tokens.token_id":"[\\"0123456789ab\\"]"' in text
    for secret in secrets:
        for shown in (secret.hex(), b64encode(secret).decode()[:16], str(secret)[2:10]):
            assert shown.lower() not in text.lower()


def test_large_requests_make_bounded_records() -> None:
    request = ReassignRequest(
        [PartitionMove("t" * 249, number, [1, 2, 3]) for number in range(10_000)], []
    )
    entry = ADMINISTRATIVE_APIS[api.REASSIGN]
    event = AuditEvent(entry.kind, entry.action, detail=entry.detail(request))

    assert len(encode_record(RecordWriter(1, 0).of_event(event, now_ms=1))) < 8_000


def test_a_zero_is_shown_and_an_absent_value_is_not() -> None:
    entry = ADMINISTRATIVE_APIS[api.QUEUE_SEEK]

    detail = entry.detail(QueueSeekRequest(b"q" * 16, 0, 0))

    assert detail == {"partition": 0, "offset": 0}


@pytest.mark.parametrize(
    ("request_", "is_repair"),
    [
        (AlterTopicRequest(AUDIT_TOPIC, {"retention_ms": "7d"}, []), True),
        (AlterTopicRequest("orders", {"retention_ms": "7d"}, []), False),
        (ElectLeadersRequest([TopicToElect(AUDIT_TOPIC)], accept_data_loss=True), True),
        (ElectLeadersRequest([TopicToElect(AUDIT_TOPIC), TopicToElect("orders")]), False),
        (ElectLeadersRequest(None), False),
        (ElectLeadersRequest([]), False),
        (ReassignRequest([PartitionMove(AUDIT_TOPIC, 0, [1, 2])], []), True),
        (ReassignRequest([PartitionMove(AUDIT_TOPIC, 0, [1, 2])], [3]), False),
        (ReassignRequest([], [3]), False),
        (ReassignRequest([], [], replication_factor=3, topics=[AUDIT_TOPIC]), True),
        (ReassignRequest([], [], replication_factor=3), False),
        (UpdateFeaturesRequest(4), True),
        (DeleteTopicRequest(AUDIT_TOPIC), False),
    ],
)
def test_only_requests_about_the_audit_topic_alone_repair_it(
    request_: object, *, is_repair: bool
) -> None:
    assert repairs_audit(request_) is is_repair


def test_the_outcome_of_a_request_is_its_error_or_that_of_its_first_failed_item() -> None:
    refusal = NotAuthorizedError("user:alice may not")
    reply = QueueDoneReply([QueuePartitionDone(0), QueuePartitionDone(1, error=refusal.to_wire())])

    assert outcome_of(None, None) == ("ok", {})
    assert outcome_of(refusal, None) == ("NOT_AUTHORIZED", {"reason": "user:alice may not"})
    assert outcome_of(None, reply) == (
        "NOT_AUTHORIZED",
        {"failed": 1, "codes": [ErrorCode.NOT_AUTHORIZED.name]},
    )
