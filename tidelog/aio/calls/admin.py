"""The calls of `tidelog.Admin`, for asyncio; written by `tools.face_calls`."""

from collections.abc import Iterable, Mapping
from functools import partial

from tidelog.aio.forwarding import Forwarding
from tidelog.client.admin.admin import Admin as InnerAdmin
from tidelog.client.admin.alerts import AlertReport
from tidelog.client.admin.cluster import MovingReplica, PartitionsToElect
from tidelog.client.admin.groups import GroupDescription, OffsetMove, ResetPlace
from tidelog.client.admin.hot_keys import HotKeys, HotMessageGroups
from tidelog.client.admin.metrics import BrokerMetrics
from tidelog.client.admin.queue_batches import NewQueue, QueueCreation
from tidelog.client.admin.queue_counts import DescribedQueue
from tidelog.client.admin.queues import Setting as QueueSetting
from tidelog.client.admin.topics import Setting
from tidelog.client.cluster.list_offsets import OffsetSpec, PartitionOffset
from tidelog.client.topic_partition import TopicPartition
from tidelog.wire.errors import BrokerError
from tidelog.wire.messages.cluster_admin import (
    DescribeClusterReply,
    DescribeConfigReply,
    EventDescription,
    LeaderElected,
    SafeToStopReply,
)
from tidelog.wire.messages.features import UpdateFeaturesReply as ClusterFeatures
from tidelog.wire.messages.groups import GroupListing
from tidelog.wire.messages.queue_admin import CreateQueueReply
from tidelog.wire.messages.reassignment import PartitionMove, PartitionMoved
from tidelog.wire.messages.topic_usage import TopicUsage
from tidelog.wire.messages.topics import (
    AddPartitionsReply,
    CreateTopicReply,
    DeleteRecordsReply,
    TopicDescription,
)
from tidelog.wire.messages.transactions import TransactionDescription


