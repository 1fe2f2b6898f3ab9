"""Charges of work in tasks of its own: the steps of the event loop, without the waits."""

import pytest
import trio
from trio.testing import MockClock

from tests.broker.requests.test_response import FakeContext, new_response
from tidelog.broker.dispatch import run_in_task
from tidelog.broker.quotas.broker_quotas import BrokerQuotas
from tidelog.broker.quotas.meter import ConnectionMeter
from tidelog.coordinator.security.records import QuotaSet
from tidelog.wire.config.quota_rates import QuotaRate
from tidelog.wire.errors import UnknownTopicError
from tidelog.wire.messages.metadata import MetadataReply, MetadataRequest
from tidelog.wire.protocol import api
from tidelog.wire.protocol.connection import Request
from tidelog.wire.security.principal import user_principal

ALICE = user_principal("alice")
BUSY = QuotaRate.BUSY_MS


def meter_of_alice(**values: int) -> ConnectionMeter:
    """Return the meter of a connection of alice, with these quotas."""
    quotas = BrokerQuotas()
    quotas.configure({str(ALICE): QuotaSet(str(ALICE), values)}, broker_count=1)
    meter = ConnectionMeter(quotas)
    request = Request(api.METADATA.key, 1, 1, MetadataRequest(None), memoryview(b""))
    meter.admit(request, ALICE)
    return meter


def throttled_ms(meter: ConnectionMeter) -> int:
    assert meter.account is not None
    return meter.account.throttle([BUSY], now_ms=int(trio.current_time() * 1000)).ms


async def test_each_step_of_work_in_a_task_is_charged_and_its_waits_are_not(
    autojump_clock: MockClock,
) -> None:
    meter = meter_of_alice(busy_ms_per_s=100)

    async def work() -> None:
        autojump_clock.jump(0.15)  # Work of 150 ms, as far as the meter can tell.
        await trio.sleep(1)
        autojump_clock.jump(0.25)

    await meter.followed(work())

    # A burst of 100 ms, 140 ms for the time that has passed, and a debt of 160 ms.
    assert throttled_ms(meter) == pytest.approx(1600, abs=10)


async def test_a_request_in_a_task_of_its_own_is_charged_to_its_principal(
    autojump_clock: MockClock,
) -> None:
    context = FakeContext()
    context.meter = meter = meter_of_alice(busy_ms_per_s=100)

    async def describe(message: object) -> MetadataReply:
        del message
        await trio.lowlevel.checkpoint()
        autojump_clock.jump(0.4)
        return MetadataReply("", [], [])

    await run_in_task(describe, MetadataRequest(None), new_response(context))

    assert context.answered_count == 1
    assert throttled_ms(meter) == pytest.approx(2600, abs=10)


async def test_a_result_an_error_and_a_cancellation_pass_through(mock_clock: MockClock) -> None:
    del mock_clock
    meter = meter_of_alice(busy_ms_per_s=100)
    seen: list[str] = []

    async def answer() -> str:
        await trio.lowlevel.checkpoint()
        return "an answer"

    async def fail() -> None:
        await trio.lowlevel.checkpoint()
        raise UnknownTopicError("orders")

    async def wait() -> None:
        try:
            await trio.sleep_forever()
        except trio.Cancelled:
            seen.append("cancelled")
            raise

    assert await meter.followed(answer()) == "an answer"
    with pytest.raises(UnknownTopicError):
        await meter.followed(fail())
    with trio.CancelScope() as scope:
        scope.cancel()
        await meter.followed(wait())
    assert seen == ["cancelled"]


async def test_without_quotas_work_is_not_measured(mock_clock: MockClock) -> None:
    del mock_clock
    meter = meter_of_alice()

    async def work() -> None:
        pass

    awaitable = work()
    assert meter.followed(awaitable) is awaitable
    await awaitable
