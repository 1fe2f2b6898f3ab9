"""Cancellation of scheduled messages, with lost replies."""

import pytest
from trio.testing import MockClock

from tests.client.queue_fixture import drain, queue_of, values, work_queue
from tidelog.client.queue.send.message_fields import OutgoingMessage
from tidelog.wire.errors import (
    BatchError,
    InvalidRequestError,
    MessageGoneError,
    ReceiptExpiredError,
    UnknownPartitionError,
)
from tidelog.wire.protocol import api

YEAR_S = 366 * 86_400


async def test_a_scheduled_message_is_cancelled_while_it_is_delayed_and_not_after(
    mock_clock: MockClock,
) -> None:
    async with work_queue(mock_clock, retention="unlimited") as (_, queue):
        soon = await queue.send(b"soon", delay=10)
        late = await queue.send(b"late", delay=50 * YEAR_S)
        await queue.cancel(late.message_id)
        with pytest.raises(MessageGoneError, match="there is no such message"):
            await queue.cancel(late.message_id)
        assert [each.message_id for each in await queue.peek()] == [soon.message_id]

        mock_clock.jump(10)
        with pytest.raises(InvalidRequestError, match="not delayed"):
            await queue.cancel(soon.message_id)
        (message,) = await queue.receive(wait=0)
        with pytest.raises(ReceiptExpiredError, match="the message is in flight"):
            await queue.cancel(message.message_id)


async def test_a_batch_cancellation_reports_each_failed_message(
    autojump_clock: MockClock,
) -> None:
    async with queue_of(autojump_clock, (1, 2)) as (queue, _):
        receipts = await queue.send_batch(
            OutgoingMessage(value=b"%d" % n, key=b"key %d" % n, delay=60 * (n % 3))
            for n in range(12)
        )
        with pytest.raises(BatchError, match="4 of 12 messages could not be cancelled") as failure:
            await queue.cancel_batch(each.message_id for each in receipts)

        assert sorted(failure.value.errors) == [0, 3, 6, 9]
        assert sorted(value or b"" for value in values(await drain(queue))) == [
            b"0",
            b"3",
            b"6",
            b"9",
        ]
        with pytest.raises(UnknownPartitionError):
            await queue.cancel("7-0")
        for wrong in ("", "0", "0-x", "0-1-2", "-1-0"):
            with pytest.raises(ValueError, match="is no message id"):
                await queue.cancel(wrong)


async def test_cancelling_again_after_a_lost_reply_succeeds(
    autojump_clock: MockClock,
) -> None:
    async with queue_of(autojump_clock, (1,)) as (queue, cluster):
        receipt = await queue.send(b"v", delay=60)
        answers = 0

        async def lose(node_id: int, request: object) -> object:
            nonlocal answers
            answers += 1
            done, _ = await cluster.pass_on(api.CANCEL_SCHEDULED, request, b"")  # type: ignore[arg-type]
            if answers == 1:
                cluster.fronts[node_id].break_connections()
            return done

        cluster.answers[api.CANCEL_SCHEDULED] = lose  # type: ignore[index]
        await queue.cancel(receipt.message_id)

        assert answers == 2
        assert await queue.peek() == []
