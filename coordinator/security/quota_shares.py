"""Shares of brokers in the rates of principals: the controller divides each rate by demand.

Pure: no clock, no I/O. Nothing of it is replicated: a new controller learns the demand from the
next heartbeats. A share is a lease. A broker whose lease has ended uses the limit divided by the
number of brokers, which the controller keeps free for it.

Invariant: the shares that can be in force at one time, with those of brokers without a lease, are
never above the limit, while one controller serves all brokers. After a change of controllers, or
when a broker meets a new principal, they are above it for one lease at most, and never above the
double.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple, final

from tidelog.coordinator.security.quota_limits import quotas_of
from tidelog.coordinator.security.records import QuotaSet
from tidelog.wire.config.quota_rates import RATES
from tidelog.wire.config.quotas import (
    PER_BROKER,
)
from tidelog.wire.messages.quotas import PrincipalShare, PrincipalUse

LEASE_MS: Final = 3_000
"""Time for which a broker uses a share, counted from when it asked for it."""
_FLOOR: Final = 0.1
"""Part of a limit that is divided evenly: a broker without demand so far begins with it."""
_KNOWN_MS: Final = 10_000
"""Time after which a report of a broker that is silent is forgotten."""

RateKey = tuple[str, int]
"""Text of a principal, and the place of a rate in `RATES`."""


class _Lease(NamedTuple):
    """A share that a broker may use."""

    share: float
    until_ms: int


class _Report(NamedTuple):
    """The last report of a broker."""

    uses: Mapping[str, PrincipalUse]
    at_ms: int


def divide(
    limit: float, demands: Mapping[int, float], *, reserved: Mapping[int, float]
) -> dict[int, float]:
    """Return the share of each broker: a part evenly, the rest by demand, what is left evenly.

    Args:
        limit: QuotaRate of all brokers together.
        demands: Demand by broker, of those that get a share.
        reserved: Rates of brokers that do not get one now.
    """
    free = max(0.0, limit - sum(reserved.values()))
    if not demands:
        return {}
    floor = min(free, limit * _FLOOR) / len(demands)
    shares = dict.fromkeys(demands, floor)
    free -= floor * len(demands)
    # Max-min fairness: the smallest demands are met first, the others divide what is left.
    rising = sorted(demands, key=lambda node_id: demands[node_id])
    for place, node_id in enumerate(rising):
        part = min(max(0.0, demands[node_id] - floor), free / (len(rising) - place))
        shares[node_id] += part
        free -= part
    for node_id in shares:
        shares[node_id] += free / len(shares)
    return shares


@final
class QuotaShares:
    """Reports and leases of the brokers, in one term of a controller."""

    def __init__(self) -> None:
        """Start without reports."""
        self._reports: dict[int, _Report] = {}
        self._leases: dict[RateKey, dict[int, list[_Lease]]] = {}

    def uses(self, *, now_ms: int) -> dict[int, Mapping[str, PrincipalUse]]:
        """Return the last reports of the brokers by node id, then by principal."""
        self._forget(now_ms)
        return {node_id: report.uses for node_id, report in self._reports.items()}

    def answer(
        self,
        node_id: int,
        uses: Sequence[PrincipalUse],
        *,
        quotas: Mapping[str, QuotaSet],
        live: Collection[int],
        now_ms: int,
    ) -> list[PrincipalShare]:
        """Record the report of a broker; return its shares for the principals in use anywhere.

        Args:
            node_id: The broker.
            uses: Its report.
            quotas: All quotas by principal.
            live: Brokers that serve clients now.
            now_ms: Monotonic milliseconds.
        """
        self._reports[node_id] = _Report({each.principal: each for each in uses}, now_ms)
        self._forget(now_ms)
        principals = dict.fromkeys(
            principal for report in self._reports.values() for principal in report.uses
        )
        nodes = {*live, node_id}
        shares: list[PrincipalShare] = []
        for principal in principals:
            limits = quotas_of(quotas, principal)
            rates = [
                0
                if not (limit := limits.get(name, 0)) or name in PER_BROKER
                else self._share((principal, place), node_id, limit, nodes=nodes, now_ms=now_ms)
                for place, name in enumerate(RATES)
            ]
            shares.append(PrincipalShare(principal, rates, self._stored(principal)))
        return shares

    def _share(
        self, key: RateKey, node_id: int, limit: int, *, nodes: Collection[int], now_ms: int
    ) -> int:
        """Return the share of a broker that is safe now, and record its lease."""
        fallback = limit / len(nodes)
        reporting = [each for each in nodes if each in self._reports]
        silent = {each: fallback for each in nodes if each not in self._reports}
        demands = {each: self._demand(each, key) for each in reporting}
        wanted = divide(limit, demands, reserved=silent)[node_id]
        leases = self._leases.setdefault(key, {})
        # A broker may still use any share of a lease that has not ended: its answer may be lost.
        in_force = sum(
            max((lease.share for lease in self._valid(leases, each, now_ms)), default=fallback)
            for each in nodes
            if each != node_id
        )
        share = max(1.0, min(wanted, limit - in_force))
        leases[node_id] = [
            *(lease for lease in self._valid(leases, node_id, now_ms) if lease.share > share),
            _Lease(share, now_ms + LEASE_MS),
        ]
        return int(share)

    def _demand(self, node_id: int, key: RateKey) -> float:
        principal, place = key
        use = self._reports[node_id].uses.get(principal)
        return 0.0 if use is None or place >= len(use.demands) else use.demands[place]

    @staticmethod
    def _valid(leases: Mapping[int, list[_Lease]], node_id: int, now_ms: int) -> list[_Lease]:
        return [lease for lease in leases.get(node_id, ()) if lease.until_ms > now_ms]

    def _stored(self, principal: str) -> int:
        uses = (report.uses.get(principal) for report in self._reports.values())
        return sum(use.storage_bytes for use in uses if use is not None)

    def _forget(self, now_ms: int) -> None:
        for node_id, report in list(self._reports.items()):
            if now_ms - report.at_ms > _KNOWN_MS:
                del self._reports[node_id]
        for key, leases in list(self._leases.items()):
            for node_id in list(leases):
                if not self._valid(leases, node_id, now_ms):
                    del leases[node_id]
            if not leases:
                del self._leases[key]
