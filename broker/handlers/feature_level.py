"""The condition for features of a higher level: all nodes of the cluster know them."""

from collections.abc import Mapping
from typing import Final

from tidelog.coordinator.metadata.catalog import TopicLabelsSet
from tidelog.coordinator.metadata.features import (
    COLUMNAR_BATCH_LEVEL,
    FORGET_NAMES_LEVEL,
    RECORD_LEVELS,
    REDRIVE_SOURCES_LEVEL,
    batch_format,
    check_level,
    queue_settings_level,
    record_level,
    topic_settings_level,
)
from tidelog.coordinator.node import ClusterNode
from tidelog.coordinator.security.records import AccessKeySet, UserSet
from tidelog.wire.batch.record_batch import BatchHeader
from tidelog.wire.errors import BrokerNotReadyError

_CATCH_UP_TIMEOUT_S: Final = 10.0


async def require_labels(cluster: ClusterNode, labels: Mapping[str, str]) -> None:
    """Check that a command may have labels: a controller of an older version would drop them.

    Raises:
        BrokerNotReadyError: The cluster is new, and has no feature level yet.
        InvalidRequestError: The feature level of the cluster is too low.
        RequestTimedOutError: The voters have no majority.
    """
    if labels:
        await _require(cluster, record_level(TopicLabelsSet(b"", {})), "labels")


async def require_queue_settings(cluster: ClusterNode, settings: Mapping[str, str]) -> None:
    """Check that a command may have these settings of a queue.

    The controller checks it too; it cannot tell a new cluster from one of an older version.

    Errors as in `require_labels`.
    """
    await _require(cluster, queue_settings_level(settings), "owners and alerts of queues")


async def require_security(cluster: ClusterNode) -> None:
    """Check that a command may change users, roles, grants, quotas or data keys.

    Errors as in `require_labels`.
    """
    await _require(cluster, RECORD_LEVELS[UserSet], "users, grants and quotas")


async def require_access_keys(cluster: ClusterNode) -> None:
    """Check that a command may change access keys.

    Errors as in `require_labels`.
    """
    await _require(cluster, RECORD_LEVELS[AccessKeySet], "access keys")


async def require_redrive_to_sources(cluster: ClusterNode) -> None:
    """Check that a redrive may be restricted: a leader of an older version would not know it.

    Errors as in `require_labels`.
    """
    await _require(cluster, REDRIVE_SOURCES_LEVEL, "redrives to sources only")


async def require_forgetting(cluster: ClusterNode) -> None:
    """Check that names of transactions may be forgotten by a command.

    Errors as in `require_labels`.
    """
    await _require(cluster, FORGET_NAMES_LEVEL, "forgetting names of transactions")


async def require_topic_settings(cluster: ClusterNode, settings: Mapping[str, str]) -> None:
    """Check that a command may have these settings of a topic; see `require_queue_settings`.

    Errors as in `require_labels`.
    """
    await _require(cluster, topic_settings_level(settings), "encrypted topics")


def require_batch_format(cluster: ClusterNode, header: BatchHeader) -> None:
    """Check that logs may have a batch of this format version, as far as this broker knows.

    A client may have heard of a rise of the level from another broker before.

    Raises:
        BrokerNotReadyError: The feature level of the cluster is too low.
    """
    level = cluster.metadata.state.feature_level
    if header.format_version > batch_format(level):
        raise BrokerNotReadyError(
            f"a batch of format version {header.format_version} needs feature level"
            f" {COLUMNAR_BATCH_LEVEL}, and the cluster has level {level} as far as this broker"
            f" knows; send the batch again, or one of version {batch_format(level)}"
        )


async def _require(cluster: ClusterNode, level: int, what: str) -> None:
    if cluster.metadata.state.feature_level >= level:
        return
    await cluster.command_client.catch_up(timeout_s=_CATCH_UP_TIMEOUT_S)
    state = cluster.metadata.state
    if state.is_first_level_open:
        raise BrokerNotReadyError(
            f"{what} need a feature level, and the new cluster has none yet; try again when all of"
            " its first nodes have started"
        )
    check_level(level, state.feature_level)
