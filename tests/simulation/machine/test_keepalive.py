"""Tests of the simulated TCP keep-alive."""

import pytest
import trio

from tests.simulation.machine.two_machines import Place, idle, play, receive, silence
from tidelog.wire.errors import ConnectionLostError


@pytest.mark.parametrize("is_down", ["power", "partition", "no answer back"])
def test_an_idle_connection_breaks_two_minutes_after_the_peer_is_gone(
    is_down: str,
) -> None:
    async def scenario(place: Place) -> None:
        await trio.sleep(100)
        silence(place, is_down)

        with pytest.raises(ConnectionLostError, match="Connection timed out"):
            await receive(place.near)

        assert 180 <= trio.current_time() < 240

    play(scenario)


def test_an_idle_connection_to_a_live_peer_stays() -> None:
    async def scenario(place: Place) -> None:
        await trio.sleep(3600)
        heal = place.world.network.partition(["server"], ["client"])
        await trio.sleep(50)
        heal()
        await trio.sleep(3600)

        place.near.send_nowait([b"still here"])
        assert await receive(place.far) == b"still here"

    play(scenario)


def test_an_idle_connection_to_a_rebooted_peer_is_reset_within_a_minute() -> None:
    async def scenario(place: Place) -> None:
        place.world.nodes["server"].cut_power()
        place.world.nodes["server"].start(idle)

        with pytest.raises(ConnectionLostError, match="Connection reset by peer"):
            await receive(place.near)

        assert 60 <= trio.current_time() < 61

    play(scenario)


def test_undelivered_data_is_retransmitted_for_a_quarter_of_an_hour() -> None:
    async def scenario(place: Place) -> None:
        place.world.nodes["server"].cut_power()
        place.near.send_nowait([b"hello?"])

        with pytest.raises(ConnectionLostError, match="Connection timed out"):
            await receive(place.near)

        assert 924 <= trio.current_time() < 940

    play(scenario)