class Admin(Forwarding[InnerAdmin]):
    """See `tidelog.Admin`."""

    __slots__ = ()

    async def create_topic(
        self,
        name: str,
        partitions: int = 1,
        *,
        replication_factor: int | None = None,
        config: Mapping[str, Setting] | None = None,
        labels: Mapping[str, str] | None = None,
        validate_only: bool = False,
        **settings: Setting,
    ) -> CreateTopicReply:
        """Create a topic; it is durable when this returns.

        Args:
            name: 1 to 249 of the characters a-z, A-Z, 0-9, '.', '_', '-'.
            partitions: Number of partitions.
            replication_factor: Replicas of each partition; the cluster's default if not given.
            config: Settings by name, such as `{"retention_ms": 3_600_000}`; for programs.
            labels: Free names and values, together at most 65,536 bytes in UTF-8.
            validate_only: Return what would happen and change nothing.
            settings: The same as keywords: `create_topic("orders", retention_ms=3_600_000)`.

        Raises:
            TopicExistsError: A topic of this name exists.
            InvalidTopicError: The name or the number of partitions is not legal.
            InvalidConfigError: A setting is unknown or not legal.
        """
        return await self._guest.call(
            partial(
                self._inner.create_topic,
                name,
                partitions,
                replication_factor=replication_factor,
                config=config,
                labels=labels,
                validate_only=validate_only,
                **settings,
            )
        )

    async def list_topics(
        self, prefix: str = "", *, after: str = "", limit: int | None = None
    ) -> list[str]:
        """Return names of topics, sorted; all by default.

        Args:
            prefix: First characters of the names.
            after: Leave out the names up to this one, such as the last name of the page before.
            limit: Maximum number of names, 1 or more.
        """
        return await self._guest.call(
            partial(self._inner.list_topics, prefix, after=after, limit=limit)
        )

    async def describe_topics(self, names: Iterable[str] | None = None) -> list[TopicDescription]:
        """Return settings and offsets of topics, each once, in the order given.

        All topics, sorted, by default.

        Raises:
            UnknownTopicError: There is no such topic.
        """
        return await self._guest.call(partial(self._inner.describe_topics, names))

    async def alter_topic(
        self,
        name: str,
        *,
        set: Mapping[str, Setting] | None = None,
        reset: Iterable[str] = (),
        set_labels: Mapping[str, str] | None = None,
        remove_labels: Iterable[str] = (),
    ) -> dict[str, str]:
        """Change settings and labels of a topic, all or none; return all settings.

        Args:
            name: Name of the topic.
            set: Settings to change.
            reset: Names of settings to reset to their defaults.
            set_labels: Labels to add or change.
            remove_labels: Names of labels to remove; missing ones are no error.

        Raises:
            UnknownTopicError: There is no such topic.
            InvalidConfigError: A setting is unknown or not legal, or the labels are too large.
        """
        return await self._guest.call(
            partial(
                self._inner.alter_topic,
                name,
                set=set,
                reset=list(reset),
                set_labels=set_labels,
                remove_labels=list(remove_labels),
            )
        )

    async def add_partitions(
        self, name: str, count: int, *, validate_only: bool = False
    ) -> AddPartitionsReply:
        """Increase the partitions of a topic to `count` in all; the number never shrinks.

        Records stay where they are. Most keys map to another partition from now on, so the order
        of records with one key holds before and after, but not across. Producers of this client
        and members of groups learn of it at once; all others within
        `ClientConfig.metadata_max_age`.

        Args:
            name: Name of the topic.
            count: Number of partitions afterwards.
            validate_only: Return what would happen and change nothing.

        Raises:
            UnknownTopicError: There is no such topic.
            InvalidTopicError: It has more already, it cannot have so many, or it has FIFO queues.
        """
        return await self._guest.call(
            partial(self._inner.add_partitions, name, count, validate_only=validate_only)
        )

    async def topic_usage(self, names: Iterable[str] | None = None) -> list[TopicUsage]:
        """Return the bytes on disk of the partitions of topics, and how fast they grow.

        Each topic once, in the order given; all topics, sorted, by default. Partitions whose leader
        does not answer are left out.

        Raises:
            UnknownTopicError: There is no such topic.
        """
        return await self._guest.call(partial(self._inner.topic_usage, names))

    async def hot_keys(self, topic: str, limit: int = 10) -> HotKeys:
        """Return the traffic of a topic's partitions, the hot ones, and the most frequent keys.

        Brokers sample recent batches, so that shares are those of the last minutes, each with an
        error bound. Partitions whose leader does not answer within 5 s are left out.

        Args:
            topic: Name of the topic.
            limit: Maximum number of keys, from 1 to 64.

        Raises:
            UnknownTopicError: There is no such topic.
            ValueError: The limit is out of range.
        """
        return await self._guest.call(partial(self._inner.hot_keys, topic, limit))

    async def hot_message_groups(self, queue: str, limit: int = 10) -> HotMessageGroups:
        """Return the message groups of a queue with the most messages, exactly.

        A FIFO queue and one with `fair_delivery` have groups. Partitions whose leader does not
        answer within 5 s are left out.

        Args:
            queue: Name of the queue.
            limit: Maximum number of groups, from 1 to 64.

        Raises:
            UnknownQueueError: There is no such queue.
            ValueError: The limit is out of range.
        """
        return await self._guest.call(partial(self._inner.hot_message_groups, queue, limit))

    async def delete_topic(self, name: str) -> None:
        """Delete a topic and all of its records.

        Raises:
            UnknownTopicError: There is no such topic.
        """
        await self._guest.call(partial(self._inner.delete_topic, name))

    async def delete_records(
        self, topic: str, partition: int, before_offset: int | None
    ) -> DeleteRecordsReply:
        """Make records below `before_offset` unreadable; `None` means all readable records.

        Raises:
            UnknownTopicError: There is no such topic.
            UnknownPartitionError: The topic does not have the partition.
            OffsetOutOfRangeError: The offset is beyond the end; the error has both bounds.
        """
        return await self._guest.call(
            partial(self._inner.delete_records, topic, partition, before_offset)
        )

    async def list_offsets(
        self, topic: str, at: OffsetSpec, *, partitions: Iterable[int] | None = None
    ) -> dict[int, PartitionOffset]:
        """Return one offset per partition: `"earliest"`, `"latest"`, or the offset of a time.

        Args:
            topic: Name of the topic.
            at: The first readable record, the end, or the first record of this time (Unix
                milliseconds) or later; the offset is `None` if no record is that young.
            partitions: Numbers of partitions; all by default.

        Raises:
            UnknownTopicError: There is no such topic.
            UnknownPartitionError: The topic does not have one of the partitions.
        """
        return await self._guest.call(
            partial(self._inner.list_offsets, topic, at, partitions=partitions)
        )

    async def create_queue(
        self,
        name: str,
        *,
        topic: str | None = None,
        partitions: int | None = None,
        start: OffsetSpec = "earliest",
        fifo: bool = False,
        topic_config: Mapping[str, Setting] | None = None,
        labels: Mapping[str, str] | None = None,
        **settings: QueueSetting,
    ) -> CreateQueueReply:
        """Create a queue; it is durable when this returns.

        Creating the same queue again is no error; its start is not compared.

        Args:
            name: 1 to 249 of the characters a-z, A-Z, 0-9, '.', '_', '-'.
            topic: Topic with the records that are the queue's messages. By default the topic of the
                queue's name, which is created if it does not exist. A topic of another name is
                created only if `partitions` is given.
            partitions: Number of partitions of a topic that is created; by default 1.
            start: `"earliest"`, `"latest"`, or Unix milliseconds: where in the topic it begins.
            fifo: Whether messages with the same key are delivered in order, one at a time.
            topic_config: Settings of a topic that is created.
            labels: Free names and values, together at most 65,536 bytes in UTF-8. An existing queue
                must have the same, if any are given.
            settings: Such as `visibility_timeout=30` (seconds), `max_receive_count=5`,
                `dead_letter_queue="payments-dead"`, `retry_backoff="exponential(1s,2,5min)"`.

        Raises:
            QueueExistsError: A different queue of this name exists; the message lists what differs.
            UnknownTopicError: There is no such topic.
            UnknownQueueError: There is no such dead-letter queue.
            InvalidConfigError: A setting is unknown or not legal, or the dead-letter queues form a
                cycle.
        """
        return await self._guest.call(
            partial(
                self._inner.create_queue,
                name,
                topic=topic,
                partitions=partitions,
                start=start,
                fifo=fifo,
                topic_config=topic_config,
                labels=labels,
                **settings,
            )
        )

    async def create_queues(self, queues: Iterable[NewQueue | str]) -> list[QueueCreation]:
        """Create many queues, in their order; return one result for each.

        They cost a small part of as many calls of `create_queue`. Each succeeds or fails alone, and
        is durable if its result has no error; creating the same queues again is no error. A queue
        may have an earlier one as its dead-letter queue.

        Args:
            queues: Names, or queues with settings.

        Raises:
            ConnectionLostError: Any queue may be created or not; call this again.
            RequestTimedOutError: The same.
        """
        return await self._guest.call(partial(self._inner.create_queues, list(queues)))

    async def list_queues(
        self, prefix: str = "", *, after: str = "", limit: int | None = None
    ) -> list[str]:
        """Return names of queues, sorted; all by default.

        Args:
            prefix: First characters of the names.
            after: Leave out the names up to this one, such as the last name of the page before.
            limit: Maximum number of names, 1 or more.
        """
        return await self._guest.call(
            partial(self._inner.list_queues, prefix, after=after, limit=limit)
        )

    async def describe_queues(
        self, names: Iterable[str] | None = None, *, with_counts: bool = False
    ) -> list[DescribedQueue]:
        """Return settings and leaders of queues, in the order given; all, sorted, by default.

        Args:
            names: Names of queues.
            with_counts: Also count the messages of each queue, on the brokers that serve it.

        Raises:
            UnknownQueueError: There is no such queue.
        """
        return await self._guest.call(
            partial(self._inner.describe_queues, names, with_counts=with_counts)
        )

    async def alter_queue(
        self,
        name: str,
        *,
        set: Mapping[str, QueueSetting] | None = None,
        reset: Iterable[str] = (),
        set_labels: Mapping[str, str] | None = None,
        remove_labels: Iterable[str] = (),
    ) -> dict[str, str]:
        """Change settings and labels of a queue, all or none; return all settings.

        Args:
            name: Name of the queue.
            set: Settings to change; names and values are those of `create_queue`.
            reset: Names of settings to reset to their defaults.
            set_labels: Labels to add or change.
            remove_labels: Names of labels to remove; missing ones are no error.

        Raises:
            UnknownQueueError: There is no such queue, or no such dead-letter queue.
            InvalidConfigError: A setting is unknown, not legal, or cannot be changed; or the labels
                are too large.
        """
        return await self._guest.call(
            partial(
                self._inner.alter_queue,
                name,
                set=set,
                reset=list(reset),
                set_labels=set_labels,
                remove_labels=list(remove_labels),
            )
        )

    async def delete_queue(
        self, name: str, *, with_topic: bool = False, detach_sources: bool = False
    ) -> None:
        """Delete a queue and the states of its messages; the messages stay in the topic.

        Args:
            name: Name of the queue.
            with_topic: Also delete the topic and all of its records, if no other queue uses it.
            detach_sources: Remove this queue as the dead-letter queue of its source queues.

        Raises:
            UnknownQueueError: There is no such queue.
            InvalidRequestError: It is a dead-letter queue in use, or the topic has other queues.
        """
        await self._guest.call(
            partial(
                self._inner.delete_queue, name, with_topic=with_topic, detach_sources=detach_sources
            )
        )

    async def list_groups(self, states: Iterable[str] | None = None) -> list[GroupListing]:
        """Return a listing of all consumer groups, sorted by id.

        Args:
            states: Only groups in one of these: `empty`, `assigning`, `reconciling`, `stable`.
        """
        return await self._guest.call(partial(self._inner.list_groups, states))

    async def describe_group(self, group_id: str) -> GroupDescription:
        """Return the members of a consumer group, their assignments, and the lag of the group.

        Raises:
            UnknownGroupError: There is no such group.
        """
        return await self._guest.call(partial(self._inner.describe_group, group_id))

    async def reset_offsets(
        self,
        group_id: str,
        partitions: str | Iterable[tuple[str, int]],
        to: ResetPlace | Mapping[TopicPartition, int],
        *,
        validate_only: bool = False,
    ) -> dict[TopicPartition, OffsetMove]:
        """Move the committed offsets of a group: all given partitions are moved, or none.

        No member may read these topics. A group that does not exist is created, so that a start
        can be chosen beforehand.

        Args:
            group_id: Name of the group.
            partitions: A topic, for all its partitions, or topics and numbers.
            to: `"earliest"`, `"latest"`, `("offset", n)`, `("time", unix_ms)` or `("shift", n)`,
                where a negative `n` is back; or the offset of each partition.
            validate_only: Return what would happen and change nothing.

        Raises:
            GroupNotEmptyError: Members read one of the topics; stop them first.
            OffsetOutOfRangeError: There is no such offset; the error has both bounds.
            UnknownTopicError: There is no such topic.
            UnknownPartitionError: The topic does not have one of the partitions.
            InvalidRequestError: A shift has no committed offset to start from.
        """
        return await self._guest.call(
            partial(
                self._inner.reset_offsets, group_id, partitions, to, validate_only=validate_only
            )
        )

    async def alter_group(
        self,
        group_id: str,
        *,
        set: Mapping[str, str | float | None] | None = None,
        reset: Iterable[str] = (),
    ) -> dict[str, str]:
        """Change settings of a consumer group, all or none; return all settings.

        A group that does not exist is created without members. A group with settings does not
        expire, and its deletion deletes them.

        Args:
            group_id: Name of the group.
            set: Settings to change, such as `owner="billing"`, `alert_lag=300` (seconds),
                `alert_lag_records=10000`.
            reset: Names of settings to reset to their defaults.

        Raises:
            InvalidConfigError: A setting is unknown or not legal.
            InvalidRequestError: The feature level of the cluster is too low.
        """
        return await self._guest.call(
            partial(self._inner.alter_group, group_id, set=set, reset=list(reset))
        )

    async def delete_group(self, group_id: str) -> bool:
        """Delete a group without members, and its offsets; return whether it existed.

        Raises:
            GroupNotEmptyError: It has members.
        """
        return await self._guest.call(partial(self._inner.delete_group, group_id))

    async def list_transactions(
        self, names: Iterable[str] | None = None
    ) -> list[TransactionDescription]:
        """Return the state of names of `Client.transaction`, all by default; sorted by name.

        Names that are unknown, or unused for seven days, are left out.
        """
        return await self._guest.call(partial(self._inner.list_transactions, names))

    async def forget_transactions(
        self, names: Iterable[str], *, unused_for: float = 86400.0
    ) -> dict[str, BrokerError]:
        """Delete the state of names that no program uses again; the limit of names is 100,000.

        The cluster then accepts committed ids again: a program that repeats its last transaction
        writes it twice. Names with an open transaction or an incomplete commit are kept.

        Args:
            names: Names of transactions.
            unused_for: Seconds, 600 or more; names with a begin or commit since are kept as well.

        Returns:
            The names that are kept, each with the reason.

        Raises:
            InvalidRequestError: The feature level of the cluster is too low, or the time too short.
        """
        return await self._guest.call(
            partial(self._inner.forget_transactions, list(names), unused_for=unused_for)
        )

    async def describe_cluster(self, *, with_partitions: bool = False) -> DescribeClusterReply:
        """Return the state of the cluster, as the broker that answers knows it.

        `tidelog.cluster_health` judges it: severity, reason and next step. A broker that has no
        contact to a majority describes the past, and says how long ago that was.

        Args:
            with_partitions: List the unhealthy partitions, in addition to their counts.
        """
        return await self._guest.call(
            partial(self._inner.describe_cluster, with_partitions=with_partitions)
        )

    async def alerts(self, *, owner: str | None = None) -> AlertReport:
        """Check all alerts now, without any other software, and return those that fire.

        Alerts of operators come from the metadata of the cluster. Queues and groups with
        thresholds are read from the brokers that serve them, for up to 30 seconds; `unknown` of
        the report names those that did not answer.

        Args:
            owner: Only alerts of the queues and groups of this owner.
        """
        return await self._guest.call(partial(self._inner.alerts, owner=owner))

    async def metrics(self, families: Iterable[str] = (), names: str = "") -> list[BrokerMetrics]:
        """Return the metrics of each broker, by node id; all brokers are asked at the same time.

        A broker that does not answer within 6 seconds, is fenced or of an earlier version has an
        error instead of metrics.

        Args:
            families: Beginnings of names without `tidelog_`, such as `queue`; all by default.
            names: Globs with commas for names of topics, queues and groups; all by default.

        Raises:
            InvalidRequestError: The globs are invalid.
        """
        return await self._guest.call(partial(self._inner.metrics, list(families), names))

    async def cluster_events(self) -> list[EventDescription]:
        """Return the events of the cluster that no administrator has acknowledged, oldest first.

        An event is a loss of committed records, or an election after which some may be missing. The
        cluster keeps at most 1000; `describe_cluster` counts all.
        """
        return await self._guest.call(self._inner.cluster_events)

    async def acknowledge_events(
        self, event_ids: Iterable[int] = (), *, up_to_id: int | None = None
    ) -> int:
        """Acknowledge events, so that no description shows them; return how many are left.

        Args:
            event_ids: Ids of `cluster_events`; an acknowledged event is no error.
            up_to_id: Acknowledge all events up to this one (inclusive) as well.

        Raises:
            InvalidRequestError: There was never an event of one of the ids.
        """
        return await self._guest.call(
            partial(self._inner.acknowledge_events, list(event_ids), up_to_id=up_to_id)
        )

    async def elect_leaders(
        self, partitions: PartitionsToElect = None, *, accept_data_loss: bool = False
    ) -> list[LeaderElected]:
        """Elect the preferred replicas as leaders; return the leader or the error per partition.

        Args:
            partitions: A topic, for all its partitions, or topics and numbers; `None` for all
                partitions of the cluster that need it.
            accept_data_loss: Where no replica with all committed records is left, elect a replica
                that may lack some. Records that it lacks are lost for good; the cluster records
                that loss. Partitions that have a leader keep it. The request is sent once: describe
                the cluster before you repeat it.

        Raises:
            UnknownTopicError: There is no such topic.
            ConnectionLostError, RequestTimedOutError: With `accept_data_loss`: the election may or
                may not have happened.
        """
        return await self._guest.call(
            partial(self._inner.elect_leaders, partitions, accept_data_loss=accept_data_loss)
        )

    async def reassign(
        self, moves: Iterable[PartitionMove], *, plan_only: bool = False
    ) -> list[PartitionMoved]:
        """Move replicas to other brokers; records are copied after this has returned.

        A replica that is replaced is removed when the new replicas are in sync. `describe_cluster`
        counts the partitions that move.

        Args:
            moves: Topic, number and replicas of partitions; without replicas, a move is cancelled.
            plan_only: Return what would be done, and change nothing.

        Raises:
            UnknownTopicError: There is no such topic.
        """
        return await self._guest.call(
            partial(self._inner.reassign, list(moves), plan_only=plan_only)
        )

    async def balance(
        self, *, leaving: Iterable[int] = (), max_replicas: int = 100, plan_only: bool = False
    ) -> list[PartitionMoved]:
        """Move replicas so that the load of brokers is even; see `reassign`.

        Args:
            leaving: Brokers that shall keep no replicas, such as a broker to be removed.
            max_replicas: How many replicas may move now; call again for more.
            plan_only: Return what would be done, and change nothing.

        Raises:
            InvalidRequestError: There is no such broker.
        """
        return await self._guest.call(
            partial(
                self._inner.balance,
                leaving=list(leaving),
                max_replicas=max_replicas,
                plan_only=plan_only,
            )
        )

    async def alter_replication_factor(
        self, topics: Iterable[str] | None, replication_factor: int, *, plan_only: bool = False
    ) -> list[PartitionMoved]:
        """Change the number of replicas of topics; see `reassign` for the moves that result.

        New replicas go to brokers that are alive and not drained, and into other racks first. A
        leader stays, and so does the last replica with all committed records: replicas out of sync
        are removed first. Journals of queues get as many replicas as their topic. After an
        interruption, repeat the call.

        Args:
            topics: Names of topics; `None` for all topics that have fewer replicas. Then topics
                with more replicas keep them.
            replication_factor: Replicas per partition, 1 to 15.
            plan_only: Return what would be done, and change nothing.

        Raises:
            UnknownTopicError: There is no such topic.
            InvalidTopicError: There are fewer brokers than replicas, or `min_insync_replicas` of a
                topic is higher. Up to 1000 topics change together or not at all.
            UnsupportedVersionError: The broker runs a version without this request.
        """
        return await self._guest.call(
            partial(
                self._inner.alter_replication_factor,
                topics,
                replication_factor,
                plan_only=plan_only,
            )
        )

    async def drain(self, node_id: int, *, plan_only: bool = False) -> list[PartitionMoved]:
        """Exclude a broker from new replicas, and move its replicas away; see `reassign`.

        The replicas are spread over the other brokers and over racks. Call again to move replicas
        for which there was no other broker before.

        Args:
            node_id: Node id of the broker. It still leads and follows its replicas until they are
                moved.
            plan_only: Return what would be moved, and change nothing.

        Raises:
            InvalidRequestError: There is no such broker, or no other that takes replicas.
        """
        return await self._guest.call(partial(self._inner.drain, node_id, plan_only=plan_only))

    async def end_drain(self, node_id: int) -> None:
        """Let a broker receive replicas again; `balance` moves some to it.

        Raises:
            InvalidRequestError: There is no such broker.
        """
        await self._guest.call(partial(self._inner.end_drain, node_id))

    async def replace_broker(
        self, lost: int, replacement: int, *, plan_only: bool = False
    ) -> list[PartitionMoved]:
        """Move the replicas of a lost broker to a replacement; see `reassign`.

        Partitions that have a replica on the replacement already go to other brokers.

        Args:
            lost: Broker that is gone. When it has no replicas any more, `unregister_broker`
                removes it.
            replacement: Broker that receives the replicas; it is alive.
            plan_only: Return what would be moved, and change nothing.

        Raises:
            InvalidRequestError: `lost` is alive, `replacement` is not, or one of them is unknown.
        """
        return await self._guest.call(
            partial(self._inner.replace_broker, lost, replacement, plan_only=plan_only)
        )

    async def unregister_broker(self, node_id: int) -> bool:
        """Remove a node that is gone for good from the cluster; return whether it was a member.

        It loses its vote, too. A node that comes back counts as a new node.

        Raises:
            InvalidRequestError: The node is alive, or still has replicas.
        """
        return await self._guest.call(partial(self._inner.unregister_broker, node_id))

    async def safe_to_stop(self, node_id: int) -> SafeToStopReply:
        """Return whether a node may stop, and what becomes unavailable if it does.

        For restarts of all nodes, one after the other: stop a node when it is safe. A partition is
        at risk if without the node it has fewer live in-sync replicas than `min_insync_replicas`,
        or none; so is the majority of the voters. The broker answers from its metadata, and says no
        if these are stale.

        Raises:
            InvalidRequestError: There is no such node.
            UnsupportedVersionError: The brokers run a version without this check.
        """
        return await self._guest.call(partial(self._inner.safe_to_stop, node_id))

    async def describe_features(self) -> ClusterFeatures:
        """Return the feature level of the cluster, those of its nodes, and obstacles to a rise.

        The controller answers; one of an older version does not know the request.

        Raises:
            UnsupportedVersionError: The controller runs a version without feature levels.
        """
        return await self._guest.call(self._inner.describe_features)

    async def update_features(self, level: int) -> ClusterFeatures:
        """Set the feature level of the cluster, and return what `describe_features` returns.

        Nodes that do not know the level can neither join the cluster nor come back to it.

        Args:
            level: Such as `newest_level` of `describe_features`. A lower level than the present one
                is possible until a record that needs the present one is written.

        Raises:
            InvalidRequestError: A node does not know the level, or a record needs a higher one.
            UnsupportedVersionError: The controller runs a version without feature levels.
        """
        return await self._guest.call(partial(self._inner.update_features, level))

    async def list_reassignments(self) -> list[MovingReplica]:
        """Return the replicas that reassignments are adding, with the progress of each.

        Empty when nothing is being copied. The progress comes from the leaders; it is missing for
        leaders that do not answer within two seconds.
        """
        return await self._guest.call(self._inner.list_reassignments)

    async def alter_cluster(
        self, *, set: Mapping[str, Setting] | None = None, reset: Iterable[str] = ()
    ) -> dict[str, str]:
        """Change settings of the cluster, or reset them to their defaults; return all settings.

        Settings of brokers can be set for all brokers, `scrub_max_bytes_per_second`, and with
        precedence for a single broker, `scrub_max_bytes_per_second@3`.

        Raises:
            InvalidConfigError: A setting is unknown or not legal; the message lists all.
            InvalidRequestError: There is no such broker.
        """
        return await self._guest.call(
            partial(self._inner.alter_cluster, set=set, reset=list(reset))
        )

    async def broker_config(self, node_id: int | None = None) -> DescribeConfigReply:
        """Return the settings of a running broker, their sources, and which can be changed.

        Without `node_id`, any broker answers.

        Raises:
            ConnectError: The broker cannot be reached.
            InvalidRequestError: No node has this id.
        """
        return await self._guest.call(partial(self._inner.broker_config, node_id))
