"""Tests of the simulated network's faults, and of the guarantees that survive them."""

import errno
import socket
from collections.abc import Callable
from random import Random

import pytest
import trio

from tests.simulation.machine.faulty_disk import StaleHandleError
from tests.simulation.machine.link import LinkQuality
from tests.simulation.machine.process import Process
from tests.simulation.machine.two_machines import Place, idle, play, receive, silence
from tests.simulation.machine.world import Simulation, World
from tidelog.wire.env.env import Stream
from tidelog.wire.errors import ConnectionLostError

BAD = LinkQuality(delay_mean_s=0.05, loss=0.3, split=0.5)


async def receive_all(stream: Stream) -> bytes:
    data = b""
    while piece := await receive(stream):
        data += piece
    return data


async def receive_until_reset(stream: Stream) -> bytes:
    data = b""
    try:
        while True:
            data += await receive(stream)
    except ConnectionLostError:
        return data


async def send_all(stream: Stream, data: bytes) -> None:
    while data := data[stream.send_nowait([data]) :]:
        await stream.wait_writable()


@pytest.mark.parametrize("seed", range(10))
def test_bytes_arrive_in_order_under_network_faults(seed: int) -> None:
    random = Random(seed)
    pieces = [random.randbytes(random.randint(1, 3000)) for _ in range(50)]

    async def scenario(place: Place) -> None:
        async def send() -> None:
            for piece in pieces:
                await send_all(place.near, piece)
            place.near.close()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(send)
            assert await receive_all(place.far) == b"".join(pieces)

    play(scenario, quality=BAD, window_bytes=5000, seed=seed)


def test_sends_may_be_split_and_coalesced() -> None:
    lengths: list[int] = []

    async def scenario(place: Place) -> None:
        for _ in range(100):
            place.near.send_nowait([b"x" * 100])
            if len(lengths) % 2:
                await trio.sleep(0.001)
            else:
                lengths.append(len(await receive(place.far)))

    play(scenario, quality=LinkQuality(split=0.5))

    assert any(length < 100 for length in lengths)


def test_a_slow_reader_stops_the_sender_until_it_reads() -> None:
    async def scenario(place: Place) -> None:
        assert place.near.send_nowait([b"x" * 5000]) == 1000
        assert place.near.send_nowait([b"x"]) == 0
        with trio.move_on_after(60) as waiting:
            await place.near.wait_writable()
        assert waiting.cancelled_caught

        await receive(place.far, at_most=300)

        await place.near.wait_writable()
        assert place.near.send_nowait([b"x" * 5000]) == 300

    play(scenario, window_bytes=1000)


def test_packet_loss_delays_bytes() -> None:
    delays: list[float] = []

    async def scenario(place: Place) -> None:
        for _ in range(50):
            sent_at = trio.current_time()
            place.near.send_nowait([b"x"])
            await receive(place.far)
            delays.append(trio.current_time() - sent_at)

    play(scenario, quality=LinkQuality(loss=0.5))

    assert min(delays) < 0.1
    assert any(0.2 < delay < 0.3 for delay in delays)
    assert max(delays) > 0.6


def test_a_slow_link_limits_throughput() -> None:
    async def scenario(place: Place) -> None:
        place.near.send_nowait([bytes(10_000)])
        await receive(place.far)
        assert 10 < trio.current_time() < 10.1

    play(scenario, quality=LinkQuality(bytes_per_s=1000))


def test_a_stalled_link_delivers_later_and_in_order() -> None:
    async def scenario(place: Place) -> None:
        place.world.network.link("client", "server").stall(5.0)
        place.near.send_nowait([b"one"])
        place.near.send_nowait([b"two"])

        assert await receive(place.far) == b"onetwo"
        assert trio.current_time() > 5.0

    play(scenario)


def test_a_partition_delays_bytes_until_a_retransmission_after_it_heals() -> None:
    async def scenario(place: Place) -> None:
        heal = place.world.network.partition(["server"], ["client"])
        place.near.send_nowait([b"there"])
        place.far.send_nowait([b"back"])
        await trio.sleep(10)
        assert place.near.receive_nowait(memoryview(bytearray(10))) is None
        assert place.far.receive_nowait(memoryview(bytearray(10))) is None

        heal()

        assert await receive(place.near) == b"back"
        assert await receive(place.far) == b"there"
        assert 10 < trio.current_time() < 14

    play(scenario)


