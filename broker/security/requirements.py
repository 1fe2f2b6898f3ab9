"""Requirements of all APIs: nothing, a node, or actions on resources; and filters of replies.

Pure: declarations. The table is the only place that knows: handlers do not ask about access.

A need is decided by the name alone, before the resource is looked up. An unseen name is answered as
an unknown one, an unseen id as a deleted one: an answer tells nothing about what exists.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple, Protocol, final

import msgspec

from tidelog.coordinator.metadata.catalog import (
    queue_of_journal,
    topic_of_staging,
    unknown_queue,
    unknown_queue_id,
    unknown_topic,
    unknown_topic_id,
)
from tidelog.coordinator.metadata.name_index import NameIndex
from tidelog.coordinator.metadata.state import ClusterState
from tidelog.wire.errors import BrokerError, ErrorDetail, UnknownGroupError, UnknownTopicIdError
from tidelog.wire.messages import (
    access,
    fetch,
    groups,
    hot_keys,
    metadata,
    names,
    offset_ranges,
    produce,
    queue_admin,
    queues,
    quotas,
    topic_usage,
    topics,
    transactions,
)
from tidelog.wire.protocol import api
from tidelog.wire.protocol.api import Api
from tidelog.wire.security.access_rules import ALL, DESCRIBE, Resource, cluster_action
from tidelog.wire.security.audit_topic import AUDIT_TOPIC


class Need(NamedTuple):
    """An action that a request needs."""

    resource: Resource
    unknown: Callable[[], BrokerError] | None = None
    """Returns the error for a resource that does not exist, which is also that for one that the
    principal may not see; `None` if the request could create it."""


class Sight(Protocol):
    """What one principal may do now."""

    @property
    def state(self) -> ClusterState:
        """The metadata."""
        ...

    def may(self, resource: Resource) -> bool:
        """Return whether the principal is allowed an action."""
        ...

    def may_all(self, action: str, kind: str, prefix: str) -> bool:
        """Return whether the principal is allowed an action on all names with a prefix."""
        ...

    def may_some(self, action: str, kind: str) -> bool:
        """Return whether the principal is allowed an action on some names of a kind."""
        ...

    def patterns(self, kind: str) -> list[str]:
        """Return the patterns with which rules allow the principal something."""
        ...

    @property
    def principal(self) -> str:
        """The principal, such as `user:alice`."""
        ...

    @property
    def roles(self) -> tuple[str, ...]:
        """The roles of the principal."""
        ...


class _OfTopic(Protocol):
    @property
    def topic_id(self) -> bytes: ...


class _OfQueue(Protocol):
    @property
    def queue_id(self) -> bytes: ...


class _OfGroup(Protocol):
    @property
    def group_id(self) -> str: ...


class _OfTopics(Protocol):
    @property
    def topics(self) -> list[str] | None: ...


class _MaybeOfJournals(Protocol):
    @property
    def from_journals(self) -> bool: ...


Needs = Callable[[Any, Sight], Iterable[Need]]
"""Returns the needs of a message; the first that is not met decides the answer."""


def _no_bytes(_: object) -> int:
    return 0


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Items:
    """A list in a request, each item of which succeeds or fails alone."""

    items: str
    """Field of the request."""
    results: str
    """Field of the reply, in the order of the items."""
    need: Callable[[Any, Any, ClusterState], Need | None] = lambda _item, _message, _state: None
    """Returns the need of an item of a request; `None` for an unknown id, which the handler
    reports. An id that is allowed once is allowed until rules change."""
    needs: Needs | None = None
    """The same for items that are named: returns all needs of one, decided each time."""
    denied: Callable[[Any, ErrorDetail], object]
    """Returns the result of an item that failed with an error."""
    purpose: Callable[[Any], Hashable] | None = None
    """Returns what of the request the need depends on, besides the item's `topic_id`;
    `None` for nothing."""
    sent_bytes: Callable[[Any], int] = _no_bytes
    """Returns the length of an item's part of the attachment of the request."""
    result_bytes: Callable[[Any], int] = _no_bytes
    """Returns the length of a result's part of the attachment of the reply."""
    at_once: Mapping[str, object] = field(default_factory=dict[str, object])
    """Fields of a request without its denied items: it waits for nothing."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """What one API needs of a client."""

    needs: Needs | None = None
    """Of the request as a whole."""
    remembered: Callable[[Any], Hashable] | None = None
    """Returns the ids on which alone the needs depend: allowed once, allowed until rules change."""
    items: Items | None = None
    shown: Callable[[Any, Any, Sight], object] | None = None
    """Returns a reply, of a request, without what the principal may not see."""
    is_kept: bool = False
    """Whether needs are checked again when the reply is made: it acknowledges or delivers."""
    is_open: bool = False
    """Whether every peer may send it."""
    is_of_gateways: bool = False
    """Whether the handler decides, about the gateway and not about the user that it acts for."""
    is_of_nodes: bool = False
    """Whether only nodes of the cluster may send it; no rule can allow it to others."""


OPEN: Final = Requirement(is_open=True)
OF_NODES: Final = Requirement(is_of_nodes=True)


# -- needs by name ----------------------------------------------------------------------------


def topic(action: str, name: str) -> Need:
    """Return the need of an action on a topic."""
    return Need(Resource(action, "topic", name), lambda: unknown_topic(name))


def queue(action: str, name: str) -> Need:
    """Return the need of an action on a queue."""
    return Need(Resource(action, "queue", name), lambda: unknown_queue(name))


def on_cluster(action: str) -> Requirement:
    """Return the requirement of an action on the cluster."""
    need = Need(cluster_action(action))
    return Requirement(needs=lambda _message, _sight: (need,))


def _on_topic(action: str) -> Requirement:
    return Requirement(needs=lambda message, _: (topic(action, message.name),))


def _on_group(action: str, *, items: "Items | None" = None, is_kept: bool = False) -> Requirement:
    def needs(message: _OfGroup, _: Sight) -> Iterable[Need]:
        return (Need(Resource(action, "group", message.group_id)),)

    return Requirement(needs=needs, items=items, is_kept=is_kept)


def _create_topic(message: topics.CreateTopicRequest, _: Sight) -> Iterable[Need]:
    yield Need(Resource("create", "topic", message.name))


def _describe_topics(message: _OfTopics, sight: Sight) -> Iterable[Need]:
    """Need each name, up to the first that does not exist: the handler reports that one."""
    for name in message.topics or ():
        if not _sees_topic(sight, name):
            yield topic(DESCRIBE, name)
        if not sight.state.catalog.has_topic(name):
            return


def _describe_queues(message: queue_admin.DescribeQueuesRequest, sight: Sight) -> Iterable[Need]:
    for name in message.queues or ():
        yield queue(DESCRIBE, name)
        if not sight.state.catalog.has_queue(name):
            return


# -- needs by id ------------------------------------------------------------------------------


def topic_of_id(action: str, topic_id: bytes, state: ClusterState) -> Need | None:
    """Return the need of an action on the topic of an id; `None` if no topic has it."""
    found = state.catalog.topic_by_id(topic_id)
    if found is None:
        return None
    if not found.is_internal:
        resource = Resource(action, "topic", found.name)
    elif found.queue is not None:
        # The handler refuses the journal, and names the queue.
        resource = Resource(DESCRIBE, "queue", found.queue_name)
    else:
        source = state.catalog.topic_by_id(found.source_id)
        resource = Resource(DESCRIBE, "topic", "" if source is None else source.name)
    return Need(resource, lambda: unknown_topic_id(topic_id))


def queue_of_id(action: str, queue_id: bytes, state: ClusterState) -> Need | None:
    """Return the need of an action on the queue of an id; `None` if no queue has it."""
    found = state.catalog.topic_by_id(queue_id)
    if found is None or found.queue is None:
        return None
    return Need(Resource(action, "queue", found.queue_name), lambda: unknown_queue_id(queue_id))


def _by_topic_id(action: str) -> Requirement:
    def needs(message: _OfTopic, sight: Sight) -> Iterable[Need]:
        need = topic_of_id(action, message.topic_id, sight.state)
        return () if need is None else (need,)

    return Requirement(needs=needs)


def _by_queue_id(action: str, *, is_kept: bool = False) -> Requirement:
    def needs(message: _OfQueue, sight: Sight) -> Iterable[Need]:
        need = queue_of_id(action, message.queue_id, sight.state)
        return () if need is None else (need,)

    return Requirement(needs=needs, remembered=lambda message: message.queue_id, is_kept=is_kept)


def _receive(message: queues.ReceiveRequest, sight: Sight) -> Iterable[Need]:
    actions = ("receive", "settle") if message.settlements else ("receive",)
    for action in actions:
        need = queue_of_id(action, message.queue_id, sight.state)
        if need is not None:
            yield need


def _hot_keys(message: hot_keys.HotKeysRequest, sight: Sight) -> Iterable[Need]:
    need = queue_of_id("peek", message.topic_id, sight.state) or topic_of_id(
        "read", message.topic_id, sight.state
    )
    return () if need is None else (need,)


def _read(item: _OfTopic, message: _MaybeOfJournals, state: ClusterState) -> Need | None:
    """Need `read` of a topic, or `peek` of a queue for its history."""
    if message.from_journals:
        return queue_of_id("peek", item.topic_id, state)
    return topic_of_id("read", item.topic_id, state)


def _offsets(item: _OfTopic, message: _MaybeOfJournals, state: ClusterState) -> Need | None:
    """Need `describe` of a topic, or `peek` of a queue for its history."""
    if message.from_journals:
        return queue_of_id("peek", item.topic_id, state)
    return topic_of_id(DESCRIBE, item.topic_id, state)


def _write(item: _OfTopic, _: object, state: ClusterState) -> Need | None:
    return topic_of_id("write", item.topic_id, state)


def _commit(item: groups.PartitionCommit, _: object, state: ClusterState) -> Need | None:
    need = topic_of_id("read", item.topic_id, state)
    return need and need._replace(unknown=_unknown_partition(item.partition))


def _unknown_partition(number: int) -> Callable[[], BrokerError]:
    return lambda: UnknownTopicIdError(f"partition {number} of this topic id is not known here")


# -- queues, dead letters, redrives -----------------------------------------------------------


def _dead_letters_to(config: Mapping[str, str]) -> Iterable[Need]:
    """Need to send to the dead-letter queue: the moves act for the principal that sets it."""
    name = config.get("dead_letter_queue", _NO_DEAD_LETTERS)
    if name != _NO_DEAD_LETTERS:
        yield Need(Resource("send", "queue", name))


def _create_queue(message: queue_admin.CreateQueueRequest, sight: Sight) -> Iterable[Need]:
    """Need to create the topic too, or to read and write it: senders and receivers do both."""
    yield Need(Resource("create", "queue", message.name))
    name = message.topic
    is_there = sight.state.catalog.has_topic(name)
    if not (is_there and _sees(sight, "topic", name)):
        yield Need(Resource("create", "topic", name))
    if is_there:
        yield topic("read", name)
        yield topic("write", name)
    yield from _dead_letters_to(message.config)


def _journal_topic(sight: Sight, name: str) -> str:
    catalog = sight.state.catalog
    found = catalog.topic_by_id(catalog.journal(name).source_id)
    return "" if found is None else found.name


def _alter_queue(message: queue_admin.AlterQueueRequest, _: Sight) -> Iterable[Need]:
    yield queue("alter", message.name)
    yield from _dead_letters_to(message.set_config)


def _delete_queue(message: queue_admin.DeleteQueueRequest, sight: Sight) -> Iterable[Need]:
    yield queue("delete", message.name)
    catalog = sight.state.catalog
    if message.with_topic and catalog.has_queue(message.name):
        yield topic("delete", _journal_topic(sight, message.name))
    if message.detach_sources and catalog.has_queue(message.name):
        for journal in catalog.dead_letter_sources(message.name):
            yield queue("alter", journal.queue_name)


def _redrive(message: queues.RedriveRequest, sight: Sight) -> Iterable[Need]:
    """Need `redrive`, and to send where the messages go, which they do for this principal."""
    state = sight.state
    need = queue_of_id("redrive", message.queue_id, state)
    if need is None:
        return
    yield need
    if message.is_cancelled:
        return
    if message.destination is not None:
        target = topic_of_id("write", message.destination, state)
        if target is not None and not _sends_to(sight, target.resource.name):
            yield target
        return
    if message.only_sources:
        for journal in state.catalog.dead_letter_sources(need.resource.name):
            yield Need(Resource("send", "queue", journal.queue_name))
        return
    # Headers of the messages name their sources, and a sender can write any name into them.
    if not sight.may_all("write", "topic", ""):
        yield Need(Resource("write", "topic", ALL))


def _sends_to(sight: Sight, name: str) -> bool:
    """Return whether a principal may send to some queue on a topic."""
    catalog = sight.state.catalog
    return any(
        sight.may(Resource("send", "queue", journal.queue_name))
        for journal in catalog.journals_of(catalog.topic(name).topic_id)
    )


# -- groups, transactions, producers ----------------------------------------------------------

_GLOB_CHARS: Final = "*?["


def _join(message: groups.GroupHeartbeatRequest, sight: Sight) -> Iterable[Need]:
    yield Need(Resource("join", "group", message.group_id))
    subscription = message.subscription
    if subscription is None:
        return
    for name in subscription.topics:
        yield Need(Resource("read", "topic", name))
    for glob in () if subscription.pattern is None else subscription.pattern.split(","):
        stem = glob[: min((glob.find(each) for each in _GLOB_CHARS if each in glob), default=None)]
        if stem == glob:
            yield Need(Resource("read", "topic", glob))
        elif not sight.may_all("read", "topic", stem):
            yield Need(Resource("read", "topic", stem + ALL))


def _begin(message: transactions.BeginTransactionRequest, _: Sight) -> Iterable[Need]:
    yield Need(Resource("begin", "staged", message.name))
    for name in message.topics:
        yield topic("write", name)


def _stage(message: transactions.StageRequest, sight: Sight) -> Iterable[Need]:
    name = sight.state.transactions.name_of(message.number)
    # The number of another principal's transaction is answered as one that is not open.
    return () if name is None else (Need(Resource("begin", "staged", name)),)


def _stage_one(item: _OfTopic, _: object, state: ClusterState) -> Need | None:
    staging = state.catalog.topic_by_id(item.topic_id)
    if staging is None or staging.staging_of is None:
        return topic_of_id("write", item.topic_id, state)
    source = state.catalog.topic_by_id(staging.staging_of)
    name = "" if source is None else source.name
    return Need(Resource("write", "topic", name), lambda: unknown_topic_id(item.topic_id))


def _commit_transaction(
    message: transactions.CommitTransactionRequest, sight: Sight
) -> Iterable[Need]:
    yield Need(Resource("commit", "staged", message.name))
    for topic_id in dict.fromkeys(part.topic_id for part in message.parts):
        need = topic_of_id("write", topic_id, sight.state)
        if need is not None:
            yield need


def _abort(message: transactions.AbortTransactionRequest, _: Sight) -> Iterable[Need]:
    yield Need(Resource("abort", "staged", message.name))


def _init_producer(_: object, sight: Sight) -> Iterable[Need]:
    """Need to be allowed any append: producer ids are a resource of the whole cluster."""
    if not any(
        sight.may_some(action, kind)
        for action, kind in (("write", "topic"), ("send", "queue"), ("begin", "staged"))
    ):
        yield Need(Resource("write", "topic", ALL))


def _reset(message: groups.ResetOffsetsRequest, sight: Sight) -> Iterable[Need]:
    yield Need(Resource("reset", "group", message.group_id))
    for item in {each.topic_id: each for each in message.partitions}.values():
        need = topic_of_id("read", item.topic_id, sight.state)
        if need is not None:
            yield need._replace(unknown=_unknown_partition(item.partition))


# -- replies ----------------------------------------------------------------------------------


def sees(sight: Sight, kind: str, name: str) -> bool:
    """Return whether a principal sees that something exists."""
    return _sees_topic(sight, name) if kind == "topic" else _sees(sight, kind, name)


def _sees(sight: Sight, kind: str, name: str) -> bool:
    return sight.may(Resource(DESCRIBE, kind, name))


def _sees_topic(sight: Sight, name: str) -> bool:
    """Return whether a principal sees a topic: by itself, or as that of a queue that it sees."""
    if _sees(sight, "topic", name):
        return True
    catalog = sight.state.catalog
    return catalog.has_topic(name) and any(
        _sees(sight, "queue", journal.queue_name)
        for journal in catalog.journals_of(catalog.topic(name).topic_id)
    )


def _why_unknown(sight: Sight, name: str) -> BrokerError | None:
    """Return the error for a name in METADATA that is hidden; `None` for one that is seen."""
    queue_name, staged = queue_of_journal(name), topic_of_staging(name)
    if queue_name is not None:
        return None if _sees(sight, "queue", queue_name) else unknown_queue(queue_name)
    if staged is not None:
        is_seen = sight.may(Resource("write", "topic", staged))
        return None if is_seen else unknown_topic(staged)
    return None if _sees_topic(sight, name) else unknown_topic(name)


def _shown_metadata(
    message: metadata.MetadataRequest, reply: metadata.MetadataReply, sight: Sight
) -> object:
    shown: list[metadata.TopicMetadata] = []
    for each in reply.topics:
        error = _why_unknown(sight, each.name)
        if error is None:
            shown.append(each)
        elif message.topics is not None:
            shown.append(metadata.TopicMetadata(each.name, b"", [], error.to_wire()))
    return msgspec.structs.replace(reply, topics=shown)


def _shown_topics(
    _: object, reply: topics.DescribeTopicsReply | topic_usage.TopicUsageReply, sight: Sight
) -> object:
    """Leave out topics that a principal does not see."""
    return msgspec.structs.replace(
        reply, topics=[each for each in reply.topics if _sees_topic(sight, each.name)]
    )


def _shown_offsets(
    message: offset_ranges.ListOffsetsRequest, reply: offset_ranges.ListOffsetsReply, sight: Sight
) -> object:
    def is_shown(name: str) -> bool:
        if message.from_journals:
            return sight.may(Resource("peek", "queue", name))
        return _sees_topic(sight, name)

    return msgspec.structs.replace(
        reply, topics=[each for each in reply.topics if is_shown(each.name)]
    )


def _shown_queues(_: object, reply: queue_admin.DescribeQueuesReply, sight: Sight) -> object:
    shown = [
        msgspec.structs.replace(
            each,
            dead_letters_of=[name for name in each.dead_letters_of if _sees(sight, "queue", name)],
        )
        for each in reply.queues
        if _sees(sight, "queue", each.name)
    ]
    return msgspec.structs.replace(reply, queues=shown)


def _shown_added(_: object, reply: topics.AddPartitionsReply, sight: Sight) -> object:
    return msgspec.structs.replace(
        reply, queues=[name for name in reply.queues if _sees(sight, "queue", name)]
    )


def _shown_groups(_: object, reply: groups.ListGroupsReply, sight: Sight) -> object:
    return msgspec.structs.replace(
        reply, groups=[each for each in reply.groups if _sees(sight, "group", each.group_id)]
    )


def _shown_described_groups(_: object, reply: groups.DescribeGroupsReply, sight: Sight) -> object:
    return msgspec.structs.replace(
        reply, groups=[_shown_group(each, sight) for each in reply.groups]
    )


def _shown_group(group: groups.DescribedGroup, sight: Sight) -> groups.DescribedGroup:
    if not _sees(sight, "group", group.group_id):
        error = UnknownGroupError(f"there is no group {group.group_id!r}").to_wire()
        return groups.DescribedGroup(group.group_id, "", "", 0, 0, [], [], error)
    members: list[groups.DescribedMember] = []
    for each in group.members:
        seen = [name for name in each.subscription.topics if _sees_topic(sight, name)]
        subscription = msgspec.structs.replace(each.subscription, topics=seen)
        members.append(msgspec.structs.replace(each, subscription=subscription))
    return msgspec.structs.replace(group, members=members)


def _shown_transactions(
    _: object, reply: transactions.ListTransactionsReply, sight: Sight
) -> object:
    shown = [each for each in reply.transactions if _sees(sight, "staged", each.name)]
    return msgspec.structs.replace(reply, transactions=shown)


def _shown_access(_: object, reply: access.ListAccessReply, sight: Sight) -> object:
    """Leave a principal without `access` its own rules and roles."""
    if sight.may(cluster_action("access")):
        return reply
    subjects = {sight.principal, ALL, *(f"role:{role}" for role in sight.roles)}
    return access.ListAccessReply(
        [each for each in reply.rules if each.principal in subjects],
        [
            access.RoleDescription(each.name, [sight.principal.removeprefix("user:")])
            for each in reply.roles
            if each.name in sight.roles
        ],
    )


def _list_quotas(message: quotas.ListQuotasRequest, sight: Sight) -> Iterable[Need]:
    """Need `quotas`, but for the quotas of the principal itself."""
    if message.principals != [sight.principal]:
        yield Need(cluster_action("quotas"))


def _explain(message: access.ExplainAccessRequest, sight: Sight) -> Iterable[Need]:
    """Need `access`, but for a question of a principal about itself."""
    if message.principal != sight.principal or message.roles:
        yield Need(cluster_action("access"))


def _shown_names(kind: str) -> Callable[[Any, Any, Sight], object]:
    """Return the page that a principal sees, found by its patterns and not by all names."""

    def shown(message: names.ListNamesRequest, _: object, sight: Sight) -> object:
        catalog = sight.state.catalog
        index = catalog.topic_names if kind == "topic" else catalog.queue_names
        found: list[str] = []
        patterns = [*sight.patterns(kind), AUDIT_TOPIC] if kind == "topic" else sight.patterns(kind)
        for name in _matching(index, patterns, message):
            if name > message.after and _sees(sight, kind, name):
                found.append(name)
                if len(found) > message.limit:
                    break
        return names.ListNamesReply(found[: message.limit], len(found) > message.limit)

    return shown


def _matching(
    index: NameIndex, patterns: Iterable[str], message: names.ListNamesRequest
) -> Iterable[str]:
    """Return the names of an index that match a pattern and the request, in order, each once."""
    last = message.after
    # A prefix sorts before all names with it, and before all longer prefixes.
    for pattern in sorted(patterns, key=lambda each: each.removesuffix(ALL)):
        stem = pattern.removesuffix(ALL)
        if stem == pattern:
            page, _ = index.page(prefix=stem, after=last, limit=1)
            if page == [stem] and stem.startswith(message.prefix):
                yield stem
                last = stem
        elif stem.startswith(message.prefix) or message.prefix.startswith(stem):
            has_more = True
            while has_more:
                prefix = max(stem, message.prefix, key=len)
                page, has_more = index.page(prefix=prefix, after=last, limit=_PAGE)
                yield from page
                last = page[-1] if page else last


_PAGE: Final = 1_000
_NO_DEAD_LETTERS: Final = "none"


# -- the table --------------------------------------------------------------------------------

_PRODUCED: Final = Items(
    items="batches",
    results="results",
    need=_write,
    denied=lambda _, error: produce.PartitionAppended(0, 0, 0, error),
    sent_bytes=lambda item: int(item.batch_bytes),
)
_FETCHED: Final = Items(
    items="partitions",
    results="results",
    need=_read,
    denied=lambda _, error: fetch.PartitionFetched(0, 0, 0, error),
    purpose=lambda message: message.from_journals,
    result_bytes=lambda result: int(result.batch_bytes),
    at_once={"max_wait_ms": 0},
)
_LISTED: Final = Items(
    items="partitions",
    results="partitions",
    need=_offsets,
    denied=lambda _, error: offset_ranges.PartitionOffsets(
        0, 0, 0, has_caught_up=False, error=error
    ),
    purpose=lambda message: message.from_journals,
)
_COMMITTED: Final = Items(
    items="offsets",
    results="results",
    need=_commit,
    denied=lambda _, error: groups.PartitionCommitted(None, error=error),
)

_CREATED: Final = Items(
    items="queues",
    results="results",
    needs=_create_queue,
    denied=lambda _, error: queue_admin.QueueCreated(b"", b"", error),
)

_BY_API: Final[dict[Api[Any, Any], Requirement]] = {
    api.HELLO: OPEN,
    api.PROVE_NODE: OPEN,
    api.AUTHENTICATE: OPEN,
    api.METADATA: Requirement(shown=_shown_metadata),
    # -- topics --
    api.CREATE_TOPIC: Requirement(needs=_create_topic),
    api.DESCRIBE_TOPICS: Requirement(needs=_describe_topics, shown=_shown_topics),
    api.LIST_TOPICS: Requirement(shown=_shown_names("topic")),
    api.TOPIC_USAGE: Requirement(needs=_describe_topics, shown=_shown_topics),
    api.ALTER_TOPIC: _on_topic("alter"),
    api.ADD_PARTITIONS: Requirement(needs=_on_topic("alter").needs, shown=_shown_added),
    api.DELETE_TOPIC: _on_topic("delete"),
    api.DELETE_RECORDS: _by_topic_id("delete"),
    api.HOT_KEYS: Requirement(needs=_hot_keys),
    # -- records --
    api.INIT_PRODUCER: Requirement(needs=_init_producer),
    api.PRODUCE: Requirement(items=_PRODUCED, is_kept=True),
    api.FETCH: Requirement(items=_FETCHED, is_kept=True),
    api.LIST_OFFSETS: Requirement(items=_LISTED, shown=_shown_offsets),
    api.DESCRIBE_PRODUCER: _by_topic_id("write"),
    # -- groups --
    api.GROUP_HEARTBEAT: Requirement(needs=_join),
    api.COMMIT_OFFSETS: _on_group("commit", items=_COMMITTED, is_kept=True),
    api.FETCH_OFFSETS: _on_group(DESCRIBE),
    api.LIST_GROUPS: Requirement(shown=_shown_groups),
    api.DESCRIBE_GROUPS: Requirement(shown=_shown_described_groups),
    api.RESET_OFFSETS: Requirement(needs=_reset),
    api.ALTER_GROUP: _on_group("alter"),
    api.DELETE_GROUP: _on_group("delete"),
    # -- queues --
    api.CREATE_QUEUE: Requirement(needs=_create_queue),
    api.CREATE_QUEUES: Requirement(items=_CREATED),
    api.DESCRIBE_QUEUES: Requirement(needs=_describe_queues, shown=_shown_queues),
    api.LIST_QUEUES: Requirement(shown=_shown_names("queue")),
    api.ALTER_QUEUE: Requirement(needs=_alter_queue),
    api.DELETE_QUEUE: Requirement(needs=_delete_queue),
    api.SEND: _by_queue_id("send", is_kept=True),
    api.RECEIVE: Requirement(
        needs=_receive,
        remembered=lambda message: (message.queue_id, bool(message.settlements)),
        is_kept=True,
    ),
    api.END_RECEIVES: _by_queue_id("receive"),
    api.SETTLE: _by_queue_id("settle", is_kept=True),
    api.PEEK: _by_queue_id("peek", is_kept=True),
    api.COUNT_MESSAGES: _by_queue_id(DESCRIBE),
    api.PURGE: _by_queue_id("purge"),
    api.QUEUE_SEEK: _by_queue_id("seek"),
    api.REDRIVE: Requirement(needs=_redrive),
    api.DESCRIBE_REDRIVE: _by_queue_id(DESCRIBE),
    api.CANCEL_SCHEDULED: _by_queue_id("send"),
    api.GET_PURGE_OFFSET: OF_NODES,
    # -- transactions --
    api.BEGIN_TRANSACTION: Requirement(needs=_begin),
    api.STAGE: Requirement(needs=_stage, items=replace(_PRODUCED, need=_stage_one), is_kept=True),
    api.COMMIT_TRANSACTION: Requirement(needs=_commit_transaction, is_kept=True),
    api.ABORT_TRANSACTION: Requirement(needs=_abort),
    api.LIST_TRANSACTIONS: Requirement(shown=_shown_transactions),
    api.FORGET_TRANSACTIONS: on_cluster("alter"),
    # -- the cluster --
    api.DESCRIBE_CLUSTER: on_cluster(DESCRIBE),
    api.DESCRIBE_CONFIG: on_cluster(DESCRIBE),
    api.LIST_REASSIGNMENTS: on_cluster(DESCRIBE),
    api.SAFE_TO_STOP: on_cluster(DESCRIBE),
    api.LIST_CERTIFICATES: on_cluster(DESCRIBE),
    api.READ_METRICS: on_cluster(DESCRIBE),
    api.ALTER_CLUSTER_CONFIG: on_cluster("alter"),
    api.UPDATE_FEATURES: on_cluster("alter"),
    api.ACKNOWLEDGE_EVENTS: on_cluster("alter"),
    api.ELECT_LEADERS: on_cluster("move"),
    api.REASSIGN: on_cluster("move"),
    api.DRAIN_BROKER: on_cluster("move"),
    api.UNREGISTER_BROKER: on_cluster("unregister"),
    # -- users, access --
    api.ALTER_USERS: on_cluster("users"),
    api.LIST_USERS: on_cluster("users"),
    api.ALTER_ACCESS_KEYS: on_cluster("users"),
    api.LIST_ACCESS_KEYS: on_cluster("users"),
    api.GET_SIGNING_KEY: on_cluster("impersonate"),
    api.IMPERSONATE: Requirement(is_of_gateways=True),
    api.ALTER_QUOTAS: on_cluster("quotas"),
    api.LIST_QUOTAS: Requirement(needs=_list_quotas),
    api.ALTER_KEYS: on_cluster("keys"),
    api.LIST_KEYS: on_cluster("keys"),
    api.ALTER_ACCESS: on_cluster("access"),
    api.LIST_ACCESS: Requirement(shown=_shown_access),
    api.EXPLAIN_ACCESS: Requirement(needs=_explain),
    # -- nodes --
    api.PEER_STATUS: OF_NODES,
    api.RAFT: OF_NODES,
    api.AWAIT_METADATA: OF_NODES,
    api.AWAIT_APPENDED: OF_NODES,
    api.RAFT_SNAPSHOT: OF_NODES,
    api.FORWARD_COMMAND: OF_NODES,
    api.BROKER_HEARTBEAT: OF_NODES,
    api.JOIN: OF_NODES,
    api.REPLICA_FETCH: OF_NODES,
    api.REPLICA_DURABLE: OF_NODES,
    api.REPLICA_READ: OF_NODES,
}

REQUIREMENTS: Final = {int(each.key): requirement for each, requirement in _BY_API.items()}
"""The requirement of every API, by its key; a test fails for an API without one."""
