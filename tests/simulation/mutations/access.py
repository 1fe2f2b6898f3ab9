"""Mutations of the control of access."""

# Reads private state of reviews.
# pyright: reportPrivateUsage=false

from typing import Final

from tests.simulation.mutations.mutation import Mutation
from tidelog.broker.handlers import access as access_handler
from tidelog.broker.requests.identity import ClientIdentity
from tidelog.broker.security.access_control import AccessControl, AccessReview, Pieces
from tidelog.broker.security.access_keys import AccessKeys
from tidelog.coordinator.node import ClusterNode
from tidelog.coordinator.security.records import AccessKeySet


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


def _may_go_on(self: AccessControl, actor: ClientIdentity) -> bool:
    del self, actor
    return True


def _is_current_for_ever(self: AccessKeys, known: AccessKeySet) -> bool:
    del self, known
    return True


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
GATEWAY_GOES_ON: Final = Mutation(
    "gateway-outlives-its-action",
    "a gateway acts for a user although it may not impersonate any more",
    (AccessControl, "may_impersonate", _may_go_on),
)
KEY_GOES_ON: Final = Mutation(
    "gateway-outlives-the-key",
    "a gateway acts for a user whose access key is disabled",
    (AccessKeys, "is_current", _is_current_for_ever),
)
MUTATIONS: Final = (ANSWERED_AT_ONCE, DECIDED_ONCE, GATEWAY_GOES_ON, KEY_GOES_ON)
