"""Mutations of quotas."""

# Reads private state of shares.
# pyright: reportPrivateUsage=false

from collections.abc import Collection
from typing import Final

from tests.simulation.mutations.mutation import Mutation
from tidelog.broker.quotas.account import Account
from tidelog.broker.quotas.broker_quotas import BrokerQuotas
from tidelog.coordinator.security.quota_shares import QuotaShares, RateKey

_ACCOUNT_OF: Final = BrokerQuotas.account_of


def _whole_rate(
    self: QuotaShares,
    key: RateKey,
    node_id: int,
    limit: int,
    *,
    nodes: Collection[int],
    now_ms: int,
) -> int:
    del self, key, node_id, nodes, now_ms
    return limit


def _no_demand(self: QuotaShares, node_id: int, key: RateKey) -> float:
    del self, node_id, key
    return 0.0


def _account_of_all(self: BrokerQuotas, principal: str) -> Account:
    del principal
    return _ACCOUNT_OF(self, "user:all")


MUTATIONS: Final = (
    Mutation(
        "every-broker-gets-the-whole-rate",
        "the controller gives each broker the whole rate of a principal",
        (QuotaShares, "_share", _whole_rate),
    ),
    Mutation(
        "shares-ignore-demand",
        "the controller divides a rate evenly, whatever brokers need",
        (QuotaShares, "_demand", _no_demand),
    ),
    Mutation(
        "principals-share-an-account",
        "a broker charges the requests of all principals to one account",
        (BrokerQuotas, "account_of", _account_of_all),
    ),
)
