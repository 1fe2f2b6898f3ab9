"""Quotas at one broker: the accounts of all principals, and the lines about throttled ones.

Shell: reads trio's clock, and reports to a probe.
"""

from collections.abc import Mapping, Sequence
from typing import Final, final

import trio
from msgspec.structs import replace

from tidelog.broker.metrics.catalog import OTHER
from tidelog.broker.quotas.account import Account
from tidelog.broker.quotas.fair_turns import FairTurns
from tidelog.coordinator.controller.replicated_state import ReplicatedState
from tidelog.coordinator.security.quota_limits import quotas_of
from tidelog.coordinator.security.quota_shares import LEASE_MS
from tidelog.coordinator.security.records import QuotaSet
from tidelog.wire.config.quota_rates import QuotaRate, Throttle
from tidelog.wire.env.env import Probe
from tidelog.wire.messages.quotas import PrincipalShare, PrincipalUse
from tidelog.wire.security.principal import Principal, PrincipalKind

_MINUTE_S: Final = 60.0
_IDLE_MS: Final = 60_000
"""Time after which an account without connections is forgotten, unless its topics count."""
_REPORTED_MAX: Final = 1_000
"""Principals in one report, those with the highest demand; the others use even shares."""
_COUNTED_MAX: Final = 100
_SLICE_S: Final = 1.0
"""Longest sleep of a throttled connection: its quotas may have changed by then."""