def test_a_partition_may_be_one_way() -> None:
    async def scenario(place: Place) -> None:
        place.world.network.partition(["server"], ["client"], one_way=True)
        place.near.send_nowait([b"there"])
        place.far.send_nowait([b"back"])

        assert await receive(place.far) == b"there"
        await trio.sleep(100)
        assert place.near.receive_nowait(memoryview(bytearray(10))) is None

    play(scenario)


def test_partitions_overlap() -> None:
    async def scenario(place: Place) -> None:
        network = place.world.network
        heal_one = network.partition(["server"], ["client"])
        heal_other = network.partition(["client"], ["server"], one_way=True)
        place.near.send_nowait([b"there"])
        heal_one()
        await trio.sleep(10)
        assert place.far.receive_nowait(memoryview(bytearray(10))) is None

        heal_other()

        assert await receive(place.far) == b"there"

    play(scenario)


def test_a_reset_during_a_send_delivers_a_prefix() -> None:
    received: list[bytes] = []

    async def scenario(place: Place) -> None:
        taken = place.near.send_nowait([b"0123456789"])
        assert taken == 10
        with pytest.raises(ConnectionLostError, match="Connection reset by peer"):
            place.near.send_nowait([b"more"])
        received.append(await receive_until_reset(place.far))

    for seed in range(20):
        play(scenario, quality=LinkQuality(reset=1.0), seed=seed)

    assert all(b"0123456789".startswith(data) for data in received)
    assert len(set(received)) > 4


def test_connections_between_two_hosts_can_be_broken() -> None:
    async def scenario(place: Place) -> None:
        assert place.world.network.break_connections("server", "client") == 1

        for end in place.near, place.far:
            with pytest.raises(ConnectionLostError, match="Connection reset by peer"):
                await receive(end)
        assert place.world.network.break_connections("server", "client") == 1

        place.near.close()
        place.far.close()
        assert place.world.network.break_connections("server", "client") == 0

    play(scenario)


def test_sent_bytes_and_a_fin_arrive_after_a_kill() -> None:
    async def scenario(place: Place) -> None:
        place.far.send_nowait([b"last words"])

        place.world.nodes["server"].kill()

        assert await receive_all(place.near) == b"last words"
        place.near.send_nowait([b"to no reader"])
        await trio.sleep(1)
        with pytest.raises(ConnectionLostError, match="Connection reset by peer"):
            place.near.send_nowait([b"to no reader"])

    play(scenario)


def test_a_kill_with_unread_bytes_resets_the_connection() -> None:
    async def scenario(place: Place) -> None:
        place.near.send_nowait([b"unread"])
        await place.far.wait_readable()

        place.world.nodes["server"].kill()

        with pytest.raises(ConnectionLostError, match="Connection reset by peer"):
            await receive(place.near)

    play(scenario)


def test_peers_get_no_packet_after_a_power_cut() -> None:
    async def scenario(place: Place) -> None:
        place.world.nodes["server"].cut_power()
        place.near.send_nowait([b"hello?"])

        with trio.move_on_after(600) as waiting:
            await receive(place.near)

        assert waiting.cancelled_caught

    play(scenario)


def test_a_rebooted_machine_resets_its_old_connections() -> None:
    async def scenario(place: Place) -> None:
        server = place.world.nodes["server"]
        server.cut_power()
        place.near.send_nowait([b"hello?"])
        await trio.sleep(5)

        server.start(idle)

        with pytest.raises(ConnectionLostError, match="Connection reset by peer"):
            await receive(place.near)

    play(scenario)


def test_a_dead_process_cannot_touch_its_streams() -> None:
    async def scenario(place: Place) -> None:
        place.world.nodes["client"].kill()

        uses: list[Callable[[], object]] = [
            lambda: place.near.send_nowait([b"x"]),
            lambda: place.near.receive_nowait(memoryview(bytearray(1))),
            place.near.close,
        ]
        for use in uses:
            with pytest.raises(StaleHandleError, match="client#1 is dead"):
                use()
        with pytest.raises(StaleHandleError):
            await place.near.wait_readable()
        with pytest.raises(StaleHandleError):
            await place.client.env.network.connect("server", 80)

    play(scenario)


