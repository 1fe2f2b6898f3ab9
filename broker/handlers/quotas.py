"""Handlers of ALTER_QUOTAS and LIST_QUOTAS."""

from typing import Final, final

from tidelog.broker.handlers.feature_level import require_security
from tidelog.coordinator.metadata.catalog import OwnedCounts
from tidelog.coordinator.node import ClusterNode
from tidelog.coordinator.security.commands import SetQuota
from tidelog.coordinator.security.quota_limits import check_quota_owner, quotas_of
from tidelog.wire.config.quota_rates import RATES
from tidelog.wire.config.quotas import (
    CONNECTIONS,
    DEFAULT,
    PARTITIONS,
    QUEUES,
    STORAGE,
    check_quotas,
)
from tidelog.wire.messages.quotas import (
    AlterQuotasReply,
    AlterQuotasRequest,
    ListQuotasReply,
    ListQuotasRequest,
    PrincipalUse,
    QuotaDescription,
)

_DECIDE_TIMEOUT_S: Final = 10.0


@final
class QuotasHandler:
    """Changes and lists quotas."""

    def __init__(self, cluster: ClusterNode) -> None:
        """Serve requests at one node."""
        self._cluster = cluster

    async def alter(self, request: AlterQuotasRequest) -> AlterQuotasReply:
        """Change quotas of a principal. On cancellation, they may be changed or not.

        Raises:
            InvalidRequestError: The principal, a name or a value is not legal.
            RequestTimedOutError: The voters have no majority; the quotas may be changed.
        """
        check_quota_owner(request.principal)
        check_quotas(request.set_values)
        await require_security(self._cluster)
        command = SetQuota(request.principal, request.set_values, tuple(request.remove_names))
        await self._cluster.command_client.submit(command, timeout_s=_DECIDE_TIMEOUT_S)
        found = self._cluster.metadata.state.security.quotas.get(request.principal)
        return AlterQuotasReply({} if found is None else dict(found.values))

    async def list_quotas(self, request: ListQuotasRequest) -> ListQuotasReply:
        """List quotas with their use, as the brokers have reported it in the last seconds.

        Raises:
            InvalidRequestError: A text is no principal.
            NotControllerError: Another broker is the controller.
        """
        for principal in request.principals or ():
            check_quota_owner(principal)
        reports = self._cluster.controller.quota_use()
        state = self._cluster.metadata.state
        quotas = state.security.quotas
        uses: dict[str, list[PrincipalUse]] = {}
        for report in reports.values():
            for use in report.values():
                uses.setdefault(use.principal, []).append(use)
        names = request.principals
        if names is None:
            names = sorted({*quotas, *uses}, key=lambda name: (name != DEFAULT, name))
        return ListQuotasReply(
            [
                QuotaDescription(
                    name,
                    dict(quotas_of(quotas, name)),
                    name in quotas,
                    _sum(uses.get(name, []), state.catalog.owned(name)),
                    max((use.throttled_ms for use in uses.get(name, [])), default=0),
                )
                for name in dict.fromkeys(names)
            ]
        )


def _sum(uses: list[PrincipalUse], counts: OwnedCounts) -> dict[str, int]:
    """Return the use of a principal by quota, over all brokers."""
    rates = {
        name: sum(use.rates[place] for use in uses if place < len(use.rates))
        for place, name in enumerate(RATES)
    }
    return {
        **rates,
        CONNECTIONS: sum(use.connections for use in uses),
        PARTITIONS: counts.partitions,
        QUEUES: counts.queues,
        STORAGE: sum(use.storage_bytes for use in uses),
    }
