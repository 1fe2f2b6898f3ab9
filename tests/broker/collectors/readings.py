"""Metrics of a broker as one flat table, for tests."""

from tests.broker.broker_requests import submit
from tidelog.wire.messages.metrics import ReadMetricsRequest
from tidelog.wire.protocol import api
from tidelog.wire.transport.rpc import RpcConnection

Readings = dict[tuple[str, ...], float]
"""Values by name of the metric, without `tidelog_`, and the values of its labels; a histogram has
the number of its observations."""


async def read_metrics(client: RpcConnection, *families: str, names: str = "") -> Readings:
    """Read the metrics of a broker."""
    reply = await submit(
        client, api.READ_METRICS, ReadMetricsRequest(list(families), names)
    ).reply()
    return {
        (family.name.removeprefix("tidelog_"), *sample.labels): (
            sample.value if sample.histogram is None else sample.histogram.counts[-1]
        )
        for family in reply.families
        for sample in family.samples
    }