def test_a_paused_process_accepts_connections_and_answers_when_resumed() -> None:
    async def echo(process: Process) -> None:
        listener = await process.env.network.listen("0.0.0.0", 80)
        while True:
            stream = await listener.accept()
            stream.send_nowait([await receive(stream)])

    async def main(world: World) -> None:
        node = world.add_node("server")
        node.start(echo)
        client = world.add_node("client").start(idle)
        await trio.sleep(1)
        node.pause(10)
        stream = await client.env.network.connect("server", 80)
        stream.send_nowait([b"hello"])
        assert trio.current_time() < 2

        assert await receive(stream) == b"hello"
        assert 11 <= trio.current_time() < 11.1

    Simulation(1).run(main)


def test_unaccepted_connections_are_reset_when_the_process_ends() -> None:
    async def scenario(place: Place) -> None:
        other = await place.client.env.network.connect("server", 80)
        await trio.sleep(1)

        place.world.nodes["server"].kill()

        with pytest.raises(ConnectionLostError, match="Connection reset by peer"):
            await receive(other)

    play(scenario)


@pytest.mark.parametrize("is_down", ["power", "partition", "no answer back"])
def test_connecting_to_a_silent_host_takes_two_minutes_to_fail(is_down: str) -> None:
    async def scenario(place: Place) -> None:
        silence(place, is_down)
        with pytest.raises(TimeoutError, match="Connection timed out"):
            await place.client.env.network.connect("server", 80)
        assert 127 <= trio.current_time() < 128

    play(scenario)


def test_a_rebooted_host_is_reached_at_the_next_syn() -> None:
    async def scenario(place: Place) -> None:
        heal = place.world.network.partition(["client"], ["server"])
        place.world.clock.call_later(4.0, heal)

        await place.client.env.network.connect("server", 80)

        assert 7 <= trio.current_time() < 7.1

    play(scenario)


def test_a_cancelled_connection_is_not_accepted() -> None:
    async def scenario(place: Place) -> None:
        place.world.network.link("server", "client").stall(5.0)
        with trio.move_on_after(1):
            await place.client.env.network.connect("server", 80)

        with trio.move_on_after(60) as waiting:
            await place.listener.accept()

        assert waiting.cancelled_caught

    play(scenario)


def test_accept_may_fail_for_lack_of_file_descriptors() -> None:
    async def scenario(place: Place) -> None:
        node = place.world.nodes["server"]
        node.fail_accepts(fail=True)
        stream = await place.client.env.network.connect("server", 80)
        with pytest.raises(OSError, match="Too many open files"):
            await place.listener.accept()
        with pytest.raises(ConnectionLostError):
            await receive(stream)

        node.fail_accepts(fail=False)

        await place.client.env.network.connect("server", 80)
        await place.listener.accept()

    play(scenario)


def test_a_host_is_reached_by_its_name_and_by_loopback_names() -> None:
    async def scenario(place: Place) -> None:
        server, client = place.server.env.network, place.client.env.network
        inner = await server.listen("127.0.0.1", 81)

        await server.connect("localhost", 81)
        assert (await inner.accept()).local == ("server", 81)
        with pytest.raises(ConnectionRefusedError):
            await client.connect("server", 81)
        with pytest.raises(socket.gaierror, match="Name or service not known"):
            await client.connect("nowhere", 80)

    play(scenario)


def test_ports_are_taken_until_their_process_ends() -> None:
    async def scenario(place: Place) -> None:
        network = place.server.env.network
        with pytest.raises(OSError, match="Address already in use") as raised:
            await network.listen("server", 80)
        assert raised.value.errno == errno.EADDRINUSE
        ports = {(await network.listen("server", 0)).address[1] for _ in range(3)}
        assert len(ports) == 3

        place.world.nodes["server"].kill()

        again = place.world.nodes["server"].start(idle)
        await again.env.network.listen("server", 80)

    play(scenario)


def test_each_connection_has_a_port_of_its_own() -> None:
    async def scenario(place: Place) -> None:
        other = await place.client.env.network.connect("server", 80)

        assert place.near.local[0] == other.local[0] == "client"
        assert place.near.local[1] != other.local[1]
        assert place.near.peer == other.peer == "server:80"
        assert place.far.peer == f"client:{place.near.local[1]}"

    play(scenario)
