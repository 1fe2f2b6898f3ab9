"""What replication knows of brokers is what the metadata says now."""

# pyright: reportPrivateUsage=false

from tests.broker.replication.three_brokers import ThreeBrokers, live
from tests.coordinator.raft_clients import until


def test_a_broker_may_join_while_it_is_not_fenced() -> None:
    async def main(brokers: ThreeBrokers) -> None:
        await until(lambda: brokers.are_live(3))
        context = brokers.brokers[1]._context
        assert context is not None
        facts = context.status_of(2)
        assert facts is not None
        assert facts.may_join
        assert context.status_of(7) is None

        brokers.kill(2)

        await until(lambda: context.status_of(2) == (facts.broker_epoch, False))

    live(1, main)


def test_a_broker_names_itself_as_the_cluster_knows_it() -> None:
    async def main(brokers: ThreeBrokers) -> None:
        context = brokers.brokers[1]._context
        assert context is not None

        identity = context.own_identity()

        assert identity is not None
        assert identity.node_id == 1
        known = brokers.state(2).brokers[1]
        assert (identity.broker_epoch, identity.incarnation_id) == (
            known.broker_epoch,
            known.incarnation_id,
        )
        context.check_identity(identity)

    live(2, main)
