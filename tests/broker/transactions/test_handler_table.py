"""What serves transactions is put together whole."""

# Looks into brokers, which nobody else has to.
# pyright: reportPrivateUsage=false

from trio.testing import MockClock

from tests.broker.world import World
from tidelog.broker.transactions.handler_table import TransactionHandlers
from tidelog.wire.protocol import api


async def test_every_api_of_staged_writes_is_served(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker() as broker:
        clients = broker._dispatcher._clients
        assert clients is not None

        served: TransactionHandlers = clients.staging

        assert set(served.slow) == {
            api.BEGIN_TRANSACTION,
            api.COMMIT_TRANSACTION,
            api.ABORT_TRANSACTION,
            api.LIST_TRANSACTIONS,
        }
        assert broker._dispatcher._appending[int(api.STAGE.key)] == served.stages.handle
