"""Wrong replies of brokers: when to connect again, what to report, and which of them last.

Pure: decides, given the time; no clock, no I/O. A reply is wrong if it cannot be decoded, belongs
to no request, or does not have the results that were asked for. It ends its connection. A client
that reconnected at once would repeat that without a pause.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, final

from tidelog.client.cluster.address import Address
from tidelog.client.cluster.backoff import Backoff
from tidelog.wire.errors import WireFormatError
from tidelog.wire.protocol.api import ApiKey

_CALM_S: Final = 10.0
"""Seconds without a wrong reply after which the backoff begins with its first wait again."""
_REPORT_S: Final = 60.0
"""Seconds between two reports about one broker. A broker is forgotten after so long without a wrong
reply."""


@dataclass(slots=True)
class _Run:
    """Wrong replies to one API without a right one between them."""

    since: float
    last_at: float
    error: WireFormatError


@dataclass(slots=True)
class _Broker:
    """Broker with wrong replies."""

    count: int = 0
    retry_at: float = -math.inf
    last_at: float = -math.inf
    report_at: float = -math.inf
    unreported_count: int = 0
    runs: dict[ApiKey, _Run] = field(default_factory=dict[ApiKey, _Run])


_NO_BROKER: Final = _Broker()


@final
class WrongReplies:
    """Wrong replies of all brokers of a client, by address. Times are monotonic seconds."""

    def __init__(self, backoff: Backoff) -> None:
        """Start without wrong replies; `backoff` has the waits before a connection."""
        self._backoff = backoff
        self._brokers: dict[Address, _Broker] = {}

    def knows(self, address: Address, now: float) -> bool:
        """Return whether a broker has sent wrong replies lately."""
        broker = self._brokers.get(address)
        return broker is not None and now - broker.last_at <= _REPORT_S

    def retry_at(self, address: Address) -> float:
        """Return the earliest time of the next connection to a broker."""
        broker = self._brokers.get(address)
        return -math.inf if broker is None else broker.retry_at

    def add(
        self, address: Address, apis: Iterable[ApiKey], error: WireFormatError, *, now: float
    ) -> int:
        """Add a wrong reply; return the number of wrong replies to report now, mostly 0.

        Args:
            address: Address of the broker.
            apis: APIs of the requests that it may have been meant for.
            error: Error that ended the connection.
            now: Present time.
        """
        for known, broker in list(self._brokers.items()):
            if now - broker.last_at > _REPORT_S:
                del self._brokers[known]
        broker = self._brokers.setdefault(address, _Broker())
        broker.count = 1 if now - broker.last_at > _CALM_S else broker.count + 1
        broker.retry_at = now + self._backoff.delay(broker.count)
        broker.last_at = now
        for api_key in apis:
            run = broker.runs.setdefault(api_key, _Run(now, now, error))
            if now - run.last_at > _REPORT_S:
                run.since = now
            run.last_at, run.error = now, error
        broker.unreported_count += 1
        if now < broker.report_at:
            return 0
        reported_count, broker.unreported_count = broker.unreported_count, 0
        broker.report_at = now + _REPORT_S
        return reported_count

    def understood(self, address: Address, api_key: ApiKey) -> None:
        """Add a reply that was right."""
        broker = self._brokers.get(address)
        if broker is not None:
            broker.runs.pop(api_key, None)

    def lasting(
        self, address: Address, patience_s: float, among: Iterable[ApiKey]
    ) -> WireFormatError | None:
        """Return the latest error of an API whose replies were wrong for `patience_s` or longer.

        `None` if there is no such API among these.
        """
        broker = self._brokers.get(address, _NO_BROKER)
        for run in map(broker.runs.get, among):
            if run is not None and run.last_at - run.since >= patience_s:
                return run.error
        return None

    @property
    def addresses(self) -> list[Address]:
        """Addresses of the brokers that have sent wrong replies lately."""
        return list(self._brokers)
