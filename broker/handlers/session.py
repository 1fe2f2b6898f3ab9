"""Hello, metadata, and identities of producers."""

from typing import final

from broker.config import BrokerConfig, parse_address
from broker.partitions import Partitions
from coordinator.catalog import Topic
from coordinator.local import Metadata
from wire.errors import ErrorDetail, InvalidRequestError, UnknownTopicError
from wire.produce import InitProducerReply, InitProducerRequest
from wire.session import (
    ApiVersions,
    BrokerAddress,
    HelloReply,
    HelloRequest,
    MetadataReply,
    MetadataRequest,
    PartitionMetadata,
    TopicMetadata,
)

_PRODUCER_EPOCH_MAX = 0xFFFF_FFFF


@final
class SessionHandler:
    """Tells clients who is here and where things are."""

    def __init__(
        self,
        config: BrokerConfig,
        metadata: Metadata,
        partitions: Partitions,
        *,
        cluster_id: str,
        version: str,
    ) -> None:
        """Speak for the broker of `config`."""
        self._config = config
        self._metadata = metadata
        self._partitions = partitions
        self._cluster_id = cluster_id
        self._version = version

    def hello(self, request: HelloRequest, apis: list[ApiVersions]) -> HelloReply:
        """Say who answers and what it speaks."""
        del request
        return HelloReply(
            self._version,
            self._cluster_id,
            self._config.node_id,
            apis,
            self._config.frame_bytes_max,
            self._config.in_flight_requests_max,
        )

    def describe(self, request: MetadataRequest, *, local: tuple[str, int]) -> MetadataReply:
        """Say where topics are; `local` is where the asking client reached this broker."""
        catalog = self._metadata.catalog
        host, port = local
        if self._config.advertised:
            host, port = parse_address(self._config.advertised)
        if request.topics is None:
            topics = [self._describe(topic) for topic in catalog.topics]
        else:
            topics = [self._find(name) for name in request.topics]
        brokers = [BrokerAddress(self._config.node_id, host, port)]
        return MetadataReply(self._cluster_id, brokers, topics)

    async def init_producer(self, request: InitProducerRequest) -> InitProducerReply:
        """Give out a producer id, or the next epoch of one."""
        if request.producer_id == 0:
            return InitProducerReply(await self._metadata.take_producer_id(), 0)
        if request.producer_id >= self._metadata.catalog.next_producer_id:
            raise InvalidRequestError(f"producer id {request.producer_id} was never given out")
        if request.producer_epoch >= _PRODUCER_EPOCH_MAX:
            return InitProducerReply(await self._metadata.take_producer_id(), 0)
        return InitProducerReply(request.producer_id, request.producer_epoch + 1)

    def _find(self, name: str) -> TopicMetadata:
        try:
            return self._describe(self._metadata.catalog.topic(name))
        except UnknownTopicError as error:
            detail: ErrorDetail = error.to_wire()
            return TopicMetadata(name, b"", [], detail)

    def _describe(self, topic: Topic) -> TopicMetadata:
        opened = self._partitions.of_topic(topic.topic_id)
        if opened is None:
            # It is being created; nobody leads it yet.
            partitions = [
                PartitionMetadata(number, None, 0) for number in range(topic.partition_count)
            ]
        else:
            node_id = self._config.node_id
            partitions = [
                PartitionMetadata(partition.number, node_id, partition.leader.leader_epoch)
                for partition in opened
            ]
        return TopicMetadata(topic.name, topic.topic_id, partitions)
