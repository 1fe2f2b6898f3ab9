"""The way from a client to brokers, which breaks when a test says so."""

from typing import final

from tests.broker.memory_network import MemoryListener, MemoryNetwork, MemoryStream


@final
class FlakyNetwork:
    """A client's view of a `MemoryNetwork`; see `wire.env.env.Network`."""

    def __init__(self, network: MemoryNetwork) -> None:
        """Lead to `network`."""
        self.network = network
        """Where connections lead; a test changes it when brokers are started again."""
        self.connect_count = 0
        self._streams: list[MemoryStream] = []

    async def listen(self, host: str, port: int) -> MemoryListener:
        """See `wire.env.env.Network`."""
        return await self.network.listen(host, port)

    async def connect(self, host: str, port: int) -> MemoryStream:
        """See `wire.env.env.Network`."""
        self.connect_count += 1
        stream = await self.network.connect(host, port)
        self._streams.append(stream)
        return stream

    def reset_all(self) -> None:
        """Break every connection: what is under way on it is lost."""
        streams, self._streams = self._streams, []
        for stream in streams:
            stream.reset()

    def silence_all(self) -> None:
        """Let no reply arrive on any connection that there is now; nobody is told."""
        for stream in self._streams:
            stream.set_receive_buffer(0)
