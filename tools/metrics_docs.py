"""The generator of `docs/metrics.md`.

`python -m tools.metrics_docs > docs/metrics.md` writes the page.

Its sources are the catalogs `broker.metrics.catalog`, `client.metrics.catalog` and
`gateway.sqs.metrics`.
"""

import sys
from collections.abc import Iterator, Mapping

from tidelog.broker.config.broker_config import DEFAULT_HTTP_LISTEN, FIELDS
from tidelog.broker.metrics import catalog as broker_catalog
from tidelog.client.metrics import catalog as client_catalog
from tidelog.gateway.sqs.metrics import SECTIONS as SQS_SECTIONS
from tidelog.wire.metrics.metric import Metric

_OBJECTS_MAX = FIELDS["metrics_objects_max"].default
_INTRODUCTION = f"""\
# Metrics

This page lists for operators all metrics of brokers, clients and SQS fronts. `make generate` writes
it from the code; a test fails while it is stale.

- [Scrape brokers](#scrape-brokers)
- [Report a client](#report-a-client)
- [Which broker reports what](#which-broker-reports-what)
- [Number of series](#number-of-series)
- [Metrics of a broker](#metrics-of-a-broker)
- [Metrics of a client](#metrics-of-a-client)
- [Metrics of an SQS front](#metrics-of-an-sqs-front)

## Scrape brokers

Prometheus scrapes each broker at the address of its setting `http_listen` (`tidelog serve`:
`{DEFAULT_HTTP_LISTEN}`), path `/metrics`. The reply is in the text format of Prometheus, version
0.0.4. A broker that serves no clients yet answers with 503.

| path | reply |
|---|---|
| `/metrics` | all metrics |
| `/metrics?family=queue,group` | metrics whose names begin so behind `tidelog_` |
| `/metrics?name=pay*,orders` | topics, queues and groups whose names match a glob |
| `/metrics/partitions?topic=orders` | one series for each partition of these topics |

Programs get the same numbers with the request [READ_METRICS](protocol.md#read_metrics-72).

## Report a client

A client counts in any case; `client.statistics()` returns a snapshot. `tidelog.prometheus` adds it
to the endpoint of the application ([how-to](howto/client-metrics.md)).

## Which broker reports what

- Each broker reports its process, connections, requests, disks and replicas. Prometheus adds the
  label `instance`; no metric has a label for the broker.
- Only the leader of a partition counts its records and messages, so a sum over all brokers counts
  each once: `sum by (topic) (rate(tidelog_topic_received_records_total[5m]))`.
- Only the active controller reports groups, transactions, and thresholds of owners. Take the `max`
  over all brokers: `max by (group, topic) (tidelog_group_lag_records)`.
- A counter starts at 0 when a broker or a client starts. Names, units and types are those of
  Prometheus: base units, `_total` for counters. A histogram has the series `_bucket`, `_sum` and
  `_count`.

## Number of series

The number of series is bounded. A broker reports by name up to `metrics_objects_max` topics, as
many queues and as many groups: {_OBJECTS_MAX:,} of each by default. A topic or a queue gets series
of its own with its first traffic. A deleted one loses them at once, and an empty one after an hour
without traffic. All other topics and queues share the series `{broker_catalog.OTHER}`, whose
counters have only what happens while an object has no series of its own. So no counter goes back.
Queues with a threshold such as `alert_age_ms` always have series of their own. Of groups, the first
by name are reported.

A client reports by name the first {client_catalog.OBJECTS_MAX} topics that it produces to, as many
that it consumes, and as many queues; the rest is `{client_catalog.OTHER}`. It has no series of a
partition, a connection or a key.
"""


def describe() -> str:
    """Return the page."""
    return "".join(
        (
            _INTRODUCTION,
            "\n## Metrics of a broker\n",
            *_sections(broker_catalog.SECTIONS, ""),
            "\n## Metrics of a client\n\n",
            "The collector adds the label `client` to all of them.\n",
            *_sections(client_catalog.SECTIONS, "Client: "),
            "\n## Metrics of an SQS front\n\n",
            "`/metrics` of a front has these, and those of its own client.\n",
            *_sections(SQS_SECTIONS, "SQS: "),
        )
    )


def _sections(sections: Mapping[str, tuple[Metric, ...]], prefix: str) -> Iterator[str]:
    for title, metrics in sections.items():
        yield f"\n### {prefix}{title}\n\n| metric | type | labels | meaning |\n|---|---|---|---|\n"
        for metric in metrics:
            labels = ", ".join(f"`{label}`" for label in metric.labels)
            yield f"| `{metric.name}` | {metric.kind} | {labels} | {metric.help}. |\n"


if __name__ == "__main__":
    sys.stdout.write(describe())
