"""Counts of topics or queues as rows of metrics, made in steps: there may be very many."""

from collections.abc import Mapping, Sequence
from typing import Final, TypeVar

import trio

from tidelog.broker.metrics.catalog import OTHER
from tidelog.broker.metrics.object_counts import Counts, ObjectCounts
from tidelog.wire.metrics.metric import Labels, Metric

AT_ONCE: Final = 1_000
"""Objects that are read before other tasks run: some milliseconds, if they have no labels yet."""

C = TypeVar("C", bound=Counts)


async def rows_of(
    counts: ObjectCounts[C], metric: Metric, known: Mapping[str, Labels]
) -> tuple[dict[str, Labels], Sequence[C]]:
    """Return the labels of all objects by name, and their counts in the same order.

    Labels that are not `known` are made for `metric`, whose only label is the name.
    """
    labels: dict[str, Labels] = {}
    rows: list[C] = []
    for number, (name, each) in enumerate([*counts, (OTHER, counts.other)]):
        if number % AT_ONCE == 0:
            await trio.lowlevel.checkpoint()
        labels[name] = known.get(name) or metric.labelled(name)
        rows.append(each)
    return labels, rows
