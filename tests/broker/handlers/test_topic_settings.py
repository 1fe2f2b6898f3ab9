"""Who gave the settings of a topic."""

from trio.testing import MockClock

from tests.broker.asking import alter_topic, create_topic, submit
from tests.broker.world import World
from tidelog.wire.messages.cluster_admin import AlterClusterRequest
from tidelog.wire.messages.topics import DescribeTopicsRequest, TopicDescription
from tidelog.wire.protocol import api
from tidelog.wire.protocol.rpc import RpcConnection


async def described(client: RpcConnection) -> TopicDescription:
    """Return what is said of the only topic."""
    reply = await submit(client, api.DESCRIBE_TOPICS, DescribeTopicsRequest(None)).reply()
    (topic,) = reply.topics
    return topic


async def test_a_topic_has_a_setting_from_the_cluster_as_long_as_it_does_not_say_itself(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        await create_topic(client, "orders")
        assert (await described(client)).config_of_cluster == []
        request = AlterClusterRequest({"min_insync_replicas": "2"}, [])
        await submit(client, api.ALTER_CLUSTER, request).reply()

        topic = await described(client)
        assert topic.config_of_cluster == ["min_insync_replicas"]
        assert topic.config["min_insync_replicas"] == "1", "there is one replica"

        await alter_topic(client, "orders", min_insync_replicas="1")
        topic = await described(client)
        assert topic.config_overrides == ["min_insync_replicas"]
        assert topic.config_of_cluster == []
