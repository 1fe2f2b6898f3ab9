"""Administrative APIs: what the audit says of a request, and which repair the audit topic itself.

Pure: no clock, no I/O. An entry names the fields of a request that an audit record shows. All other
fields stay out of it, so that a new field can never bring a secret into the audit topic.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, final

import msgspec

from tidelog.broker.audit.event import OK, AuditKind
from tidelog.wire.errors import BrokerError, ErrorCode, ErrorDetail, from_wire
from tidelog.wire.messages.access_keys import AlterAccessKeysRequest
from tidelog.wire.messages.cluster_admin import ElectLeadersRequest
from tidelog.wire.messages.features import UpdateFeaturesRequest
from tidelog.wire.messages.reassignment import ReassignRequest
from tidelog.wire.messages.topics import AlterTopicRequest
from tidelog.wire.messages.users import AlterUsersRequest
from tidelog.wire.protocol import api
from tidelog.wire.protocol.api import Api
from tidelog.wire.security.audit_topic import AUDIT_TOPIC

_FAILED_NAMED_MAX: Final = 20

Names = Callable[[bytes], str]
"""Returns the resource of an id: `topic:NAME` or `queue:NAME`, or the id if it is unknown."""


@final
@dataclass(frozen=True, slots=True)
class AdministrativeApi:
    """What an audit record shows of the requests for one API."""

    action: str
    resource: Callable[[Any, Names], str]
    """Takes the request."""
    shown: tuple[str, ...] = ()
    """Names of the fields of the request that the record shows; `LIST.FIELD` for one of items."""
    kind: AuditKind = AuditKind.ADMINISTRATION
    is_change: Callable[[Any], bool] = lambda _: True
    """Returns whether a request can change anything."""

    items: str = ""
    """The list of a request whose items have a record each, as if each were a request; the reply
    has `results` for them. Empty for a request that has one record."""

    def parts(self, message: object) -> list[object]:
        """Return what of a request has a record of its own: its items, or itself."""
        return list(getattr(message, self.items)) if self.items else [message]

    def outcomes(
        self, count: int, error: BrokerError | None, reply: object
    ) -> list[tuple[str, dict[str, object]]]:
        """Return result and detail of each of the `count` parts of an answered request."""
        results: Any = getattr(reply, "results", None)
        if not self.items or error is not None or results is None:
            return [outcome_of(error, reply)] * count
        errors = [None if each.error is None else from_wire(each.error) for each in results]
        return [outcome_of(each, None) for each in errors]

    def detail(self, message: object) -> dict[str, object]:
        """Return the shown fields of a request that are not empty."""
        found = {name: _value_of(message, name) for name in self.shown}
        return {
            name: msgspec.to_builtins(value, builtin_types=(bytes,))
            for name, value in found.items()
            if not (value is None or value is False or value in ("", [], {}))
        }


def _value_of(message: object, name: str) -> object:
    field, _, of_items = name.partition(".")
    value = getattr(message, field)
    return [getattr(item, of_items) for item in value] if of_items else value


def _of_cluster(message: object, names: Names) -> str:
    del message, names
    return "cluster"


def _named(kind: str, field: str = "name") -> Callable[[Any, Names], str]:
    return lambda message, _: f"{kind}:{getattr(message, field)}"


def _by_id(field: str) -> Callable[[Any, Names], str]:
    return lambda message, names: names(getattr(message, field))


def _broker(message: Any, names: Names) -> str:  # noqa: ANN401 - two types of requests
    del names
    return f"node:{message.node_id}"


def _users(message: AlterUsersRequest, names: Names) -> str:
    del names
    users = {each.name for each in message.set_users} | {each.user for each in message.set_tokens}
    users.update(message.remove_users)
    return f"user:{min(users)}" if len(users) == 1 else "user"


def _users_of_keys(message: AlterAccessKeysRequest, names: Names) -> str:
    del names
    users = {each.user for each in message.create}
    return f"user:{min(users)}" if len(users) == 1 else "user"


_SETTINGS: Final = ("set_config", "reset_config")
_LABELS: Final = ("set_labels", "remove_labels")

ADMINISTRATIVE_APIS: Final[Mapping[Api[Any, Any], AdministrativeApi]] = {
    api.CREATE_TOPIC: AdministrativeApi(
        "topic.create",
        _named("topic"),
        ("partition_count", "config", "replication_factor", "labels"),
        is_change=lambda message: not message.validate_only,
    ),
    api.ALTER_TOPIC: AdministrativeApi("topic.alter", _named("topic"), (*_SETTINGS, *_LABELS)),
    api.DELETE_TOPIC: AdministrativeApi("topic.delete", _named("topic")),
    api.DELETE_RECORDS: AdministrativeApi(
        "topic.delete-records", _by_id("topic_id"), ("partition", "before_offset")
    ),
    api.ADD_PARTITIONS: AdministrativeApi(
        "topic.add-partitions",
        _named("topic"),
        ("partition_count",),
        is_change=lambda message: not message.validate_only,
    ),
    api.CREATE_QUEUE: AdministrativeApi(
        "queue.create", _named("queue"), ("topic", "is_fifo", "config", "labels")
    ),
    api.CREATE_QUEUES: AdministrativeApi(
        *("queue.create", _named("queue"), ("topic", "is_fifo", "config", "labels")),
        items="queues",
    ),
    api.ALTER_QUEUE: AdministrativeApi("queue.alter", _named("queue"), (*_SETTINGS, *_LABELS)),
    api.DELETE_QUEUE: AdministrativeApi(
        "queue.delete", _named("queue"), ("with_topic", "detach_sources")
    ),
    api.PURGE: AdministrativeApi("queue.purge", _by_id("queue_id"), ("partitions",)),
    api.QUEUE_SEEK: AdministrativeApi("queue.seek", _by_id("queue_id"), ("partition", "offset")),
    api.REDRIVE: AdministrativeApi(
        "queue.redrive",
        _by_id("queue_id"),
        ("partitions", "destination", "messages_per_s", "origin_queue", "is_cancelled"),
    ),
    api.RESET_OFFSETS: AdministrativeApi(
        "group.reset",
        _named("group", "group_id"),
        ("partitions",),
        is_change=lambda message: not message.validate_only,
    ),
    api.ALTER_GROUP: AdministrativeApi("group.alter", _named("group", "group_id"), _SETTINGS),
    api.DELETE_GROUP: AdministrativeApi("group.delete", _named("group", "group_id")),
    api.FORGET_TRANSACTIONS: AdministrativeApi(
        "cluster.forget-transactions", _of_cluster, ("names", "unused_for_ms")
    ),
    api.ELECT_LEADERS: AdministrativeApi(
        "cluster.elect", _of_cluster, ("topics", "accept_data_loss")
    ),
    api.REASSIGN: AdministrativeApi(
        "cluster.reassign",
        _of_cluster,
        ("moves", "leaving", "replacement", "replication_factor", "topics"),
        is_change=lambda message: not message.plan_only,
    ),
    api.ALTER_CLUSTER_CONFIG: AdministrativeApi("cluster.alter", _of_cluster, _SETTINGS),
    api.DRAIN_BROKER: AdministrativeApi("cluster.drain", _broker, ("is_drained",)),
    api.UNREGISTER_BROKER: AdministrativeApi("cluster.unregister", _broker),
    api.ACKNOWLEDGE_EVENTS: AdministrativeApi(
        "cluster.acknowledge-events", _of_cluster, ("event_ids", "up_to_id")
    ),
    api.ALTER_USERS: AdministrativeApi(
        "user.alter",
        _users,
        ("set_users.name", "remove_users", "set_tokens.token_id", "remove_tokens"),
        kind=AuditKind.GRANT,
    ),
    api.ALTER_ACCESS_KEYS: AdministrativeApi(
        "user.alter-access-keys",
        _users_of_keys,
        ("create.access_key_id", "remove", "enable", "disable"),
        kind=AuditKind.GRANT,
    ),
    api.ALTER_QUOTAS: AdministrativeApi(
        "quota.alter", _of_cluster, ("principal", "set_values", "remove_names")
    ),
    api.ALTER_KEYS: AdministrativeApi("key.alter", _of_cluster, ("action", "topic", "key_ids")),
    api.ALTER_ACCESS: AdministrativeApi(
        "access.alter", _of_cluster, ("add", "remove", "roles"), kind=AuditKind.GRANT
    ),
    api.UPDATE_FEATURES: AdministrativeApi(
        "cluster.update-features",
        _of_cluster,
        ("level",),
        is_change=lambda message: message.level is not None,
    ),
}
"""Every API whose requests change something other than records, offsets and leases."""


def repairs_audit(message: object) -> bool:
    """Return whether a request concerns only the audit topic, or the feature level.

    With `audit = required`, such a request is served while the audit topic cannot be written: it
    may be what makes the topic writable again.
    """
    match message:
        case ElectLeadersRequest():
            topics = [] if message.topics is None else [each.topic for each in message.topics]
        case ReassignRequest():
            topics = [each.topic for each in message.moves] or list(message.topics or ())
            if message.leaving or (message.replication_factor is None and not message.moves):
                return False
        case AlterTopicRequest():
            topics = [message.name]
        case UpdateFeaturesRequest():
            return True
        case _:
            return False
    return bool(topics) and set(topics) == {AUDIT_TOPIC}


def outcome_of(error: BrokerError | None, reply: object) -> tuple[str, dict[str, object]]:
    """Return result and detail of an answered request.

    The result is that of the first item that failed, if the request has several.
    """
    if error is not None:
        return error.code.name, {"reason": str(error)}
    results = getattr(reply, "results", None)
    if not isinstance(results, list):
        return OK, {}
    failed = [
        each.error for each in results if isinstance(getattr(each, "error", None), ErrorDetail)
    ]
    if not failed:
        return OK, {}
    codes = [_code_name(each.code) for each in failed]
    return codes[0], {"failed": len(failed), "codes": codes[:_FAILED_NAMED_MAX]}


def _code_name(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return ErrorCode.UNEXPECTED_SERVER_ERROR.name
