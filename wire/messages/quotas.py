"""Messages about quotas of principals: changes, lists with their use, and shares of brokers.

Pure: declarations.
"""

from typing import Annotated

import msgspec

from tidelog.wire.messages.field_types import ByteCount, Listed

_QUOTAS_MAX = 64
QuotaNumber = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
"""The value of a quota, or an amount of its use."""

QuotaValues = Annotated[dict[str, QuotaNumber], msgspec.Meta(max_length=_QUOTAS_MAX)]
"""Values of quotas by name; see `wire.config.quotas`."""

QuotaNames = Annotated[list[str], msgspec.Meta(max_length=_QUOTAS_MAX)]
"""Names of quotas."""


class PrincipalUse(msgspec.Struct, frozen=True, array_like=True):
    """The use of one principal at one broker, as its heartbeat reports it."""

    principal: str
    """Text of the principal, such as `user:alice`."""
    rates: Listed[QuotaNumber]
    """Use per second since the last report, in the order of `wire.config.quota_rates.RATES`."""
    demands: Listed[QuotaNumber]
    """Estimated demand per second, in the same order: higher than the use while throttled."""
    throttled_ms: QuotaNumber
    """Throttled milliseconds of each second since the last report."""
    connections: QuotaNumber
    """Open connections now."""
    storage_bytes: ByteCount
    """Bytes in partitions that the broker leads, of topics that the principal created; 0 without a
    quota."""


class PrincipalShare(msgspec.Struct, frozen=True, array_like=True):
    """The share of one broker in the quotas of one principal."""

    principal: str
    rates: Listed[QuotaNumber]
    """Share per second, in the order of `wire.config.quota_rates.RATES`; 0 without a quota."""
    storage_bytes: ByteCount
    """Bytes at all brokers, as far as they have reported."""


class AlterQuotasRequest(msgspec.Struct, frozen=True, array_like=True):
    """Change quotas of one principal, all or none."""

    principal: str
    """`user:NAME`, `anonymous`, or `default` for each principal without quotas of its own."""
    set_values: QuotaValues = {}
    """Quotas to set."""
    remove_names: QuotaNames = []
    """Quotas to remove; `*` alone removes all of them."""


class AlterQuotasReply(msgspec.Struct, frozen=True, array_like=True):
    """The quotas of the principal after the change."""

    values: dict[str, int]
    """All quotas of the principal; empty if it has none of its own any more."""


class ListQuotasRequest(msgspec.Struct, frozen=True, array_like=True):
    """List quotas and their use. The controller answers."""

    principals: Listed[str] | None
    """Principals to list; `None` for those that have quotas, or use some now."""


class QuotaDescription(msgspec.Struct, frozen=True, array_like=True):
    """The quotas of one principal, and its use now."""

    principal: str
    values: dict[str, int]
    """Quotas in force, by name."""
    is_own: bool
    """Whether the quotas are the principal's own; otherwise they are those of `default`."""
    use: dict[str, int]
    """Use by name of the quota: rates per second, summed over the brokers that reported lately."""
    throttled_ms: int
    """Throttled milliseconds of each second, at the broker where it is throttled most."""


class ListQuotasReply(msgspec.Struct, frozen=True, array_like=True):
    """The quotas, by principal; `default` is the first."""

    quotas: list[QuotaDescription]
