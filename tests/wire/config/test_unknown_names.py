"""Suggestions for unknown settings."""

import pytest

from tidelog.broker.config.broker_config import FIELDS
from tidelog.coordinator.metadata.cluster_config import CLUSTER_SETTINGS
from tidelog.coordinator.metadata.topic_config import SETTINGS
from tidelog.wire.config.group_config import GROUP_SETTINGS
from tidelog.wire.config.queue_config import QUEUE_SETTINGS
from tidelog.wire.config.unknown_names import nearest_name, snake_case, unknown_setting

KNOWN = {
    "broker": [*FIELDS, *(f"topic_defaults.{name}" for name in SETTINGS)],
    "cluster": CLUSTER_SETTINGS,
    "group": GROUP_SETTINGS,
    "queue": QUEUE_SETTINGS,
    "topic": SETTINGS,
}


@pytest.mark.parametrize(
    ("owner", "name", "nearest"),
    [
        # Kafka
        ("topic", "retention.ms", "retention_ms"),
        ("topic", "retention.hours", "retention_ms"),
        ("topic", "cleanup.policy", "cleanup_policy"),
        ("topic", "min.insync.replicas", "min_insync_replicas"),
        ("topic", "max.message.bytes", "max_message_bytes"),
        ("topic", "message.max.bytes", "max_message_bytes"),
        ("topic", "log.segment.bytes", "segment_bytes"),
        ("topic", "flush.messages", "durability"),
        ("cluster", "default.replication.factor", "default_replication_factor"),
        ("broker", "broker.id", "node_id"),
        ("broker", "listeners", "listen"),
        ("broker", "advertised.listeners", "advertised"),
        ("broker", "log.dirs", "data_dir"),
        ("broker", "controller.quorum.voters", "peers"),
        ("broker", "socket.request.max.bytes", "socket_request_max_bytes"),
        ("broker", "offsets.retention.minutes", "offsets_retention_ms"),
        ("broker", "log.retention.ms", "topic_defaults.retention_ms"),
        ("broker", "log.retention.hours", "topic_defaults.retention_ms"),
        ("broker", "min.insync.replicas", "topic_defaults.min_insync_replicas"),
        ("broker", "message.max.bytes", "topic_defaults.max_message_bytes"),
        # SQS
        ("queue", "VisibilityTimeout", "visibility_timeout_ms"),
        ("queue", "DelaySeconds", "delivery_delay_ms"),
        ("queue", "MessageRetentionPeriod", "retention_ms"),
        ("queue", "ReceiveMessageWaitTimeSeconds", "receive_message_wait_time_ms"),
        ("queue", "maxReceiveCount", "max_receive_count"),
        ("queue", "deadLetterTargetArn", "dead_letter_queue"),
        ("queue", "ContentBasedDeduplication", "content_based_deduplication"),
        ("queue", "DeduplicationScope", "deduplication_scope"),
        # RabbitMQ
        ("queue", "x-message-ttl", "retention_ms"),
        ("queue", "x-dead-letter-exchange", "dead_letter_queue"),
        ("queue", "x-delivery-limit", "max_receive_count"),
        # Typing errors
        ("topic", "retention_msec", "retention_ms"),
        ("topic", "retention", "retention_ms"),
        ("queue", "visibility_timout_ms", "visibility_timeout_ms"),
        ("broker", "nodeid", "node_id"),
        ("broker", "listne", "listen"),
        ("group", "alert_lag", "alert_lag_ms"),
        # Other words
        ("topic", "colour", None),
        ("queue", "x", None),
        ("broker", "flush", None),
        ("topic", "", None),
    ],
)
def test_a_foreign_or_mistyped_name_has_its_nearest(
    owner: str, name: str, nearest: str | None
) -> None:
    assert nearest_name(name, KNOWN[owner]) == nearest


@pytest.mark.parametrize(
    "spelled", ["retention.ms", "retention-ms", "retention_ms", "RetentionMs", "retentionMs"]
)
def test_every_spelling_becomes_snake_case(spelled: str) -> None:
    assert snake_case(spelled) == "retention_ms"


@pytest.mark.parametrize(
    ("name", "known", "text"),
    [
        (
            "retention.ms",
            SETTINGS,
            "there is no topic setting 'retention.ms'; did you mean retention_ms?",
        ),
        (
            "VisibilityTimeout",
            QUEUE_SETTINGS,
            (
                "there is no topic setting 'VisibilityTimeout'; did you mean visibility_timeout_ms?"
                " it takes a duration, such as 30s"
            ),
        ),
        (
            "linger.ms",
            ["acks", "linger"],
            "there is no topic setting 'linger.ms'; did you mean linger? it takes seconds",
        ),
        (
            "colour",
            ["acks", "linger"],
            "there is no topic setting 'colour'; there are acks, linger",
        ),
    ],
)
def test_the_text_suggests_a_name_with_its_unit_or_lists_all(
    name: str, known: list[str], text: str
) -> None:
    assert unknown_setting(name, known, of="topic") == text


def test_names_that_are_not_listed_are_suggested_as_well() -> None:
    assert unknown_setting("log.retention.ms", ["listen"], unlisted=["retention_ms"]) == (
        "there is no setting 'log.retention.ms'; did you mean retention_ms?"
    )
    assert unknown_setting("colour", ["listen"], unlisted=["retention_ms"]) == (
        "there is no setting 'colour'; there are listen"
    )
