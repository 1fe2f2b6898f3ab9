"""Mutations of the control of access."""

# Reads private state of reviews.
# pyright: reportPrivateUsage=false

from typing import Final

from tests.simulation.mutations.mutation import Mutation
from tidelog.broker.handlers import access as access_handler
from tidelog.broker.security.access_control import AccessReview, Pieces
from tidelog.coordinator.node import ClusterNode


async def _at_once(cluster: ClusterNode) -> list[int]:
    del cluster
    return []


def _as_at_the_arrival(
    self: AccessReview, message: object, attachment: Pieces
) -> tuple[object, Pieces]:
    requirement, asker = self.requirement, self.asker
    if requirement.items is not None and self.refused:
        return self._merged(requirement.items, asker, message, attachment=attachment)
    return message, attachment


ANSWERED_AT_ONCE: Final = Mutation(
    "revocation-is-answered-at-once",
    "a change of rules is answered before the other brokers have applied it",
    (access_handler, "wait_in_force", _at_once),
)
DECIDED_ONCE: Final = Mutation(
    "replies-are-not-decided-again",
    "a request that waits is answered by the rules of its arrival",
    (AccessReview, "review", _as_at_the_arrival),
)
MUTATIONS: Final = (ANSWERED_AT_ONCE, DECIDED_ONCE)
