"""The condition for labels: all nodes of the cluster know them."""

from collections.abc import Mapping
from typing import Final

from tidelog.coordinator.metadata.catalog import TopicLabelsSet
from tidelog.coordinator.metadata.features import check_records, record_level
from tidelog.coordinator.node import ClusterNode
from tidelog.wire.errors import BrokerNotReadyError

_CATCH_UP_TIMEOUT_S: Final = 10.0


async def require_labels(cluster: ClusterNode, labels: Mapping[str, str]) -> None:
    """Check that a command may have labels: a controller of an older version would drop them.

    Raises:
        BrokerNotReadyError: The cluster is new, and has no feature level yet.
        InvalidRequestError: The feature level of the cluster is too low.
        RequestTimedOutError: The voters have no majority.
    """
    record = TopicLabelsSet(b"", {})
    if not labels or cluster.metadata.state.feature_level >= record_level(record):
        return
    await cluster.command_client.catch_up(timeout_s=_CATCH_UP_TIMEOUT_S)
    state = cluster.metadata.state
    if state.is_first_level_open:
        raise BrokerNotReadyError(
            "labels need a feature level, and the new cluster has none yet; try again when all of"
            " its first nodes have started"
        )
    check_records([record], state.feature_level)
