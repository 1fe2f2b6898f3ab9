"""Tests of refusals in the log: a peer cannot fill it."""

from typing import Any

from trio.testing import MockClock

from tidelog.broker.network.refusals import Refusals

Told = list[tuple[str, dict[str, Any]]]


def refusals() -> tuple[Refusals, Told]:
    told: Told = []

    def probe(event: str, **fields: object) -> None:
        told.append((event, fields))

    return Refusals(probe), told


async def test_repeated_refusals_of_a_peer_are_one_line_a_minute(mock_clock: MockClock) -> None:
    del mock_clock
    counted, told = refusals()
    for number in range(1000):
        counted.add("request_refused", peer=f"10.0.0.1:{number}", reason=f"wrong: {number}")
    counted.tidy(now=59.9)
    assert [(event, fields["reason"]) for event, fields in told] == [
        ("request_refused", "wrong: 0")
    ]

    counted.tidy(now=60.0)
    counted.tidy(now=119.0)
    assert told[1:] == [
        ("request_refused_again", {"severity": "warning", "peer": "10.0.0.1", "count": 999})
    ]
    assert counted.total == 1000


async def test_peers_and_kinds_are_told_apart(mock_clock: MockClock) -> None:
    del mock_clock
    counted, told = refusals()

    for peer in ("10.0.0.1:1", "10.0.0.2:1"):
        for event in ("request_refused", "connection_refused"):
            counted.add(event, peer=peer, reason="wrong")

    assert len(told) == 4


async def test_a_peer_that_stops_is_reported_again_later(mock_clock: MockClock) -> None:
    del mock_clock
    counted, told = refusals()
    counted.add("request_refused", peer="10.0.0.1:1", reason="wrong")
    counted.tidy(now=60.0)
    counted.add("request_refused", peer="10.0.0.1:1", reason="wrong again")

    assert [fields["reason"] for _, fields in told] == ["wrong", "wrong again"]


async def test_refusals_of_very_many_peers_are_bounded(mock_clock: MockClock) -> None:
    del mock_clock
    counted, told = refusals()
    for number in range(10_000):
        counted.add("connection_refused", peer=f"host{number}:1", reason="x" * 1000)

    assert len(told) == 257
    assert max(len(fields["reason"]) for _, fields in told) == 300
