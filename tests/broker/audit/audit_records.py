"""Reader of the audit records of a broker under test."""

import msgspec

from tests.broker.broker_requests import fetch_all
from tidelog.broker.audit.event import AuditKind
from tidelog.broker.audit.record import AuditRecord
from tidelog.wire.messages.metadata import MetadataRequest
from tidelog.wire.protocol import api
from tidelog.wire.security.audit_topic import AUDIT_TOPIC
from tidelog.wire.transport.rpc import RpcConnection


async def audit_topic_id(client: RpcConnection) -> bytes:
    """Return the id of the audit topic, as clients learn it."""
    reply = await client.ask(api.METADATA, MetadataRequest([AUDIT_TOPIC]))
    (topic,) = reply.topics
    assert topic.error is None, topic.error
    return topic.topic_id


async def audit_records(client: RpcConnection, kind: AuditKind | None = None) -> list[AuditRecord]:
    """Return the audit records so far, of one kind or of all."""
    found: list[AuditRecord] = []
    for record in await fetch_all(client, await audit_topic_id(client)):
        assert record.value is not None
        found.append(msgspec.json.decode(record.value, type=AuditRecord))
    return [each for each in found if kind is None or each.kind is kind]