@final
class BrokerQuotas:
    """All accounts of one broker."""

    def __init__(self, probe: Probe | None = None) -> None:
        """Start without quotas; report throttled principals to `probe`."""
        self.is_active = False
        """Whether any principal has quotas: otherwise nothing is counted."""
        self.turns = FairTurns()
        """Turns of the connections of clients."""
        self._probe = probe or _ignore
        self._quotas: Mapping[str, QuotaSet] = {}
        self._broker_count = 1
        self._accounts: dict[str, Account] = {}
        self._lines: dict[tuple[str, Sequence[QuotaRate]], trio.Lock] = {}
        self._logged_at = float("-inf")
        self._minute: dict[str, dict[QuotaRate, int]] = {}
        """Throttled milliseconds since the last lines of the log, by principal and rate."""
        self._throttled_s: dict[tuple[str, str], float] = {}
        self._counted: dict[str, None] = {}
        """Principals with counters of their own."""
        self.stored_bytes: Mapping[str, int] = {}
        """Bytes in partitions that this broker leads, by owner with a quota of storage."""

    def follow(self, metadata: ReplicatedState) -> None:
        """Take the quotas in the metadata, now and after each change."""
        seen: tuple[int, int] | None = None

        def changed(_: object) -> None:
            nonlocal seen
            state = metadata.state
            live_count = sum(not broker.is_fenced for broker in state.brokers.values())
            now = (state.security.version, live_count)
            if now != seen:
                seen = now
                self.configure(state.security.quotas, broker_count=live_count)

        metadata.subscribe(changed, hears_transactions=False)
        changed(None)

    def configure(self, quotas: Mapping[str, QuotaSet], *, broker_count: int) -> None:
        """Set the quotas of all principals, and the number of brokers that share them."""
        self._quotas, self._broker_count = dict(quotas), broker_count
        now_ms = _now_ms()
        for account in self._accounts.values():
            account.configure(
                quotas_of(quotas, account.principal), broker_count=broker_count, now_ms=now_ms
            )
        if quotas and not self.is_active:
            self._logged_at = trio.current_time()
        self.is_active = bool(quotas)

    def account(self, principal: Principal) -> Account | None:
        """Return the account of a principal; `None` for a node."""
        if principal.kind is PrincipalKind.NODE:
            return None
        return self.account_of(str(principal))

    def account_of(self, principal: str) -> Account:
        """Return the account of a user or of anonymous clients, by its text."""
        account = self._accounts.get(principal)
        if account is None:
            account = self._accounts[principal] = Account(
                principal,
                quotas_of(self._quotas, principal),
                broker_count=self._broker_count,
                now_ms=_now_ms(),
            )
        return account

    @property
    def accounts(self) -> Mapping[str, Account]:
        """All accounts by principal; read-only."""
        return self._accounts

    async def wait(self, account: Account, rates: Sequence[QuotaRate]) -> None:
        """Wait while these rates are in debt, a second at most, in the order of these calls.

        One connection goes on for each payment of a debt, so that many connections of a principal
        do not exceed its rates together.
        """
        key = (account.principal, tuple(rates))
        line = self._lines.get(key)
        if line is None:
            line = self._lines[key] = trio.Lock()
        with trio.move_on_after(_SLICE_S):
            async with line:
                wait_ms = account.throttle(rates, now_ms=_now_ms()).ms
                await trio.sleep(wait_ms / 1000)
        if not line.locked():
            self._lines.pop(key, None)

    def report(self) -> list[PrincipalUse]:
        """Return the use of principals with quotas since the last report."""
        if not self.is_active:
            return []
        now_ms = _now_ms()
        for owner in self.stored_bytes:
            self.account_of(owner)
        uses: list[PrincipalUse] = []
        for account in list(self._accounts.values()):
            use = account.report(now_ms=now_ms)
            self._count_throttled(account)
            stored = self.stored_bytes.get(account.principal, 0)
            is_idle = not account.connection_count and now_ms - account.last_used_ms > _IDLE_MS
            if is_idle and not stored:
                del self._accounts[account.principal]
            elif account.has_quotas:
                uses.append(replace(use, storage_bytes=stored))
        uses.sort(key=lambda use: -sum(use.demands))
        return uses[:_REPORTED_MAX]

    def take_shares(self, shares: Sequence[PrincipalShare], asked_at_ms: int) -> None:
        """Use the shares of an answer of the controller, which this broker asked for at a time."""
        for share in shares:
            account = self._accounts.get(share.principal)
            if account is not None:
                account.take_share(
                    share.rates,
                    stored_bytes=share.storage_bytes,
                    until_ms=asked_at_ms + LEASE_MS,
                )

    def throttled_s(self) -> list[tuple[tuple[str, str], float]]:
        """Return the throttled seconds since the start of the broker, by principal and quota."""
        return sorted(self._throttled_s.items())

    def _count_throttled(self, account: Account) -> None:
        """Move the throttled time of an account to the counters of the broker."""
        for rate, ms in account.take_throttled_ms().items():
            counts = self._throttled_s
            is_one = account.principal in self._counted or len(self._counted) < _COUNTED_MAX
            name = account.principal if is_one else OTHER
            if is_one:
                self._counted[account.principal] = None
            counts[name, rate.quota] = counts.get((name, rate.quota), 0.0) + ms / 1000
            minute = self._minute.setdefault(account.principal, {})
            minute[rate] = minute.get(rate, 0) + ms

    def tidy(self, *, now: float) -> None:
        """Report the principals that were throttled in a minute that is over."""
        if not self.is_active or now - self._logged_at < _MINUTE_S:
            return
        elapsed_ms = (now - self._logged_at) * 1000
        self._logged_at = now
        minute, self._minute = self._minute, {}
        for principal, counts in minute.items():
            rate = max(counts, key=counts.__getitem__)
            self._probe(
                "principal_throttled",
                severity="warning",
                principal=principal,
                percent=min(100, max(1, round(100 * sum(counts.values()) / elapsed_ms))),
                quota=rate.quota,
                limit=quotas_of(self._quotas, principal).get(rate.quota, 0),
            )


def _ignore(event: str, **fields: object) -> None:
    """Report nothing; see `wire.env.env.Probe`."""


def throttle_now(account: Account) -> Throttle:
    """Return the notice for a client of this principal."""
    return account.throttle(now_ms=_now_ms())


def _now_ms() -> int:
    """Return monotonic time."""
    return int(trio.current_time() * 1000)
