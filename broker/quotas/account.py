"""Account of one principal at one broker: its rates, its use, and its debt (Kafka: client quota).

Pure: no clock, no I/O. A request is accepted whole while no rate is in debt; its excess is a debt,
and the next request waits until that is paid back (`queue_layer.token_bucket`).
"""

from collections.abc import Mapping, Sequence
from typing import Final, final

from tidelog.queue_layer.token_bucket import TokenBucket
from tidelog.wire.config.quota_rates import NO_THROTTLE, RATES, QuotaRate, Throttle
from tidelog.wire.config.quotas import (
    CONNECTIONS,
    OVER_QUOTA,
    PER_BROKER,
    STORAGE,
    OverQuota,
)
from tidelog.wire.messages.quotas import PrincipalUse

ALL_RATES: Final = tuple(QuotaRate)
_MORE: Final = 2.0
"""Demand of a throttled principal, as a multiple of what it gets: the true demand is not known."""
_ROOM: Final = 1.25
"""The same for a principal that is not throttled, so that it may grow until the next report."""


@final
class Account:
    """Rates, use and debt of one principal.

    Invariant: a rate is in force for each quota of the principal, and for no other.
    """

    __slots__ = (
        "_broker_count",
        "_buckets",
        "_limits",
        "_reported_at_ms",
        "_share_until_ms",
        "_shares",
        "_throttled_rates",
        "_throttled_until_ms",
        "_unreported_ms",
        "_untaken_ms",
        "_used",
        "connection_count",
        "last_used_ms",
        "principal",
        "quotas",
        "stored_bytes",
    )

    def __init__(
        self, principal: str, quotas: Mapping[str, int], *, broker_count: int, now_ms: int
    ) -> None:
        """Start without use; `broker_count` brokers share the rates of the whole cluster."""
        self.principal = principal
        """Text of the principal."""
        self.quotas: Mapping[str, int] = {}
        """Quotas in force."""
        self.connection_count = 0
        """Open connections."""
        self.stored_bytes = 0
        """Bytes of its topics at all brokers, as of the last answer of the controller."""
        self.last_used_ms = now_ms
        self._limits = [0.0] * len(RATES)
        self._shares = [0.0] * len(RATES)
        self._share_until_ms = -1
        self._buckets: list[TokenBucket | None] = [None] * len(RATES)
        self._used = [0.0] * len(RATES)
        self._throttled_rates: dict[QuotaRate, int] = {}
        """Throttled milliseconds since the last report, by rate."""
        self._untaken_ms: dict[QuotaRate, int] = {}
        self._throttled_until_ms = now_ms
        self._reported_at_ms = now_ms
        self._unreported_ms = 0
        """Throttled milliseconds that no report has had yet; a debt is throttled time to come."""
        self._broker_count = 1
        self.configure(quotas, broker_count=broker_count, now_ms=now_ms)

    @property
    def has_quotas(self) -> bool:
        """Whether the principal has any quota."""
        return bool(self.quotas)

    @property
    def is_refusing(self) -> bool:
        """Whether requests beyond a rate get an error, and do not wait."""
        return self.quotas.get(OVER_QUOTA, OverQuota.THROTTLE) == OverQuota.ERROR

    @property
    def has_connection_room(self) -> bool:
        """Whether one more connection is allowed."""
        return self.connection_count < self.quotas.get(CONNECTIONS, self.connection_count + 1)

    @property
    def is_over_storage(self) -> bool:
        """Whether the topics of the principal hold as many bytes as they may."""
        return self.stored_bytes >= self.quotas.get(STORAGE, self.stored_bytes + 1)

    def configure(self, quotas: Mapping[str, int], *, broker_count: int, now_ms: int) -> None:
        """Set the quotas in force; debts stay."""
        self.quotas = quotas
        self._broker_count = max(1, broker_count)
        self._limits = [float(quotas.get(name, 0)) for name in RATES]
        for place in range(len(RATES)):
            self._apply(place, now_ms)

    def take_share(self, rates: Sequence[int], *, stored_bytes: int, until_ms: int) -> None:
        """Use shares of the controller until a time; see `coordinator.security.quota_shares`."""
        self.stored_bytes = stored_bytes
        self._shares = [float(rates[place]) if place < len(rates) else 0.0 for place in range(4)]
        self._share_until_ms = until_ms

    def rate_per_s(self, rate: QuotaRate, *, now_ms: int) -> float | None:
        """Return the rate in force at this broker, `None` without a limit."""
        place = rate - 1
        self._apply(place, now_ms)
        bucket = self._buckets[place]
        return None if bucket is None else bucket.tokens_per_s

    def charge(self, rate: QuotaRate, amount: float) -> None:
        """Count a use of a rate, which may make a debt."""
        place = rate - 1
        self._used[place] += amount
        bucket = self._buckets[place]
        if bucket is not None:
            bucket.take(amount)

    def throttle(self, rates: Sequence[QuotaRate] = ALL_RATES, *, now_ms: int) -> Throttle:
        """Return the rate with the longest debt, and the time until it is paid back."""
        self.last_used_ms = now_ms
        longest = NO_THROTTLE
        for rate in rates:
            place = rate - 1
            self._apply(place, now_ms)
            bucket = self._buckets[place]
            if bucket is not None:
                wait_ms = bucket.wait_ms(now_ms=now_ms)
                if wait_ms > longest.ms:
                    longest = Throttle(rate, wait_ms)
        if longest.ms:
            self._note_throttled(QuotaRate(longest.rate), now_ms + longest.ms, now_ms)
        return longest

    def take_throttled_ms(self) -> dict[QuotaRate, int]:
        """Return the throttled milliseconds since the last call, by rate."""
        taken, self._untaken_ms = self._untaken_ms, {}
        return taken

    def report(self, *, now_ms: int) -> PrincipalUse:
        """Return the use since the last report, for the controller; begin the next report."""
        elapsed_s = max(now_ms - self._reported_at_ms, 1) / 1000
        self._reported_at_ms = now_ms
        used = [amount / elapsed_s for amount in self._used]
        demands: list[int] = []
        for place, amount in enumerate(used):
            in_force = self.rate_per_s(QuotaRate(place + 1), now_ms=now_ms) or 0.0
            is_throttled = QuotaRate(place + 1) in self._throttled_rates
            wanted = max(amount, in_force) * _MORE if is_throttled else amount * _ROOM
            demands.append(int(wanted))
        self._unreported_ms += sum(self._throttled_rates.values())
        owed_ms = max(0, self._throttled_until_ms - now_ms)
        passed_ms = max(0, self._unreported_ms - owed_ms)
        self._unreported_ms -= passed_ms
        throttled_ms = min(1000, int(passed_ms / elapsed_s))
        self._used = [0.0] * len(RATES)
        self._throttled_rates = {}
        return PrincipalUse(
            self.principal,
            [int(amount) for amount in used],
            demands,
            throttled_ms,
            self.connection_count,
            0,
        )

    def _note_throttled(self, rate: QuotaRate, until_ms: int, now_ms: int) -> None:
        added = until_ms - max(now_ms, self._throttled_until_ms)
        self._throttled_rates.setdefault(rate, 0)
        if added > 0:
            self._throttled_until_ms = until_ms
            for counts in (self._untaken_ms, self._throttled_rates):
                counts[rate] = counts.get(rate, 0) + added

    def _apply(self, place: int, now_ms: int) -> None:
        """Put the rate in force that applies now: a share, or an even part of the limit."""
        limit = self._limits[place]
        if not limit:
            self._buckets[place] = None
            return
        if RATES[place] not in PER_BROKER:
            share = self._shares[place]
            is_valid = share > 0 and now_ms < self._share_until_ms
            limit = min(limit, share) if is_valid else limit / self._broker_count
        bucket = self._buckets[place]
        if bucket is None:
            self._buckets[place] = TokenBucket(limit, now_ms=now_ms)
        else:
            bucket.change_rate(limit, now_ms=now_ms)
