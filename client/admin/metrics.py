"""Metrics of all brokers of a cluster, at one moment.

Shell: asks all brokers at the same time.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, final

import trio

from tidelog.client.cluster.cluster_client import ClusterClient
from tidelog.wire.errors import (
    ConnectError,
    InvalidRequestError,
    RequestTimedOutError,
    TidelogError,
    UnsupportedVersionError,
)
from tidelog.wire.messages.cluster_admin import NodeDescription
from tidelog.wire.messages.metrics import MetricFamily, ReadMetricsReply, ReadMetricsRequest
from tidelog.wire.protocol import api

_PATIENCE_S: Final = 6.0
"""Seconds for the answer of a broker. The controller asks leaders about groups for up to 5 s."""
_ANSWERING: Final = ("alive", "stopping")


@final
@dataclass(frozen=True, slots=True)
class BrokerMetrics:
    """Metrics of one broker, at one moment."""

    node_id: int
    families: Mapping[str, MetricFamily] = field(default_factory=dict[str, MetricFamily])
    """By name, as in `docs/metrics.md`; empty if the broker did not answer."""
    time_s: float | None = None
    """Seconds of a clock that only grows, for rates between two readings of the same process;
    `None` if the broker did not answer."""
    error: TidelogError | None = None
    """The reason if the broker did not answer."""


async def read_metrics(
    cluster: ClusterClient,
    nodes: Sequence[NodeDescription],
    *,
    families: Iterable[str],
    names: str,
) -> list[BrokerMetrics]:
    """See `Admin.metrics`; `nodes` are those of the cluster."""
    request = ReadMetricsRequest(list(families), names)
    found: dict[int, BrokerMetrics] = {}
    refused: list[InvalidRequestError] = []

    async def ask(node_id: int) -> None:
        try:
            reply = await _ask(cluster, node_id, request)
        except TidelogError as error:
            if isinstance(error, InvalidRequestError) and not _is_old(error):
                refused.append(error)
            found[node_id] = BrokerMetrics(node_id, error=error)
        else:
            by_name = {family.name: family for family in reply.families}
            found[node_id] = BrokerMetrics(node_id, by_name, reply.time_ms / 1000)

    async def ask_all() -> None:
        async with trio.open_nursery() as nursery:
            for node in nodes:
                status = node.last_known_status or node.status
                if status in _ANSWERING:
                    nursery.start_soon(ask, node.node_id)
                else:
                    error = ConnectError(f"node {node.node_id} is {_state_of(status)}")
                    found[node.node_id] = BrokerMetrics(node.node_id, error=error)

    await cluster.tasks.until_closed(ask_all)
    if refused:
        raise refused[0]
    return [found[node.node_id] for node in nodes]


async def _ask(
    cluster: ClusterClient, node_id: int, request: ReadMetricsRequest
) -> ReadMetricsReply:
    with trio.move_on_after(_PATIENCE_S):
        connection = await cluster.connection_to(node_id)
        return await cluster.call_once(connection, api.READ_METRICS, request)
    raise RequestTimedOutError(f"node {node_id} did not answer within {_PATIENCE_S:g} s")


def _is_old(error: InvalidRequestError) -> bool:
    """Return whether a broker refused because its version has no metrics."""
    return isinstance(error, UnsupportedVersionError)


def _state_of(status: str) -> str:
    return "not registered" if status == "unknown" else status
