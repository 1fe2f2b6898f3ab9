"""Quotas in force for a principal.

Pure: no clock, no I/O.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from tidelog.coordinator.security.records import QuotaSet
from tidelog.wire.config.quotas import (
    DEFAULT,
)
from tidelog.wire.errors import InvalidRequestError, QuotaExceededError
from tidelog.wire.security.principal import PrincipalKind, parse_principal

_NONE: Final[Mapping[str, int]] = MappingProxyType({})


def quotas_of(quotas: Mapping[str, QuotaSet], principal: str) -> Mapping[str, int]:
    """Return the quotas of a principal: its own, or those of `default` if it has none.

    Nodes have none.
    """
    if principal.startswith(f"{PrincipalKind.NODE}:"):
        return _NONE
    found = quotas.get(principal) or quotas.get(DEFAULT)
    return _NONE if found is None else found.values


def check_quota_owner(principal: str) -> None:
    """Check that a principal may have quotas.

    Raises:
        InvalidRequestError: The text is no principal, or a node.
    """
    if principal != DEFAULT:
        found = parse_principal(principal)
        if found.kind is PrincipalKind.NODE:
            raise InvalidRequestError(
                f"{principal} is a node, and replication is never throttled; write user:NAME,"
                f" anonymous or {DEFAULT}"
            )


def over_count(quota: str, *, principal: str, limit: int, used: int) -> QuotaExceededError:
    """Return the error for a change that would exceed a count; `used` is the use before it."""
    return QuotaExceededError(
        f"{quota} of {principal} is {limit:,}, and {used:,} are used; remove some, or raise the"
        f" quota: tidelog quota set {principal} {quota}=VALUE",
        limit=limit,
        used=used,
    )
