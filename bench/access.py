"""Benchmark of the check of access: its CPU beside that of a produce request."""

from contextlib import closing
from time import perf_counter
from typing import Any, Final, final

from bench.figures import Row, Settings, Spread, ratios
from bench.machine import ServerProcess, broker_process
from bench.produce import Batches
from bench.raw import RawConnection, pump
from tidelog.broker.requests.identity import ANONYMOUS_IDENTITY
from tidelog.broker.requests.response import ResponseHandle
from tidelog.broker.security.access_control import AccessControl
from tidelog.broker.security.denials import Denials
from tidelog.coordinator.metadata.catalog import TopicCreated
from tidelog.coordinator.metadata.state import ClusterState
from tidelog.coordinator.security.records import Grant, GrantsChanged
from tidelog.wire.errors import BrokerNotReadyError
from tidelog.wire.messages.access import AccessRule, AlterAccessRequest
from tidelog.wire.messages.produce import (
    Acks,
    InitProducerRequest,
    PartitionAppended,
    PartitionBatch,
    ProduceReply,
    ProduceRequest,
)
from tidelog.wire.protocol import api
from tidelog.wire.protocol.connection import Request

_RULES: Final = 10_000
_AT_ONCE: Final = 1_000
_RECORDS: Final = {"10 records": 10, "1,000 records": 1_000}
_DEPTH: Final = 5
_GOAL: Final = 0.01


@final
class _Client:
    """The parts of a connection that a check reads."""

    node_id = None
    identity = ANONYMOUS_IDENTITY


def _ignore(event: str, **fields: object) -> None:
    """Take the place of a log."""


def _check_us(count: int, *, is_waiting: bool) -> float:
    """Return the microseconds of the checks of a produce request, and of a reply that waited."""
    state, topic_id = ClusterState(), bytes(16)
    state.catalog.apply(TopicCreated("access", topic_id, 1, {}))
    rules = [Grant("anonymous", "topic", f"topic-{each}", ("write",)) for each in range(_RULES - 1)]
    rules.append(Grant("anonymous", "topic", "acc*", ("write",)))
    state.security.apply(GrantsChanged(tuple(rules), ()))
    control = AccessControl(
        lambda: state,
        Denials(_ignore, is_enforced=True),
        is_enforced=True,
        is_current=lambda: True,
    )
    message = ProduceRequest(1, 1_000, [PartitionBatch(topic_id, 0, 0)])
    request = Request(int(api.PRODUCE.key), 1, 1, message, memoryview(b""))
    reply = ProduceReply([PartitionAppended(0, 1, 0)])

    @final
    class Response:
        context = _Client()
        guard: Any = None

    response: Any = Response()
    handle: ResponseHandle = response
    began = perf_counter()
    for _ in range(count):
        control.admit(request, handle)
        if is_waiting:
            control.wait(request, handle)
            guard: Any = response.guard
            guard.review(reply, ())
            response.guard = None
    return (perf_counter() - began) / count * 1e6


def _grant(server: ServerProcess) -> None:
    """Give anonymous clients many rules, one of which allows the measured requests."""
    rules = [AccessRule("anonymous", "topic", f"topic-{each}", ["write"]) for each in range(_RULES)]
    rules[-1] = AccessRule("anonymous", "topic", "acc*", ["*"])
    with closing(RawConnection(server.address)) as client:
        for start in range(0, _RULES, _AT_ONCE):
            request = AlterAccessRequest(rules[start : start + _AT_ONCE])
            while True:
                try:
                    client.ask(api.ALTER_ACCESS, request)
                except BrokerNotReadyError:
                    continue
                break


def _cpu_us(server: ServerProcess, client: RawConnection, records: int, *, count: int) -> float:
    """Return the broker's CPU for one produce request, in microseconds."""
    topic_id = client.create_topic("access", durability="replicated")
    producer_id = client.ask(api.INIT_PRODUCER, InitProducerRequest()).producer_id
    batches = Batches(topic_id, records, Acks.LEADER, producer_id=producer_id)
    before = server.cpu_seconds
    pump(client.sock, batches.next_frame, count, depth=_DEPTH)
    spent = server.cpu_seconds - before
    client.delete_topic("access")
    return spent / count * 1e6


def run(settings: Settings) -> list[Row]:
    """Send the same batches to a broker with `authorization = off`, and to one that enforces."""
    count = settings.choose(8_000, 2_000)
    calls = settings.choose(100_000, 20_000)
    checks = Spread.of(_check_us(calls, is_waiting=False) for _ in range(5))
    waiting = Spread.of(_check_us(calls, is_waiting=True) for _ in range(5))
    enforced = settings.directory / "enforced"
    with broker_process(enforced) as server:
        _grant(server)
    rows: list[Row] = []
    with (
        broker_process(settings.directory / "off") as plain,
        broker_process(enforced, authorization="enforce") as checked,
        closing(RawConnection(plain.address)) as to_plain,
        closing(RawConnection(checked.address)) as to_checked,
    ):
        for name, records in _RECORDS.items():
            rounds = [
                (
                    _cpu_us(plain, to_plain, records, count=count),
                    _cpu_us(checked, to_checked, records, count=count),
                )
                for _ in range(settings.choose(9, 3))
            ][1:]
            off = [before for before, _ in rounds]
            both = ratios([after for _, after in rounds], off)
            share = checks.median / Spread.of(off).median
            is_typical = records == max(_RECORDS.values())
            rows += [
                Row(
                    f"access: check of a produce request of {name} with {_RULES:,} rules, of the"
                    " broker's CPU for it",
                    f"{share:.2%}",
                    f"<= {_GOAL:.0%}" if is_typical else "",
                    share <= _GOAL if is_typical else None,
                ),
                Row(
                    f"access: CPU with `enforce` beside `off`, {name}",
                    both.text(".3f"),
                ),
                Row(f"access: CPU of the broker, {name}, µs a request", Spread.of(off).text(".1f")),
            ]
    rows.append(
        Row(
            "access: check of one request that is answered at once, and of one that waits, µs",
            f"{checks.text('.2f')}, {waiting.text('.2f')}",
        )
    )
    return rows
