"""The demonstration as a queue, on a few flights."""

from pathlib import Path

import pytest

from tidelog.demo.errors import DemoFailedError
from tidelog.demo.flights import Flights
from tidelog.demo.queue_story import DEAD_LETTER_QUEUE, QUEUE, work_through
from tidelog.embedded import open_broker
from tidelog.surface import connect

FLIGHTS = Flights(["number", "dep_delay"], [None] * 4, [b"0,5", b"1,NA", b"2,-1", b"3,"])


async def test_flights_are_deleted_and_cancelled_ones_are_dead_letters(tmp_path: Path) -> None:
    told: list[int] = []
    async with open_broker(tmp_path) as broker, connect(broker.address) as client:
        await client.admin.create_topic("flights", 2)
        async with client.producer() as producer:
            await producer.send_many("flights", FLIGHTS.values)

        report = await work_through(client, "flights", FLIGHTS, progressed=told.append)

        dead = await client.queue(DEAD_LETTER_QUEUE).peek()
        assert (report.deleted, report.dead) == (2, 2)
        assert sorted(each.record.value or b"" for each in dead) == [b"1,NA", b"3,"]
        assert {each.origin and each.origin.reason for each in dead} == {
            "a cancelled flight has no delay"
        }
        assert told[-1] == 4
        assert await client.queue(QUEUE).peek() == []


async def test_a_message_that_comes_twice_is_a_failure(tmp_path: Path) -> None:
    async with open_broker(tmp_path) as broker, connect(broker.address) as client:
        async with client.producer() as producer:
            await client.admin.create_topic("flights", 1)
            await producer.send_many("flights", [*FLIGHTS.values, FLIGHTS.values[0]])

        with pytest.RaisesGroup(pytest.RaisesExc(DemoFailedError, match="handed out twice")):
            await work_through(client, "flights", FLIGHTS, progressed=lambda _: None)
