"""Meter of one connection: charges its principal, and says which requests must wait.

Shell: reads trio's clock.
"""

from collections.abc import Awaitable, Coroutine, Generator, Mapping, Sequence
from types import coroutine
from typing import Any, Final, cast, final

import trio

from tidelog.broker.quotas.account import Account
from tidelog.broker.quotas.broker_quotas import BrokerQuotas, throttle_now
from tidelog.broker.requests.steps import Steps
from tidelog.coordinator.security.quota_limits import over_count
from tidelog.wire.config.quota_rates import NO_THROTTLE, QuotaRate, Throttle
from tidelog.wire.config.quotas import (
    CONNECTIONS,
)
from tidelog.wire.env.loop_clock import loop_clock
from tidelog.wire.errors import BrokerError, ThrottledError
from tidelog.wire.protocol import api
from tidelog.wire.protocol.connection import Request
from tidelog.wire.security.principal import Principal

_ALWAYS: Final = (QuotaRate.REQUESTS, QuotaRate.BUSY_MS)
_FREE: Final = frozenset(int(each.key) for each in (api.HELLO, api.PROVE_NODE, api.AUTHENTICATE))
"""APIs that come before a principal is known: nodes use them, too."""
_RATES_OF: Final[Mapping[int, Sequence[QuotaRate]]] = {
    **{int(each.key): (QuotaRate.PRODUCE_BYTES, *_ALWAYS) for each in (api.PRODUCE, api.SEND)},
    int(api.STAGE.key): (QuotaRate.PRODUCE_BYTES, *_ALWAYS),
    **{int(each.key): (QuotaRate.FETCH_BYTES, *_ALWAYS) for each in (api.FETCH, api.RECEIVE)},
    int(api.PEEK.key): (QuotaRate.FETCH_BYTES, *_ALWAYS),
}
"""Rates for which requests of an API wait; requests of other APIs wait for `_ALWAYS` only, so that
a member of a group keeps its place, and a consumer its leases, while records are throttled."""


@final
class ConnectionMeter:
    """Charges the requests of one connection."""

    __slots__ = ("_now_s", "_principal", "_quotas", "account", "is_refused", "waits_for")

    def __init__(self, quotas: BrokerQuotas) -> None:
        """Charge accounts of `quotas`."""
        self._quotas = quotas
        self._now_s = loop_clock()
        self._principal: Principal | None = None
        self.account: Account | None = None
        """The account of the principal; `None` before the first request that counts."""
        self.is_refused = False
        """Whether the principal has too many connections, and this one must end."""
        self.waits_for: Sequence[QuotaRate] = ()
        """Rates for which the last request must wait."""

    def admit(self, request: Request, principal: Principal) -> Throttle | BrokerError:
        """Charge a request if it may be carried out now.

        Return how long it must wait, `NO_THROTTLE` for now, or the error to answer.
        """
        key = request.api_key
        if key in _FREE:
            return NO_THROTTLE
        if principal != self._principal:
            refusal = self._move_to(principal)
            if refusal is not None:
                return refusal
        account = self.account
        if account is None or not account.has_quotas:
            return NO_THROTTLE
        rates = _RATES_OF.get(key, _ALWAYS)
        throttle = account.throttle(rates, now_ms=int(self._now_s() * 1000))
        if throttle.ms:
            self.waits_for = rates
            return self._error(throttle) if account.is_refusing else throttle
        account.charge(QuotaRate.REQUESTS, 1)
        if rates[0] is QuotaRate.PRODUCE_BYTES:
            account.charge(QuotaRate.PRODUCE_BYTES, len(request.attachment))
        return NO_THROTTLE

    async def wait(self) -> None:
        """Wait, a second at most, for the rates that held the last request back."""
        if self.account is not None:
            await self._quotas.wait(self.account, self.waits_for)

    def worked(self, began_at: float) -> None:
        """Charge the time since a time of trio's clock."""
        if self.account is not None:
            self.account.charge(QuotaRate.BUSY_MS, (self._now_s() - began_at) * 1000)

    def measured(self, steps: Steps) -> Steps:
        """Charge the time of each step of a long request."""
        began_at = self._now_s()
        for _ in steps:
            self.worked(began_at)
            yield
            began_at = self._now_s()
        self.worked(began_at)

    def followed(self, work: Awaitable[object]) -> Awaitable[object]:
        """Return work that runs in a task of its own and is charged as it runs."""
        account = self.account
        if account is None or not account.has_quotas or not isinstance(work, Coroutine):
            return work
        return _followed(cast("Coroutine[object, Any, object]", work), account)

    def replied(self, attachment_bytes: int) -> Throttle:
        """Charge a reply; return what it says about the time until the next request is read."""
        account = self.account
        if account is None or not account.has_quotas:
            return NO_THROTTLE
        if attachment_bytes:
            account.charge(QuotaRate.FETCH_BYTES, attachment_bytes)
        # With errors for requests beyond a rate, a client has nothing to wait for.
        return NO_THROTTLE if account.is_refusing else throttle_now(account)

    def close(self) -> None:
        """Count the connection as closed."""
        if self.account is not None:
            self.account.connection_count -= 1
            self.account = None

    def _move_to(self, principal: Principal) -> BrokerError | None:
        """Count the connection for another principal; return an error if that has too many."""
        self.close()
        self._principal = principal
        account = self._quotas.account(principal)
        if account is None:
            return None
        if not account.has_connection_room:
            self._principal, self.is_refused = None, True
            limit, used = account.quotas[CONNECTIONS], account.connection_count
            return over_count(CONNECTIONS, principal=account.principal, limit=limit, used=used)
        account.connection_count += 1
        self.account = account
        return None

    def _error(self, throttle: Throttle) -> ThrottledError:
        assert self.account is not None
        quota = QuotaRate(throttle.rate).quota
        retry_after_ms = throttle.ms + 1  # Both clocks cut off parts of a millisecond.
        return ThrottledError(
            f"{quota} of {self.account.principal} is used up: it is"
            f" {self.account.quotas.get(quota, 0):,}; try again in {retry_after_ms} ms, or raise"
            f" the quota: tidelog quota set {self.account.principal} {quota}=VALUE",
            retry_after_ms=retry_after_ms,
        )


@coroutine
def _followed(
    work: Coroutine[object, Any, object], account: Account
) -> Generator[object, Any, object]:
    """Run a coroutine as `await` does, and charge each of its steps of the event loop.

    It measures one coroutine, so no other task pays for it, as all would for an instrument of trio.
    """
    passed: Any = None
    error: BaseException | None = None
    while True:
        began_at = trio.current_time()
        try:
            trap: object = work.send(passed) if error is None else work.throw(error)
        except StopIteration as end:
            result: object = end.value
            return result
        finally:
            account.charge(QuotaRate.BUSY_MS, (trio.current_time() - began_at) * 1000)
        try:
            error, passed = None, (yield trap)
        except BaseException as raised:  # noqa: BLE001  (as `yield from` does)
            error = raised
