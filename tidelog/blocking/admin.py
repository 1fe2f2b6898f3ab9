"""Administration for programs without trio: `tidelog.blocking` gives it out."""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import final

from tidelog.blocking.thread import TrioThread
from tidelog.client import client as trio_client
from tidelog.client.admin.admin import Admin as TrioAdmin
from tidelog.client.admin.cluster import MovingReplica, PartitionsToElect
from tidelog.client.admin.groups import GroupDescription, OffsetMove, ResetPlace
from tidelog.client.admin.queue_counts import DescribedQueue
from tidelog.client.admin.queues import Setting as QueueSetting
from tidelog.client.admin.topics import Setting
from tidelog.client.cluster.list_offsets import OffsetPlace, PartitionOffset
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

_Thread = TrioThread[trio_client.Client]


@final
class Admin:
    """See `tidelog.Admin`."""

    def __init__(self, thread: _Thread) -> None:
        """Use `client.admin`."""
        self._thread = thread

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
        """Create a topic; see `tidelog.Admin.create_topic`."""
        create = partial(
            self._admin.create_topic,
            name,
            partitions,
            replication_factor=replication_factor,
            config={**(config or {}), **settings},
            validate_only=validate_only,
        )
        return self._thread.call(create)

    def list_topics(self) -> list[str]:
        """Return the names of all topics, sorted."""
        return self._thread.call(self._admin.list_topics)

    def describe_topics(self, names: Iterable[str] | None = None) -> list[TopicDescription]:
        """Return settings and extent of topics; see `tidelog.Admin.describe_topics`."""
        return self._thread.call(partial(self._admin.describe_topics, names))

    def alter_topic(
        self,
        name: str,
        *,
        set: Mapping[str, Setting] | None = None,  # noqa: A002  (the word of the command line)
        reset: Iterable[str] = (),
    ) -> dict[str, str]:
        """Change settings of a topic; see `tidelog.Admin.alter_topic`."""
        return self._thread.call(partial(self._admin.alter_topic, name, set=set, reset=reset))

    def add_partitions(
        self, name: str, count: int, *, validate_only: bool = False
    ) -> AddPartitionsReply:
        """Let a topic have more partitions; see `tidelog.Admin.add_partitions`."""
        add = partial(self._admin.add_partitions, name, count, validate_only=validate_only)
        return self._thread.call(add)

    def topic_usage(self, names: Iterable[str] | None = None) -> list[TopicUsage]:
        """Return what topics take on disk; see `tidelog.Admin.topic_usage`."""
        return self._thread.call(partial(self._admin.topic_usage, names))

    def delete_topic(self, name: str) -> None:
        """Delete a topic and all of its records."""
        self._thread.call(partial(self._admin.delete_topic, name))

    def delete_records(
        self, topic: str, partition: int, before_offset: int | None
    ) -> DeleteRecordsReply:
        """Make old records unreadable; see `tidelog.Admin.delete_records`."""
        delete = partial(self._admin.delete_records, topic, partition, before_offset)
        return self._thread.call(delete)

    def list_offsets(
        self, topic: str, at: OffsetPlace, *, partitions: Iterable[int] | None = None
    ) -> dict[int, PartitionOffset]:
        """Return an offset of each partition; see `tidelog.Admin.list_offsets`."""
        find = partial(self._admin.list_offsets, topic, at, partitions=partitions)
        return self._thread.call(find)

    def create_queue(
        self,
        name: str,
        *,
        topic: str | None = None,
        partitions: int | None = None,
        start: OffsetPlace = "earliest",
        fifo: bool = False,
        topic_config: Mapping[str, Setting] | None = None,
        **settings: QueueSetting,
    ) -> CreateQueueReply:
        """Create a queue; see `tidelog.Admin.create_queue`."""
        create = partial(
            self._admin.create_queue,
            name,
            topic=topic,
            partitions=partitions,
            start=start,
            fifo=fifo,
            topic_config=topic_config,
            **settings,
        )
        return self._thread.call(create)

    def list_queues(self) -> list[str]:
        """Return the names of all queues, sorted."""
        return self._thread.call(self._admin.list_queues)

    def describe_queues(
        self, names: Iterable[str] | None = None, *, with_counts: bool = False
    ) -> list[DescribedQueue]:
        """Return settings, places and counts of queues; see `tidelog.Admin.describe_queues`."""
        describe = partial(self._admin.describe_queues, names, with_counts=with_counts)
        return self._thread.call(describe)

    def alter_queue(
        self,
        name: str,
        *,
        set: Mapping[str, QueueSetting] | None = None,  # noqa: A002  (as for topics)
        reset: Iterable[str] = (),
    ) -> dict[str, str]:
        """Change settings of a queue; see `tidelog.Admin.alter_queue`."""
        return self._thread.call(partial(self._admin.alter_queue, name, set=set, reset=reset))

    def delete_queue(self, name: str, *, with_topic: bool = False, cut_ties: bool = False) -> None:
        """Delete a queue; see `tidelog.Admin.delete_queue`."""
        delete = partial(self._admin.delete_queue, name, with_topic=with_topic, cut_ties=cut_ties)
        self._thread.call(delete)

    def list_groups(self, states: Iterable[str] | None = None) -> list[GroupListing]:
        """Return all consumer groups in short; see `tidelog.Admin.list_groups`."""
        return self._thread.call(partial(self._admin.list_groups, states))

    def describe_group(self, group_id: str) -> GroupDescription:
        """Return a consumer group in full; see `tidelog.Admin.describe_group`."""
        return self._thread.call(partial(self._admin.describe_group, group_id))

    def reset_offsets(
        self,
        group_id: str,
        partitions: str | Iterable[tuple[str, int]],
        to: ResetPlace,
        *,
        validate_only: bool = False,
    ) -> dict[TopicPartition, OffsetMove]:
        """Move a group that does not read now; see `tidelog.Admin.reset_offsets`."""
        reset = partial(
            self._admin.reset_offsets, group_id, partitions, to, validate_only=validate_only
        )
        return self._thread.call(reset)

    def delete_group(self, group_id: str) -> bool:
        """Forget a group without members; see `tidelog.Admin.delete_group`."""
        return self._thread.call(partial(self._admin.delete_group, group_id))

    def list_transactions(self, names: Iterable[str] | None = None) -> list[TransactionDescription]:
        """Return what is known of names; see `tidelog.Admin.list_transactions`."""
        return self._thread.call(partial(self._admin.list_transactions, names))

    def describe_cluster(self, *, with_partitions: bool = False) -> DescribeClusterReply:
        """Return how the cluster stands; see `tidelog.Admin.describe_cluster`."""
        describe = partial(self._admin.describe_cluster, with_partitions=with_partitions)
        return self._thread.call(describe)

    def elect_leaders(
        self, partitions: PartitionsToElect = None, *, accept_data_loss: bool = False
    ) -> list[LeaderElected]:
        """Let preferred replicas lead; see `tidelog.Admin.elect_leaders`."""
        elect = partial(self._admin.elect_leaders, partitions, accept_data_loss=accept_data_loss)
        return self._thread.call(elect)

    def reassign(
        self, moves: Iterable[PartitionMove], *, plan_only: bool = False
    ) -> list[PartitionMoved]:
        """Have replicas moved; see `tidelog.Admin.reassign`."""
        return self._thread.call(partial(self._admin.reassign, moves, plan_only=plan_only))

    def balance(
        self, *, leaving: Iterable[int] = (), replicas_max: int = 100, plan_only: bool = False
    ) -> list[PartitionMoved]:
        """Have replicas moved so that loads are equal; see `tidelog.Admin.balance`."""
        balance = partial(
            self._admin.balance, leaving=leaving, replicas_max=replicas_max, plan_only=plan_only
        )
        return self._thread.call(balance)

    def drain(self, node_id: int, *, plan_only: bool = False) -> list[PartitionMoved]:
        """Have all replicas of a broker moved to others; see `tidelog.Admin.drain`."""
        return self._thread.call(partial(self._admin.drain, node_id, plan_only=plan_only))

    def end_drain(self, node_id: int) -> None:
        """Let a broker get replicas again."""
        self._thread.call(partial(self._admin.end_drain, node_id))

    def replace_broker(
        self, lost: int, heir: int, *, plan_only: bool = False
    ) -> list[PartitionMoved]:
        """Have a broker get what a lost one had; see `tidelog.Admin.replace_broker`."""
        replace = partial(self._admin.replace_broker, lost, heir, plan_only=plan_only)
        return self._thread.call(replace)

    def unregister_broker(self, node_id: int) -> bool:
        """Take a node out of the cluster; see `tidelog.Admin.unregister_broker`."""
        return self._thread.call(partial(self._admin.unregister_broker, node_id))

    def describe_moves(self) -> list[MovingReplica]:
        """Return how far moves are; see `tidelog.Admin.describe_moves`."""
        return self._thread.call(self._admin.describe_moves)

    def alter_cluster(
        self,
        *,
        set: Mapping[str, Setting] | None = None,  # noqa: A002  (the word of the command line)
        reset: Iterable[str] = (),
    ) -> dict[str, str]:
        """Change settings of the cluster; see `tidelog.Admin.alter_cluster`."""
        return self._thread.call(partial(self._admin.alter_cluster, set=set, reset=reset))

    def broker_config(self, node_id: int | None = None) -> DescribeConfigReply:
        """Return the settings of a running broker; see `tidelog.Admin.broker_config`."""
        return self._thread.call(partial(self._admin.broker_config, node_id))

    @property
    def _admin(self) -> TrioAdmin:
        return self._thread.resource.admin
