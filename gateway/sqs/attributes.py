"""Attributes of queues: from the texts of SQS to settings and labels of tidelog, and back.

Pure: no clock, no I/O. Source: CreateQueue, SetQueueAttributes and GetQueueAttributes in the Amazon
SQS API Reference. What tidelog has a setting for is a setting, so that programs of both sides see
the same value. The rest is a label named `tidelog.sqs.` and the attribute.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple, TypeVar, final

import msgspec

from tidelog.client.admin.queue_counts import DescribedQueue
from tidelog.gateway.sqs.names import QueueScope
from tidelog.gateway.sqs.protocol.errors import (
    INVALID_ATTRIBUTE_NAME,
    INVALID_ATTRIBUTE_VALUE,
    OVER_LIMIT,
    SqsError,
    invalid_value,
)
from tidelog.wire.config.queue_config import NO_QUEUE, DeduplicationScope, queue_config

OWN_LABELS: Final = "tidelog.sqs."
"""First characters of the labels that are no tags."""
THROUGHPUT_LIMIT: Final = f"{OWN_LABELS}FifoThroughputLimit"
ALL: Final = "All"
STATEMENTS_MAX: Final = 20
POLICY_BYTES_MAX: Final = 8192
SOURCES_MAX: Final = 10
"""Maximum sources that a `RedriveAllowPolicy` names."""
RECEIVES_MAX: Final = 1000

_DIGITS: Final = re.compile(r"[0-9]{1,10}", re.ASCII)
_SWITCHES: Final = {"true": True, "false": False}
"""Values of switches; the cloud ignores case."""
_UNSUPPORTED_FORMAT: Final = (
    "Amazon SQS can't create the redrive allow policy, as it's in an unsupported format."
)
_NO_DEAD_LETTERS: Final = {"dead_letter_queue": NO_QUEUE, "max_receive_count": "unlimited"}
_SCOPES: Final = {DeduplicationScope.QUEUE: "queue", DeduplicationScope.GROUP: "messageGroup"}
_REDRIVE_NAMES: Final = ("maxReceiveCount", "deadLetterTargetArn")
_NO_MAP: Final = "Redrive policy is not a valid JSON map."


class _Number(NamedTuple):
    low: int
    high: int
    default: int
    setting: str | None = None
    """Setting in milliseconds; `None` for a label."""


_NUMBERS: Final = {
    "DelaySeconds": _Number(0, 900, 0, "delivery_delay_ms"),
    "KmsDataKeyReusePeriodSeconds": _Number(60, 86_400, 300),
    "MaximumMessageSize": _Number(1024, 1_048_576, 1_048_576),
    "MessageRetentionPeriod": _Number(60, 1_209_600, 345_600, "retention_ms"),
    "ReceiveMessageWaitTimeSeconds": _Number(0, 20, 0, "receive_message_wait_time_ms"),
    "VisibilityTimeout": _Number(0, 43_200, 30, "visibility_timeout_ms"),
}
_FIFO_ONLY: Final = {
    "ContentBasedDeduplication",
    "DeduplicationScope",
    "FifoQueue",
    "FifoThroughputLimit",
}
_COUNTS: Final = {
    "ApproximateNumberOfMessages",
    "ApproximateNumberOfMessagesDelayed",
    "ApproximateNumberOfMessagesNotVisible",
}
_READ_ONLY: Final = _COUNTS | {"CreatedTimestamp", "LastModifiedTimestamp", "QueueArn"}
_WRITABLE: Final = {
    *_NUMBERS,
    *_FIFO_ONLY,
    "KmsMasterKeyId",
    "Policy",
    "RedriveAllowPolicy",
    "RedrivePolicy",
    "SqsManagedSseEnabled",
}


@final
@dataclass(slots=True)
class AttributeChange:
    """What attributes change in tidelog."""

    settings: dict[str, str] = field(default_factory=dict[str, str])
    """Settings of the queue to set."""
    labels: dict[str, str] = field(default_factory=dict[str, str])
    """Labels to set."""
    removed: list[str] = field(default_factory=list[str])
    """Labels to remove."""
    scope: str | None = None
    """The new `DeduplicationScope`."""
    redrive: "RedrivePolicy | None" = None
    """The new redrive policy, to be compared with its target."""

    def keep_to_itself(self, text: str) -> None:
        """Let the queue be its own dead-letter queue: its messages stay in it.

        `text` is the redrive policy as `GetQueueAttributes` returns it.
        """
        self.settings |= _NO_DEAD_LETTERS
        self.store("RedrivePolicy", text)

    def store(self, name: str, value: str) -> None:
        """Store an attribute in a label; an empty value removes it."""
        if value:
            self.labels[OWN_LABELS + name] = value
        else:
            self.removed.append(OWN_LABELS + name)


class RedrivePolicy(NamedTuple):
    """Value of the attribute `RedrivePolicy`."""

    target: str
    """Tidelog name of the dead-letter queue."""
    max_receive_count: int
    text: str
    """The attribute as the request has it, for errors."""

    def shown(self, scope: QueueScope) -> str:
        """Return the attribute as `GetQueueAttributes` returns it."""
        return _redrive_text(scope.arn_of_queue(self.target), self.max_receive_count)


def unknown_attribute(name: str) -> SqsError:
    """Return the error of an attribute that no queue, or no queue of this kind, has."""
    return SqsError(INVALID_ATTRIBUTE_NAME, f"Unknown Attribute {name}.")


def invalid_attribute(name: str, reason: str = "") -> SqsError:
    """Return the error of an attribute whose value is not legal."""
    tail = f" Reason: {reason}" if reason else ""
    return SqsError(INVALID_ATTRIBUTE_VALUE, f"Invalid value for the parameter {name}.{tail}")


def _not_for_standard(name: str) -> SqsError:
    if name in {"DeduplicationScope", "FifoThroughputLimit"}:
        text = f"You can specify the {name} only when FifoQueue is set to true."
        return SqsError(INVALID_ATTRIBUTE_NAME, text)
    return unknown_attribute(name)


def switch(name: str, value: str) -> bool:
    """Return whether a switch is on.

    Raises:
        SqsError: The value is neither `true` nor `false`.
    """
    if value.lower() not in _SWITCHES:
        raise invalid_attribute(name)
    return _SWITCHES[value.lower()]


def check_asked(names: list[str]) -> None:
    """Check the names of attributes that a request asks for.

    Raises:
        SqsError: One of them is unknown.
    """
    for name in names:
        if name != ALL and name not in _WRITABLE and name not in _READ_ONLY:
            raise unknown_attribute(name)


def needs_counts(names: list[str]) -> bool:
    """Return whether an answer about these attributes needs numbers of messages."""
    return any(name == ALL or name in _COUNTS for name in names)


def change_of(
    attributes: Mapping[str, str], scope: QueueScope, *, is_fifo: bool, current: Mapping[str, str]
) -> AttributeChange:
    """Return what attributes change in a queue.

    Args:
        attributes: Names and values as the request has them.
        scope: Scope of the request, in which a dead-letter queue must be.
        is_fifo: Whether the queue is FIFO.
        current: Attributes of the queue; those that a new queue has.

    Raises:
        SqsError: An attribute does not exist, cannot be set, or its value is not legal.
    """
    change = AttributeChange()
    for name, value in attributes.items():
        if name not in _WRITABLE:
            raise unknown_attribute(name)
        if name in _FIFO_ONLY and not is_fifo:
            raise _not_for_standard(name)
        if name in _NUMBERS:
            _set_number(change, name, value)
        elif name == "RedrivePolicy":
            _set_redrive(change, value, scope)
        elif name == "FifoQueue":
            if not switch(name, value):
                raise invalid_attribute(name, "Modifying queue type is not supported.")
        elif name in _FIFO_ONLY:
            _set_fifo(change, name, value)
        else:
            _set_text(change, name, value)
    _check_together(attributes, current)
    return change


def _set_number(change: AttributeChange, name: str, value: str) -> None:
    number = _NUMBERS[name]
    if not _DIGITS.fullmatch(value) or not number.low <= int(value) <= number.high:
        raise invalid_attribute(name)
    if number.setting is None:
        change.store(name, str(int(value)))
    else:
        change.settings[number.setting] = f"{int(value)}s"


def _set_redrive(change: AttributeChange, text: str, scope: QueueScope) -> None:
    change.store("RedrivePolicy", "")
    if not text:
        change.settings |= _NO_DEAD_LETTERS
        return
    change.redrive = policy = parse_redrive(text, scope)
    change.settings |= {
        "dead_letter_queue": policy.target,
        "max_receive_count": str(policy.max_receive_count),
    }


def _set_fifo(change: AttributeChange, name: str, value: str) -> None:
    if name == "ContentBasedDeduplication":
        change.settings["content_based_deduplication"] = "on" if switch(name, value) else "off"
    elif name == "DeduplicationScope":
        if value not in _SCOPES.values():
            raise invalid_attribute(name)
        change.scope = value
    else:
        if value not in {"perQueue", "perMessageGroupId"}:
            raise invalid_attribute(name)
        change.store(name, value)


def _set_text(change: AttributeChange, name: str, value: str) -> None:
    if name == "SqsManagedSseEnabled":
        is_on = switch(name, value)
        change.store(name, _text(is_on))
        if is_on:
            change.store("KmsMasterKeyId", "")
        return
    if name == "KmsMasterKeyId" and value:
        # The cloud leaves it off when the key is removed again.
        change.store("SqsManagedSseEnabled", "false")
    elif name == "Policy" and value:
        check_policy(value)
    elif name == "RedriveAllowPolicy" and value:
        parse_redrive_allow(value)
    change.store(name, value)


def _check_together(attributes: Mapping[str, str], current: Mapping[str, str]) -> None:
    """Check attributes that depend on each other."""
    is_managed = attributes.get("SqsManagedSseEnabled", "").lower() == "true"
    if is_managed and attributes.get("KmsMasterKeyId"):
        raise SqsError(
            INVALID_ATTRIBUTE_NAME,
            "You can use one type of server-side encryption (SSE) at one time. You can either"
            " enable KMS SSE or SQS SSE.",
        )
    after = {**current, **attributes}
    is_per_group = after.get("FifoThroughputLimit") == "perMessageGroupId"
    if is_per_group and after.get("DeduplicationScope") != "messageGroup":
        is_asked = "FifoThroughputLimit" in attributes
        raise invalid_attribute(
            "FifoThroughputLimit" if is_asked else "DeduplicationScope",
            "The perMessageGroupId value is allowed only when the value for DeduplicationScope is"
            " messageGroup.",
        )


def parse_redrive(text: str, scope: QueueScope) -> RedrivePolicy:
    """Return the value of a `RedrivePolicy`.

    Raises:
        SqsError: It is no policy of a dead-letter queue in the account and region of the request.
    """
    policy = _decoded(text, dict[str, Any])
    if policy is None:
        raise invalid_attribute("RedrivePolicy", _NO_MAP)
    for name in _REDRIVE_NAMES:
        if name not in policy:
            raise _redrive_error(
                text, f"Redrive policy does not contain mandatory attribute: {name}."
            )
    if len(policy) > len(_REDRIVE_NAMES):
        raise _redrive_error(
            text, f"Only following attributes are supported: [{', '.join(_REDRIVE_NAMES)}]."
        )
    arn, count = policy["deadLetterTargetArn"], policy["maxReceiveCount"]
    is_number = isinstance(count, int | str) and _DIGITS.fullmatch(str(count))
    if not is_number or not 1 <= int(count) <= RECEIVES_MAX:
        raise _redrive_error(
            text,
            f"Invalid value for maxReceiveCount: {count}, valid values are from 1 to"
            f" {RECEIVES_MAX} both inclusive.",
        )
    target = scope.queue_of_arn(arn) if isinstance(arn, str) else None
    if target is None:
        raise _redrive_error(text, "Invalid value for deadLetterTargetArn.")
    place = scope.place_of(target)
    if place is None or (place.account, place.region) != (scope.account, scope.region):
        raise _redrive_error(text, "Dead-letter target owner should be same as the source.")
    return RedrivePolicy(target, int(count), text)


def _redrive_error(text: str, reason: str) -> SqsError:
    return invalid_value(text, "RedrivePolicy", reason)


def check_target(
    policy: RedrivePolicy, target: DescribedQueue | None, source_arn: str, *, is_fifo: bool
) -> None:
    """Check that a queue may have another one as its dead-letter queue.

    Args:
        policy: Redrive policy of the source.
        target: Description of the dead-letter queue; `None` if it does not exist.
        source_arn: ARN of the source.
        is_fifo: Whether the source is FIFO.

    Raises:
        SqsError: The target does not exist, is of the other kind, or does not allow the source.
    """
    if target is None:
        raise _redrive_error(policy.text, "Dead letter target does not exist.")
    if target.is_fifo != is_fifo:
        raise _redrive_error(
            policy.text, "Dead-letter queue must be same type of queue as the source."
        )
    text = target.labels.get(f"{OWN_LABELS}RedriveAllowPolicy")
    if text is not None and not allows_source(text, source_arn):
        raise _redrive_error(
            policy.text, "The redrive allow policy of the dead-letter queue denies this source."
        )


def allows_source(redrive_allow_policy: str, source_arn: str) -> bool:
    """Return whether a `RedriveAllowPolicy` lets a source use its queue for dead letters."""
    permission, sources = parse_redrive_allow(redrive_allow_policy)
    return permission == "allowAll" or (permission == "byQueue" and source_arn in sources)


def parse_redrive_allow(text: str) -> tuple[str, list[str]]:
    """Return the permission of a `RedriveAllowPolicy`, and the ARNs of its sources.

    Raises:
        SqsError: It is no such policy.
    """
    policy = _decoded(text, _RedriveAllow)
    if policy is None:
        raise invalid_attribute("RedriveAllowPolicy", _UNSUPPORTED_FORMAT)
    permission, sources = policy.permission, policy.sources or []
    reason = None
    if permission != "byQueue" and policy.sources is not None:
        reason = (
            "To specify one or more source queue ARNs, you must set redrivePermission to byQueue."
        )
    elif permission == "byQueue" and not sources:
        reason = (
            "When you specify the byQueue permission type, you must also specify one or more"
            " sourceQueueArns values."
        )
    elif len(sources) > SOURCES_MAX:
        reason = f"The maximum number of source queue ARNs you can specify is {SOURCES_MAX}."
    if reason is not None:
        raise invalid_value(
            text,
            "RedriveAllowPolicy",
            f"Amazon SQS can't create the redrive allow policy. {reason}",
        )
    return permission, sources


def check_policy(text: str) -> None:
    """Check that a text may be the `Policy` of a queue.

    Raises:
        SqsError: It is no policy, or too large.
    """
    policy = _decoded(text, _AccessPolicy)
    if policy is None or not policy.statements or len(text.encode()) > POLICY_BYTES_MAX:
        raise invalid_attribute("Policy")
    if isinstance(policy.statements, list) and len(policy.statements) > STATEMENTS_MAX:
        raise SqsError(
            OVER_LIMIT,
            f"{len(policy.statements)} statements were found in the submitted policy, max allowed"
            f" is {STATEMENTS_MAX}",
        )


class _RedriveAllow(msgspec.Struct, forbid_unknown_fields=True):
    permission: Literal["allowAll", "denyAll", "byQueue"] = msgspec.field(name="redrivePermission")
    sources: list[str] | None = msgspec.field(default=None, name="sourceQueueArns")


class _Statement(msgspec.Struct):
    effect: Literal["Allow", "Deny"] = msgspec.field(name="Effect")


class _AccessPolicy(msgspec.Struct):
    statements: _Statement | list[_Statement] = msgspec.field(name="Statement")


_Decoded = TypeVar("_Decoded")


def _decoded(text: str, kind: type[_Decoded]) -> _Decoded | None:
    """Return the value of a text in JSON; `None` if it is not of this kind."""
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


def stored_number(labels: Mapping[str, str], name: str) -> int:
    """Return the value of an attribute that is a number and a label, or its default."""
    text = labels.get(OWN_LABELS + name)
    return _NUMBERS[name].default if text is None else int(text)


def attributes_of(queue: DescribedQueue, scope: QueueScope) -> dict[str, str]:
    """Return the attributes of a queue; numbers of messages only if they were counted."""
    config, labels = queue_config(queue.config, is_fifo=queue.is_fifo), queue.labels
    found = {"QueueArn": scope.arn_of_queue(queue.name)}
    if queue.counts is not None:
        found["ApproximateNumberOfMessages"] = str(queue.counts.visible)
        found["ApproximateNumberOfMessagesNotVisible"] = str(queue.counts.in_flight)
        found["ApproximateNumberOfMessagesDelayed"] = str(queue.counts.delayed)
    found["CreatedTimestamp"] = str(queue.created_at_ms // 1000)
    found["LastModifiedTimestamp"] = str((queue.modified_at_ms or queue.created_at_ms) // 1000)
    for name, number in _NUMBERS.items():
        if number.setting is not None:
            value_ms = getattr(config, number.setting)
            # Without a limit of its own, a queue keeps messages as long as its topic.
            value_ms = queue.topic_retention_ms if value_ms is None else value_ms
            found[name] = str(number.high if value_ms is None else value_ms // 1000)
    found["MaximumMessageSize"] = str(stored_number(labels, "MaximumMessageSize"))
    for name in ("Policy", "RedriveAllowPolicy", "RedrivePolicy"):
        if (text := labels.get(OWN_LABELS + name)) is not None:
            found[name] = text
    if config.dead_letter_queue is not None:
        found["RedrivePolicy"] = _redrive_text(
            scope.arn_of_queue(config.dead_letter_queue), config.max_receive_count
        )
    found |= _encryption(labels)
    if queue.is_fifo:
        scope_text = _SCOPES[config.deduplication_scope]
        found["FifoQueue"] = "true"
        found["ContentBasedDeduplication"] = _text(config.content_based_deduplication)
        found["DeduplicationScope"] = labels.get(f"{OWN_LABELS}DeduplicationScope", scope_text)
        found["FifoThroughputLimit"] = labels.get(THROUGHPUT_LIMIT, "perQueue")
    return found


def _redrive_text(target_arn: str, max_receive_count: int | None) -> str:
    policy: dict[str, str | int] = {"deadLetterTargetArn": target_arn}
    if max_receive_count is not None:
        policy["maxReceiveCount"] = max_receive_count
    return json.dumps(policy, separators=(",", ":"))


def _encryption(labels: Mapping[str, str]) -> dict[str, str]:
    """Return the attributes of encryption, which the front only stores."""
    key_id = labels.get(f"{OWN_LABELS}KmsMasterKeyId")
    if key_id is None:
        return {"SqsManagedSseEnabled": labels.get(f"{OWN_LABELS}SqsManagedSseEnabled", "true")}
    return {
        "KmsMasterKeyId": key_id,
        "KmsDataKeyReusePeriodSeconds": str(stored_number(labels, "KmsDataKeyReusePeriodSeconds")),
        "SqsManagedSseEnabled": "false",
    }


def _text(is_on: bool) -> str:
    return "true" if is_on else "false"


def new_attributes(*, is_fifo: bool) -> dict[str, str]:
    """Return the attributes with defaults that a new queue has, as far as others depend on them."""
    return {"DeduplicationScope": "queue", "FifoThroughputLimit": "perQueue"} if is_fifo else {}


def differing(asked: Mapping[str, str], there: Mapping[str, str], scope: QueueScope) -> str | None:
    """Return the first attribute whose value in a request differs from that of a queue.

    Attributes that the request leaves out are not compared. All values are legal.
    """
    for name, value in asked.items():
        wanted = value
        if name in _NUMBERS:
            wanted = str(int(value))
        elif name == "RedrivePolicy" and value:
            wanted = parse_redrive(value, scope).shown(scope)
        elif value.lower() in _SWITCHES:
            wanted = value.lower()
        if there.get(name, "") != wanted:
            return name
    return None
