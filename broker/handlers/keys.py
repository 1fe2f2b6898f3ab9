"""Handlers of ALTER_KEYS and LIST_KEYS: the keys of encryption at rest."""

from typing import Final, final

import trio

from tidelog.broker.key_manager import SUBMIT_TIMEOUT_S, KeyManager
from tidelog.broker.partitions.replica_manager import ReplicaManager
from tidelog.broker.security.barrier import wait_in_force
from tidelog.coordinator.metadata.catalog import Topic
from tidelog.coordinator.metadata.security_commands import has_committed_parts
from tidelog.coordinator.node import ClusterNode
from tidelog.coordinator.security.commands import RemoveDataKeys
from tidelog.wire.errors import (
    BrokerError,
    ConnectionLostError,
    InvalidRequestError,
    KeyUnavailableError,
)
from tidelog.wire.messages.keys import (
    AlterKeysReply,
    AlterKeysRequest,
    BrokerKeys,
    ChangedKeys,
    DataKeyDescription,
    KeyAction,
    ListKeysReply,
    ListKeysRequest,
    TopicKeys,
)
from tidelog.wire.protocol import api

_PEER_TIMEOUT_S: Final = 3.0


@final
class KeysHandler:
    """Changes and lists keys."""

    def __init__(
        self, cluster: ClusterNode, partitions: ReplicaManager, manager: KeyManager
    ) -> None:
        """Serve requests at one broker."""
        self._cluster = cluster
        self._partitions = partitions
        self._manager = manager

    async def alter(self, request: AlterKeysRequest) -> AlterKeysReply:
        """Change data keys. On cancellation, some may be changed.

        Data keys are deleted when no broker seals records under them any more.

        Raises:
            InvalidRequestError: The request contradicts itself or the keys of the topic, or this
                broker lacks a master key.
            UnknownTopicError: There is no such topic.
            RequestTimedOutError: The voters have no majority; keys may be changed.
        """
        try:
            return await self._alter(request)
        except KeyUnavailableError as error:
            # Not to be retried: an administrator must act.
            raise InvalidRequestError(f"the keys were not changed: {error}") from error

    async def _alter(self, request: AlterKeysRequest) -> AlterKeysReply:
        match request.action:
            case KeyAction.REWRAP:
                return await self._rewrap(request)
            case KeyAction.ROTATE:
                return AlterKeysReply([await self._rotate(each) for each in self._both(request)])
            case KeyAction.SHRED:
                # The staging log first: it is refused while it has committed records.
                both = reversed(self._both(request))
                return AlterKeysReply([await self._shred(each, request) for each in both][::-1])
            case _:
                raise InvalidRequestError(
                    f"no change of keys has number {request.action}; it is 1 (rotate), 2 (rewrap)"
                    " or 3 (shred)"
                )

    async def list_all(self, request: ListKeysRequest) -> ListKeysReply:
        """Return the data keys of topics, and the master keys of brokers.

        Raises:
            UnknownTopicError: There is no such topic.
        """
        state = self._cluster.metadata.state
        if request.is_local:
            return ListKeysReply([], [self._own()])
        topics = [state.catalog.topic(request.topic)] if request.topic else state.catalog.topics
        described = [
            self._described(topic)
            for topic in topics
            if request.topic
            or topic.config.is_encrypted
            or state.security.data_keys(topic.topic_id)
        ]
        return ListKeysReply(described, await self._of_brokers())

    def _described(self, topic: Topic) -> TopicKeys:
        keys = self._cluster.metadata.state.security.data_keys(topic.topic_id)
        described = [
            DataKeyDescription(key_id, keys[key_id].master_id, keys[key_id].created_at_ms)
            for key_id in sorted(keys)
        ]
        return TopicKeys(topic.name, topic.config.is_encrypted, described)

    def _own(self) -> BrokerKeys:
        catalog, locked = self._cluster.metadata.state.catalog, self._manager.locked
        known = [catalog.topic_by_id(topic_id) for topic_id in locked]
        return BrokerKeys(
            self._cluster.node_id,
            [*self._partitions.keyring.masters.ids],
            sorted(topic.name for topic in known if topic is not None),
            next(iter(locked.values()), ""),
        )

    async def _of_brokers(self) -> list[BrokerKeys]:
        """Return the master keys of all live brokers, by node id; ask the others at once."""
        cluster = self._cluster
        found = {cluster.node_id: self._own()}

        async def ask(node_id: int) -> None:
            try:
                reply = await cluster.peers.ask(
                    node_id,
                    api.LIST_KEYS,
                    ListKeysRequest(is_local=True),
                    timeout_s=_PEER_TIMEOUT_S,
                )
                found[node_id] = reply.brokers[0]
            except (BrokerError, ConnectionLostError) as error:
                found[node_id] = BrokerKeys(node_id, reason=f"it did not answer: {error}")

        async with trio.open_nursery() as nursery:
            for node_id in cluster.metadata.state.brokers:
                if node_id != cluster.node_id:
                    nursery.start_soon(ask, node_id)
        return [found[node_id] for node_id in sorted(found)]

    def _both(self, request: AlterKeysRequest) -> list[Topic]:
        """Return a topic, and its staging log if it has one."""
        catalog = self._cluster.metadata.state.catalog
        topic = catalog.topic(request.topic)
        if topic.is_internal:
            raise InvalidRequestError(
                f"{request.topic} is internal: its keys change with those of its topic"
            )
        staging = catalog.staging_of(topic.topic_id)
        if request.key_ids or staging is None or not self._has_keys(staging):
            return [topic]
        return [topic, staging]

    def _has_keys(self, topic: Topic) -> bool:
        return bool(self._cluster.metadata.state.security.data_keys(topic.topic_id))

    async def _rotate(self, topic: Topic) -> ChangedKeys:
        if not topic.config.is_encrypted and not self._has_keys(topic):
            raise InvalidRequestError(
                f"topic {topic.name} has no data key: it is not encrypted; run: tidelog topic alter"
                f" {topic.name} --set encryption=on"
            )
        return ChangedKeys(topic.name, [await self._manager.rotate(topic.topic_id)])

    async def _shred(self, topic: Topic, request: AlterKeysRequest) -> ChangedKeys:
        key_ids = list(request.key_ids)
        if not key_ids:
            (newest,) = (await self._rotate(topic)).key_ids
            keys = self._cluster.metadata.state.security.data_keys(topic.topic_id)
            key_ids = sorted(each for each in keys if each < newest)
        # A leader that has not heard of a newer key would seal records under a deleted one.
        await wait_in_force(self._cluster)
        await self._wait_appended(topic)
        command = RemoveDataKeys(topic.topic_id, tuple(key_ids))
        await self._cluster.command_client.submit(command, timeout_s=SUBMIT_TIMEOUT_S)
        return ChangedKeys(topic.name, key_ids)

    async def _wait_appended(self, topic: Topic) -> None:
        """Wait a short time for committed records of a staging log: they are read by its keys.

        A commit is answered before the metadata has recorded that its records are appended.
        """
        metadata = self._cluster.metadata
        with trio.move_on_after(SUBMIT_TIMEOUT_S):
            while has_committed_parts(metadata.state, topic):
                await metadata.wait_applied(metadata.applied_index + 1)

    async def _rewrap(self, request: AlterKeysRequest) -> AlterKeysReply:
        state, keyring = self._cluster.metadata.state, self._partitions.keyring
        await self._manager.load()
        await self._require_masters_everywhere()
        topics = [state.catalog.topic(request.topic)] if request.topic else state.catalog.topics
        changed: list[ChangedKeys] = []
        for topic in topics:
            key_ids: list[int] = []
            for record in list(state.security.data_keys(topic.topic_id).values()):
                command = keyring.rewrapped(record)
                if command is not None:
                    await self._manager.submit(command)
                    key_ids.append(record.key_id)
            if key_ids:
                changed.append(ChangedKeys(topic.name, sorted(key_ids)))
        return AlterKeysReply(changed)

    async def _require_masters_everywhere(self) -> None:
        """Raise unless all brokers have the current master key of this broker.

        Raises:
            InvalidRequestError: A broker lacks it, or does not answer.
        """
        masters = self._partitions.keyring.masters
        if not masters:
            return  # `rewrapped` says why.
        for broker in await self._of_brokers():
            if masters.current_id not in broker.master_ids:
                why = broker.reason or "it has other master keys"
                raise InvalidRequestError(
                    f"data keys cannot be wrapped by master key {masters.current_id}: broker"
                    f" {broker.node_id} lacks it ({why}); give it to all brokers first"
                )
