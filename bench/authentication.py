"""Benchmark of identities: the broker's CPU for a login, and for a request of a known principal."""

from contextlib import closing
from time import perf_counter
from typing import Final

import trio

import tidelog
from bench.figures import Row, Settings, Spread, ratios
from bench.machine import ServerProcess, broker_process
from bench.raw import Address, RawConnection
from tidelog.wire.messages.handshake import AuthenticateRequest
from tidelog.wire.messages.metadata import MetadataRequest
from tidelog.wire.protocol import api
from tidelog.wire.security.scram import SCRAM_SHA_256, SaltedBy, ScramLogin, salted_password
from tidelog.wire.security.token import TOKEN

_USER: Final = "bench"
_PASSWORD: Final = "of the benchmark"
_REQUEST_GOAL: Final = 1.01
_LOGIN_GOAL_US: Final = 2_000.0
"""500 logins a second on one core."""
_ROUNDS: Final = 5


async def _create(address: str) -> str:
    """Create the user; return a token of it."""
    async with tidelog.connect(address, profile="") as client:
        await client.security.create_user(_USER, _PASSWORD)
        return await client.security.create_token(_USER)


class _Logins:
    """Logins of one user, each on a connection of its own."""

    def __init__(self, address: Address, token: str) -> None:
        self._address = address
        self._token = token.encode()
        self._salted: dict[SaltedBy, bytes] = {}

    def connect(self, mechanism: str = "") -> RawConnection:
        """Return a connection after HELLO, and after a login by a mechanism."""
        connection = RawConnection(self._address)
        if mechanism == TOKEN:
            connection.ask(api.AUTHENTICATE, AuthenticateRequest(TOKEN, self._token))
        elif mechanism:
            login = ScramLogin(_USER, b"a nonce of 24 bytes ....")
            first = AuthenticateRequest(SCRAM_SHA_256, login.first())
            by = login.challenge(connection.ask(api.AUTHENTICATE, first).data)
            if by not in self._salted:
                self._salted[by] = salted_password(_PASSWORD, by)
            proof = AuthenticateRequest(SCRAM_SHA_256, login.proof(self._salted[by]))
            login.check(connection.ask(api.AUTHENTICATE, proof).data)
        return connection


def _login_us(broker: ServerProcess, logins: _Logins, mechanism: str, *, count: int) -> float:
    """Return the microseconds of the broker's CPU for a connection with such a login."""
    logins.connect(mechanism).close()
    began = broker.cpu_seconds
    for _ in range(count):
        logins.connect(mechanism).close()
    return (broker.cpu_seconds - began) / count * 1e6


def _request_us(broker: ServerProcess, logins: _Logins, mechanism: str, *, count: int) -> float:
    """Return the microseconds of the broker's CPU for a request on such a connection."""
    with closing(logins.connect(mechanism)) as connection:
        request = MetadataRequest([])
        began = broker.cpu_seconds
        for _ in range(count):
            connection.ask(api.METADATA, request)
        return (broker.cpu_seconds - began) / count * 1e6


def run(settings: Settings) -> list[Row]:
    """Measure logins by token and password, and requests with and without a principal."""
    with broker_process(settings.directory) as broker:
        host, port = broker.address
        token = trio.run(_create, f"{host}:{port}")
        logins = _Logins(broker.address, token)
        count = settings.choose(1_000, 200)
        bare_us = Spread.of(_login_us(broker, logins, "", count=count) for _ in range(_ROUNDS))
        rows = [Row("authentication: connection and HELLO: broker CPU in us", bare_us.text(",.0f"))]
        for mechanism in (TOKEN, SCRAM_SHA_256):
            cost = Spread.of(
                _login_us(broker, logins, mechanism, count=count) for _ in range(_ROUNDS)
            )
            rows.append(
                Row(
                    f"authentication: the same with a login by {mechanism}: broker CPU in us",
                    cost.text(",.0f"),
                    f"<= {_LOGIN_GOAL_US:,.0f}",
                    cost.median <= _LOGIN_GOAL_US,
                )
            )
        rows += _requests(broker, logins, settings.choose(10_000, 2_000))
        rows.append(_strangers(broker, logins, settings.choose(10_000, 500)))
    return rows


def _requests(broker: ServerProcess, logins: _Logins, count: int) -> list[Row]:
    anonymous: list[float] = []
    known: list[float] = []
    for _ in range(_ROUNDS):
        anonymous.append(_request_us(broker, logins, "", count=count))
        known.append(_request_us(broker, logins, TOKEN, count=count))
    ratio = ratios(known, anonymous)
    return [
        Row("authentication: METADATA, anonymous: broker CPU in us", Spread.of(anonymous).text()),
        Row(
            "authentication: METADATA of a user: share of an anonymous one",
            ratio.text(".3f"),
            f"<= {_REQUEST_GOAL}",
            ratio.median <= _REQUEST_GOAL,
        ),
    ]


def _strangers(broker: ServerProcess, logins: _Logins, count: int) -> Row:
    """Measure a request while connections without a login are open."""
    before = broker.resident_bytes
    began = perf_counter()
    strangers = [logins.connect() for _ in range(count)]
    took_s = perf_counter() - began
    used = (broker.resident_bytes - before) / (1 << 20)
    for each in strangers:
        each.close()
    return Row(
        f"authentication: {count:,} connections without a login, opened in {took_s:.1f} s: MiB",
        f"{used:,.0f}",
    )
