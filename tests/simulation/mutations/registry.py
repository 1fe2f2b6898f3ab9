"""Registry of all mutations, by the kinds of simulated runs that must find them."""

from collections.abc import Mapping, Sequence
from typing import Final

from tests.simulation.mutations import (
    access,
    broker,
    certificates,
    client,
    cluster,
    compaction,
    counts,
    encryption,
    formats,
    groups,
    isr,
    logstore,
    metadata,
    processing,
    queue_regressions,
    queues,
    quotas,
    raft,
    recovery,
    replication,
    three_brokers,
    transactions,
)
from tests.simulation.mutations.mutation import Mutation

_ALSO_FOUND_IN_CLUSTERS: Final = {
    "acknowledged-by-the-leader-alone",
    "commit-alone",
    "commit-with-too-few-in-sync",
    "epoch-lookup-off-by-one",
    "high-watermark-before-truncation",
    "high-watermark-over-the-committed-ISR",
    "high-watermark-over-the-proposed-ISR",
    "join-below-the-leader-epoch",
    "join-wherever-it-is",
    "join-with-a-stale-broker-epoch",
    "logs-are-not-compared",
    "the-leader-memory-is-its-disk",
    "truncate-only-what-is-too-long",
}
"""Mutations of replication's cores and shells that runs of whole clusters find as well."""

MUTATIONS: Final[Mapping[str, Sequence[Mutation]]] = {
    "broker": (
        *logstore.MUTATIONS,
        *broker.MUTATIONS,
        *client.MUTATIONS,
        *formats.IN_LOGS,
    ),
    "compacted": (*compaction.MUTATIONS, *formats.IN_COMPACTED_LOGS),
    "cluster": (
        *cluster.MUTATIONS,
        isr.TRUNCATE_BY_HIGH_WATERMARK,
        *(
            each
            for each in (*isr.MUTATIONS, *three_brokers.MUTATIONS)
            if each.name in _ALSO_FOUND_IN_CLUSTERS
        ),
        *replication.MUTATIONS,
        *recovery.IN_CLUSTERS,
        transactions.DROPPED_EARLY,
    ),
    "queues": (*queues.MUTATIONS, *queue_regressions.MUTATIONS),
    "three_brokers": three_brokers.MUTATIONS,
    "counts": counts.MUTATIONS,
    "transactions": transactions.MUTATIONS,
    "processing": processing.MUTATIONS,
    "access": access.MUTATIONS,
    "certificates": certificates.MUTATIONS,
    "quotas": quotas.MUTATIONS,
    "encryption": encryption.MUTATIONS,
    "raft": raft.MUTATIONS,
    "groups": groups.MUTATIONS,
    "metadata": (*metadata.MUTATIONS, *recovery.MUTATIONS),
    "isr": isr.MUTATIONS,
}
"""By kind of runs."""

_BY_NAME: Final = {each.name: each for found in MUTATIONS.values() for each in found}


def find_mutation(name: str) -> Mutation:
    """Return the mutation with a name.

    Raises:
        KeyError: There is no such mutation.
    """
    return _BY_NAME[name]


def all_mutations() -> list[Mutation]:
    """Return every mutation once."""
    return list(_BY_NAME.values())
