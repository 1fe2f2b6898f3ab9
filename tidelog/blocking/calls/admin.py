"""The calls of `tidelog.Admin`, which wait; written by `tools.blocking_calls`."""

from collections.abc import Iterable, Mapping
from functools import partial

from tidelog.blocking.forwarding import Forwarding
from tidelog.client.admin.admin import Admin as AsyncAdmin
from tidelog.client.admin.admin import Setting
from tidelog.client.admin.cluster import MovingReplica, PartitionsToElect
from tidelog.client.admin.groups import GroupDescription, OffsetMove, ResetPlace
from tidelog.client.admin.queue_counts import DescribedQueue
from tidelog.client.admin.queues import Setting as QueueSetting
from tidelog.client.cluster.list_offsets import OffsetSpec, PartitionOffset
from tidelog.client.topic_partition import TopicPartition
from tidelog.wire.messages.cluster_admin import (
    DescribeClusterReply,
    DescribeConfigReply,
    LeaderElected,
)
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


class Admin(Forwarding[AsyncAdmin]):
    """See `tidelog.Admin`."""

    __slots__ = ()

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        *,
        replication_factor: int | None = None,
        config: Mapping[str, Setting] | None = None,
        validate_only: bool = False,
        **settings: Setting,
    ) -> CreateTopicReply:
        """Create a topic; it is durable when this returns.

        Args:
            name: 1 to 249 of the characters a-z, A-Z, 0-9, '.', '_', '-'.
            partitions: How many partitions it has.
            replication_factor: Replicas of each; by default as many as the cluster says.
            config: Settings by name, such as `{"retention_ms": 3_600_000}`; for programs.
            validate_only: Say what would happen and change nothing.
            settings: The same as keywords: `create_topic("orders", retention_ms=3_600_000)`.

        Raises:
            TopicExistsError: There is one of this name.
            InvalidTopicError: The name or the number of partitions is not legal.
            InvalidConfigError: A setting is unknown or not legal.
        """
        return self._thread.call(
            partial(
                self._inner.create_topic,
                name,
                partitions,
                replication_factor=replication_factor,
                config=config,
                validate_only=validate_only,
                **settings,
            )
        )

    def list_topics(self) -> list[str]:
        """Return the names of all topics, sorted."""
        return self._thread.call(self._inner.list_topics)

    def describe_topics(self, names: Iterable[str] | None = None) -> list[TopicDescription]:
        """Return settings and offsets of topics, in the order asked; of all, sorted, by default.

        Raises:
            UnknownTopicError: There is no such topic.
        """
        return self._thread.call(partial(self._inner.describe_topics, names))

    def alter_topic(
        self, name: str, *, set: Mapping[str, Setting] | None = None, reset: Iterable[str] = ()
    ) -> dict[str, str]:
        """Set settings of a topic, or put them back to their defaults; return all of them.

        Raises:
            UnknownTopicError: There is no such topic.
            InvalidConfigError: A setting is unknown or not legal.
        """
        return self._thread.call(partial(self._inner.alter_topic, name, set=set, reset=list(reset)))

    def add_partitions(
        self, name: str, count: int, *, validate_only: bool = False
    ) -> AddPartitionsReply:
        """Let a topic have more partitions: `count` in all; it never gets fewer again.

        Records stay where they are. Those with a key go to another partition from now on, most of
        them, so that the order of records with one key holds before and after, but not across.
        Producers of this client learn of it at once, as do members of groups; all others within
        `ClientConfig.metadata_max_age`.

        Args:
            name: The topic.
            count: How many partitions it has afterwards.
            validate_only: Say what would happen and change nothing.

        Raises:
            UnknownTopicError: There is no such topic.
            InvalidTopicError: It has more already, it cannot have so many, or it has FIFO queues.
        """
        return self._thread.call(
            partial(self._inner.add_partitions, name, count, validate_only=validate_only)
        )

    def topic_usage(self, names: Iterable[str] | None = None) -> list[TopicUsage]:
        """Return what the partitions of topics take on disk, and how fast that grows.

        In the order asked; of all topics, sorted, by default. Partitions whose leader does not
        answer are left out.

        Raises:
            UnknownTopicError: There is no such topic.
        """
        return self._thread.call(partial(self._inner.topic_usage, names))

    def delete_topic(self, name: str) -> None:
        """Delete a topic and all of its records.

        Raises:
            UnknownTopicError: There is no such topic.
        """
        self._thread.call(partial(self._inner.delete_topic, name))

    def delete_records(
        self, topic: str, partition: int, before_offset: int | None
    ) -> DeleteRecordsReply:
        """Make records below `before_offset` unreadable; `None` means all that can be read.

        Raises:
            UnknownTopicError: There is no such topic.
            UnknownPartitionError: The topic does not have the partition.
            OffsetOutOfRangeError: The offset is beyond the end; the error has both bounds.
        """
        return self._thread.call(
            partial(self._inner.delete_records, topic, partition, before_offset)
        )

    def list_offsets(
        self, topic: str, at: OffsetSpec, *, partitions: Iterable[int] | None = None
    ) -> dict[int, PartitionOffset]:
        """Return an offset of each partition: `"earliest"`, `"latest"`, or that of a time.

        Args:
            topic: The topic's name.
            at: The first readable record, the end, or the first record of this time (Unix
                milliseconds) or later; the offset is `None` where no record is that young.
            partitions: Which partitions; all by default.

        Raises:
            UnknownTopicError: There is no such topic.
            UnknownPartitionError: The topic does not have a partition that was asked for.
        """
        return self._thread.call(
            partial(self._inner.list_offsets, topic, at, partitions=partitions)
        )

    def create_queue(
        self,
        name: str,
        *,
        topic: str | None = None,
        partitions: int | None = None,
        start: OffsetSpec = "earliest",
        fifo: bool = False,
        topic_config: Mapping[str, Setting] | None = None,
        **settings: QueueSetting,
    ) -> CreateQueueReply:
        """Create a queue; it is durable when this returns.

        The same queue again is no error; where it starts is not compared.

        Args:
            name: 1 to 249 of the characters a-z, A-Z, 0-9, '.', '_', '-'.
            topic: Whose records are its messages; by default the one of the queue's name, which is
                made if it is not there. Another one is made only if `partitions` is given.
            partitions: How many the topic has, if it is made; by default one.
            start: `"earliest"`, `"latest"`, or Unix milliseconds: where in the topic it begins.
            fifo: Whether messages with the same key are handed out in order, one after the other.
            topic_config: Settings of the topic, if it is made.
            settings: Such as `visibility_timeout=30` (seconds), `max_receive_count=5`,
                `dead_letter_queue="payments-dead"`, `retry_backoff="exponential(1s,2,5min)"`.

        Raises:
            QueueExistsError: There is another one of this name; the message says what differs.
            UnknownTopicError: There is no such topic.
            UnknownQueueError: There is no such dead-letter queue.
            InvalidConfigError: A setting is unknown or not legal, or dead letters would come back.
        """
        return self._thread.call(
            partial(
                self._inner.create_queue,
                name,
                topic=topic,
                partitions=partitions,
                start=start,
                fifo=fifo,
                topic_config=topic_config,
                **settings,
            )
        )

    def list_queues(self) -> list[str]:
        """Return the names of all queues, sorted."""
        return self._thread.call(self._inner.list_queues)

    def describe_queues(
        self, names: Iterable[str] | None = None, *, with_counts: bool = False
    ) -> list[DescribedQueue]:
        """Return settings and places of queues, in the order asked; of all, sorted, by default.

        Args:
            names: Which queues.
            with_counts: Have the messages of each counted as well, by the brokers that serve it.

        Raises:
            UnknownQueueError: There is no such queue.
        """
        return self._thread.call(
            partial(self._inner.describe_queues, names, with_counts=with_counts)
        )

    def alter_queue(
        self, name: str, *, set: Mapping[str, QueueSetting] | None = None, reset: Iterable[str] = ()
    ) -> dict[str, str]:
        """Set settings of a queue, or put them back to their defaults; return all of them.

        Names and values are those of `create_queue`.

        Raises:
            UnknownQueueError: There is no such queue, or no such dead-letter queue.
            InvalidConfigError: A setting is unknown, not legal, or cannot be changed.
        """
        return self._thread.call(partial(self._inner.alter_queue, name, set=set, reset=list(reset)))

    def delete_queue(
        self, name: str, *, with_topic: bool = False, detach_sources: bool = False
    ) -> None:
        """Delete a queue, and who has which of its messages; the messages stay in the topic.

        Args:
            name: Which queue.
            with_topic: Delete the topic and all of its records, too, if no other queue uses it.
            detach_sources: Remove this queue as the dead-letter queue of its source queues.

        Raises:
            UnknownQueueError: There is no such queue.
            InvalidRequestError: It is a dead-letter queue in use, or the topic has other queues.
        """
        self._thread.call(
            partial(
                self._inner.delete_queue, name, with_topic=with_topic, detach_sources=detach_sources
            )
        )

    def list_groups(self, states: Iterable[str] | None = None) -> list[GroupListing]:
        """Return all consumer groups in short, by id.

        Args:
            states: Only those in one of these: `empty`, `assigning`, `reconciling`, `stable`.
        """
        return self._thread.call(partial(self._inner.list_groups, states))

    def describe_group(self, group_id: str) -> GroupDescription:
        """Return the members of a consumer group, who reads what, and how far behind it is.

        Raises:
            UnknownGroupError: There is no such group.
        """
        return self._thread.call(partial(self._inner.describe_group, group_id))

    def reset_offsets(
        self,
        group_id: str,
        partitions: str | Iterable[tuple[str, int]],
        to: ResetPlace,
        *,
        validate_only: bool = False,
    ) -> dict[TopicPartition, OffsetMove]:
        """Move a group that does not read these topics now; all partitions are moved, or none.

        A group that is not there comes into being, so that a start can be chosen beforehand.

        Args:
            group_id: Which group.
            partitions: A topic, for all its partitions, or topics and numbers.
            to: `"earliest"`, `"latest"`, `("offset", n)`, `("time", unix_ms)` or `("shift", n)`,
                where a negative `n` is back.
            validate_only: Say what would happen and change nothing.

        Raises:
            GroupNotEmptyError: Members read one of the topics; stop them first.
            OffsetOutOfRangeError: There is no such offset; the error has both bounds.
            UnknownTopicError: There is no such topic.
            UnknownPartitionError: The topic does not have a partition that was asked for.
            InvalidRequestError: There is nothing to shift from.
        """
        return self._thread.call(
            partial(
                self._inner.reset_offsets, group_id, partitions, to, validate_only=validate_only
            )
        )

    def delete_group(self, group_id: str) -> bool:
        """Forget a group without members, and all its offsets; return whether it was there.

        Raises:
            GroupNotEmptyError: It has members.
        """
        return self._thread.call(partial(self._inner.delete_group, group_id))

    def list_transactions(self, names: Iterable[str] | None = None) -> list[TransactionDescription]:
        """Return what is known of names of `Client.transaction`, all by default; sorted by name.

        Those that nobody knows, or that were not used for seven days, are left out.
        """
        return self._thread.call(partial(self._inner.list_transactions, names))

    def describe_cluster(self, *, with_partitions: bool = False) -> DescribeClusterReply:
        """Return how the cluster stands, as far as the broker that is asked knows.

        Args:
            with_partitions: List the partitions that somebody may want to look at, besides
                counting them.
        """
        return self._thread.call(
            partial(self._inner.describe_cluster, with_partitions=with_partitions)
        )

    def elect_leaders(
        self, partitions: PartitionsToElect = None, *, accept_data_loss: bool = False
    ) -> list[LeaderElected]:
        """Let preferred replicas lead; return who leads each partition now, or why that failed.

        Args:
            partitions: A topic, for all its partitions, or topics and numbers; `None` for all of
                the cluster for which there is something to do.
            accept_data_loss: Where nobody is left who has all committed records, take a replica
                that may not. What it lacks is lost for good; the cluster remembers that. Partitions
                that have a leader keep it. It is asked once: look at the cluster before you repeat
                it.

        Raises:
            UnknownTopicError: There is no such topic.
            ConnectionLostError, RequestTimedOutError: With `accept_data_loss`: it may be so, or
                not.
        """
        return self._thread.call(
            partial(self._inner.elect_leaders, partitions, accept_data_loss=accept_data_loss)
        )

    def reassign(
        self, moves: Iterable[PartitionMove], *, plan_only: bool = False
    ) -> list[PartitionMoved]:
        """Have replicas moved to other brokers; records are copied after this has returned.

        A copy that is not needed any more goes when the new ones are in sync. `describe_cluster`
        counts the partitions that move.

        Args:
            moves: Topic, number and replicas of partitions; without replicas, a move is cancelled.
            plan_only: Say what would be done, and change nothing.

        Raises:
            UnknownTopicError: There is no such topic.
        """
        return self._thread.call(partial(self._inner.reassign, list(moves), plan_only=plan_only))

    def balance(
        self, *, leaving: Iterable[int] = (), max_replicas: int = 100, plan_only: bool = False
    ) -> list[PartitionMoved]:
        """Have replicas moved so that brokers have as much to do as others; see `reassign`.

        Args:
            leaving: Brokers that shall have no replicas any more, such as one that is to go.
            max_replicas: How many replicas may move now; ask again for more.
            plan_only: Say what would be done, and change nothing.

        Raises:
            InvalidRequestError: There is no such broker.
        """
        return self._thread.call(
            partial(
                self._inner.balance,
                leaving=list(leaving),
                max_replicas=max_replicas,
                plan_only=plan_only,
            )
        )

    def drain(self, node_id: int, *, plan_only: bool = False) -> list[PartitionMoved]:
        """Let a broker get no more replicas, and have those that it has moved; see `reassign`.

        They are spread over the other brokers and over racks. Ask again to have those
        moved for which there was no other broker before.

        Args:
            node_id: Which broker. It goes on to lead and follow what it has as long as it has it.
            plan_only: Say what would be moved, and change nothing.

        Raises:
            InvalidRequestError: There is no such broker, or no other that takes replicas.
        """
        return self._thread.call(partial(self._inner.drain, node_id, plan_only=plan_only))

    def end_drain(self, node_id: int) -> None:
        """Let a broker get replicas again; `balance` gives it some.

        Raises:
            InvalidRequestError: There is no such broker.
        """
        self._thread.call(partial(self._inner.end_drain, node_id))

    def replace_broker(
        self, lost: int, replacement: int, *, plan_only: bool = False
    ) -> list[PartitionMoved]:
        """Have one broker get the replicas of another one that is gone; see `reassign`.

        Partitions of which the replacement has a replica already go to other brokers.

        Args:
            lost: Who is gone. When it has no replicas any more, `unregister_broker` forgets it.
            replacement: Who gets them; it is alive.
            plan_only: Say what would be moved, and change nothing.

        Raises:
            InvalidRequestError: `lost` is alive, `replacement` is not, or one of them is unknown.
        """
        return self._thread.call(
            partial(self._inner.replace_broker, lost, replacement, plan_only=plan_only)
        )

    def unregister_broker(self, node_id: int) -> bool:
        """Take a node that is gone for good out of the cluster; return whether it was in it.

        It does not vote any more either. One that comes back is a new one.

        Raises:
            InvalidRequestError: It is alive, or still has replicas.
        """
        return self._thread.call(partial(self._inner.unregister_broker, node_id))

    def list_reassignments(self) -> list[MovingReplica]:
        """Return the replicas that reassignments add now, and how far each of them is.

        Empty when nothing is being copied. Leaders are asked; of those that do not answer within
        two seconds, what they would have said is missing.
        """
        return self._thread.call(self._inner.list_reassignments)

    def alter_cluster(
        self, *, set: Mapping[str, Setting] | None = None, reset: Iterable[str] = ()
    ) -> dict[str, str]:
        """Set settings of the cluster, or put them back to their defaults; return all of them.

        What brokers were started with can be set for all, `scrub_max_bytes_per_second`,
        and above that for one of them, `scrub_max_bytes_per_second@3`.

        Raises:
            InvalidConfigError: A setting is unknown or not legal; the message lists all.
            InvalidRequestError: There is no such broker.
        """
        return self._thread.call(partial(self._inner.alter_cluster, set=set, reset=list(reset)))

    def broker_config(self, node_id: int | None = None) -> DescribeConfigReply:
        """Return the settings of a running broker, where each comes from, and which can be changed.

        Of any broker that answers if `node_id` is not given.

        Raises:
            ConnectError: The broker cannot be reached, or there is none of this id.
        """
        return self._thread.call(partial(self._inner.broker_config, node_id))
