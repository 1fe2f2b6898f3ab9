"""Actions that create, find, list, purge and delete queues.

Shell: they ask brokers.
"""

import base64
import binascii
from bisect import insort
from typing import Final

import trio

from tidelog.client.admin.queue_batches import NewQueue
from tidelog.client.admin.queue_counts import DescribedQueue
from tidelog.gateway.sqs.actions.described import described, find
from tidelog.gateway.sqs.actions.queue_tags import check_tags
from tidelog.gateway.sqs.attributes import (
    OWN_LABELS,
    THROUGHPUT_LIMIT,
    AttributeChange,
    attributes_of,
    change_of,
    check_target,
    differing,
    new_attributes,
    switch,
    unknown_attribute,
)
from tidelog.gateway.sqs.caller import Caller
from tidelog.gateway.sqs.names import FIFO_SUFFIX, is_account, is_legal
from tidelog.gateway.sqs.protocol.errors import (
    INVALID_PARAMETER_VALUE,
    QUEUE_NAME_EXISTS,
    SqsError,
    invalid_value,
    missing_parameter,
    queue_does_not_exist,
)
from tidelog.gateway.sqs.protocol.replies import (
    DONE,
    QueueLocated,
    QueuesListed,
    SourceQueues,
    SqsReply,
)
from tidelog.gateway.sqs.protocol.requests import (
    CreateQueueCall,
    DeleteQueueCall,
    GetQueueUrlCall,
    ListDeadLetterSourceQueuesCall,
    ListQueuesCall,
    PurgeQueueCall,
)
from tidelog.wire.errors import (
    InvalidConfigError,
    InvalidRequestError,
    QueueExistsError,
    TopicExistsError,
    UnknownQueueError,
)

RESULTS_MAX: Final = 1000
OWNS_TOPIC: Final = f"{OWN_LABELS}owns-topic"
"""Label of a queue whose topic came with it: both are deleted together."""

_NO_NAME: Final = FIFO_SUFFIX[1:]
"""No queue behind a prefix has this name."""
_STANDARD_NAME: Final = (
    "Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length"
)
_FIFO_NAME: Final = (
    "The name of a FIFO queue can only include alphanumeric characters, hyphens, or underscores,"
    " must end with .fifo suffix and be 1 to 80 in length."
)


async def create_queue(caller: Caller, call: CreateQueueCall) -> QueueLocated:
    """Create a queue; one that exists with the same values of the given attributes is no error.

    Raises:
        SqsError: Name, attributes or tags are not legal, another queue has the name, or a strict
            front has deleted one of this name in the last minute.
    """
    name = call.queue_name
    if not name:
        raise missing_parameter("QueueName")
    attributes = dict(call.attributes or {})
    is_fifo = attributes.pop("FifoQueue", None)
    _check_name(name, is_fifo)
    change = change_of(
        attributes,
        caller.scope,
        is_fifo=is_fifo is not None,
        current=new_attributes(is_fifo=is_fifo is not None),
    )
    tags = call.tags or {}
    check_tags(name, tags, 0)
    queue = caller.scope.queue_named(name)
    there = await find(caller, queue)
    if there is None:
        if caller.settings.is_strict:
            caller.state.pauses.check_creation(queue, trio.current_time())
        change.labels |= tags
        there = await _create(caller, name, change, is_fifo=is_fifo is not None)
    if there is not None:
        _check_same(caller, there, call.attributes or {})
    return QueueLocated(caller.scope.url_of(name))


def _check_name(name: str, is_fifo: str | None) -> None:
    if is_fifo is not None and not switch("FifoQueue", is_fifo):
        # The cloud has the attribute for FIFO queues only.
        raise unknown_attribute("FifoQueue")
    if not is_legal(name) or name.endswith(FIFO_SUFFIX) != (is_fifo is not None):
        text = _STANDARD_NAME if is_fifo is None else _FIFO_NAME
        raise SqsError(INVALID_PARAMETER_VALUE, text)


async def _create(
    caller: Caller, name: str, change: AttributeChange, *, is_fifo: bool
) -> DescribedQueue | None:
    """Create a queue; return one that another request has created meanwhile."""
    queue, admin = caller.scope.queue_named(name), caller.client.admin
    await check_redrive(caller, queue, change, is_fifo=is_fifo)
    settings = change.settings
    if not is_fifo:
        settings["fair_delivery"] = "on"
        # A message is then invisible for its whole timeout, although a leader dies.
        settings["receive_acks"] = "all"
    elif change.scope is not None:
        settings["deduplication_scope"] = "group" if change.scope == "messageGroup" else "queue"
    labels = {**change.labels, OWNS_TOPIC: "true"}
    may_scale = not is_fifo or labels.get(THROUGHPUT_LIMIT) == "perMessageGroupId"
    partitions = caller.settings.partitions if may_scale else 1
    wanted = NewQueue(
        queue, None, partitions, fifo=is_fifo, labels=labels, settings=settings, new_topic=True
    )
    (created,) = await admin.create_queues([wanted])
    if isinstance(created.error, TopicExistsError):
        # What the topic has already was never sent to this queue.
        wanted = NewQueue(
            queue, start="latest", fifo=is_fifo, labels=change.labels, settings=settings
        )
        (created,) = await admin.create_queues([wanted])
    if isinstance(created.error, QueueExistsError):
        return await described(caller, queue)
    if isinstance(created.error, InvalidConfigError):
        raise SqsError(INVALID_PARAMETER_VALUE, str(created.error)) from created.error
    if created.error is not None:
        raise created.error
    caller.state.change(queue)
    return None


def _check_same(caller: Caller, there: DescribedQueue, asked: dict[str, str]) -> None:
    name = differing(asked, attributes_of(there, caller.scope), caller.scope)
    if name is not None:
        raise SqsError(
            QUEUE_NAME_EXISTS,
            f"A queue already exists with the same name and a different value for attribute {name}",
        )


async def check_redrive(
    caller: Caller, queue: str, change: AttributeChange, *, is_fifo: bool
) -> None:
    """Check the dead-letter queue of a new redrive policy.

    Raises:
        SqsError: It does not exist, is of the other kind, or does not allow this source.
    """
    if change.redrive is not None:
        target = await find(caller, change.redrive.target)
        if target is not None and target.name == queue:
            # Without another queue to move to, a message stays, as it does when it moves to itself.
            change.keep_to_itself(change.redrive.shown(caller.scope))
        check_target(change.redrive, target, caller.scope.arn_of_queue(queue), is_fifo=is_fifo)


async def get_queue_url(caller: Caller, call: GetQueueUrlCall) -> QueueLocated:
    """Return the URL of a queue that exists, or existed within the last seconds.

    Programs ask before many calls. As SQS: a queue that another front deletes may be found for a
    while (there for 60 s). A queue that is missing is never remembered.

    Raises:
        SqsError: There is no such queue.
    """
    name, owner = call.queue_name, call.queue_owner_aws_account_id
    if not name:
        raise missing_parameter("QueueName")
    if not is_legal(name) or (owner is not None and not is_account(owner)):
        raise queue_does_not_exist()
    queue = caller.scope.queue_named(name, owner)
    if caller.state.known(queue) is None:
        await caller.state.facts(queue)
    return QueueLocated(caller.scope.url_of(name, owner))


async def list_queues(caller: Caller, call: ListQueuesCall) -> QueuesListed:
    """List the queues of the caller's account and region.

    Raises:
        SqsError: The number of results or the token is not legal.
    """
    limit = _limit(call.max_results)
    first = caller.scope.prefix()
    prefix = first + (call.queue_name_prefix or "")
    after = _position(call.next_token)
    wanted = limit if call.max_results is None else limit + 1
    names: list[str] = []
    while len(names) < wanted:
        asked = min(wanted - len(names), RESULTS_MAX)
        page = await caller.client.admin.list_queues(prefix, after=after, limit=asked)
        rests = [queue[len(first) :] for queue in page]
        names += [rest for rest in rests if is_legal(rest) and not (first and rest == _NO_NAME)]
        if len(page) < asked:
            break
        after = _skipped(page[-1], first)
    has_more = len(names) > limit
    names = names[:limit]
    urls = [caller.scope.url_of(name) for name in names]
    return QueuesListed(urls or None, _token(first + names[-1]) if has_more else None)


def _skipped(queue: str, first: str) -> str:
    """Return a position behind a queue, and behind further ones of its account or region.

    Between the queues of this scope are those of others, perhaps many more: `a.x` is of the region
    `a`, while `a.fifo` is of this one.
    """
    head, dot, tail = queue[len(first) :].partition(".")
    if not dot or tail == _NO_NAME:
        return queue
    # No name has a `~`, so this is behind all that begin with less than `fifo`.
    before_fifo = f"{first}{head}.fifn~"
    return before_fifo if queue < before_fifo else f"{first}{head}.~"


async def list_dead_letter_source_queues(
    caller: Caller, call: ListDeadLetterSourceQueuesCall
) -> SourceQueues:
    """List the queues whose dead-letter queue is this one.

    Raises:
        SqsError: There is no such queue; the number of results or the token is not legal.
    """
    limit = _limit(call.max_results)
    after = _position(call.next_token)
    queue = await described(caller, caller.scope.queue_at(call.queue_url))
    sources = [*queue.dead_letters_of]
    if OWN_LABELS + "RedrivePolicy" in queue.labels:
        insort(sources, queue.name)
    sources = [name for name in sources if name > after]
    has_more = call.max_results is not None and len(sources) > limit
    shown = sources[:limit]
    places = [caller.scope.place_of(name) for name in shown]
    urls = [caller.scope.url_of(place.name, place.account) for place in places if place is not None]
    return SourceQueues(urls, _token(shown[-1]) if has_more else None)


def _limit(max_results: int | None) -> int:
    if max_results is not None and not 1 <= max_results <= RESULTS_MAX:
        raise invalid_value(
            max_results, "MaxResults", f"Must be between 1 and {RESULTS_MAX}, if provided."
        )
    return RESULTS_MAX if max_results is None else max_results


def _token(last: str) -> str:
    return base64.urlsafe_b64encode(last.encode()).decode()


def _position(token: str | None) -> str:
    """Return the last name of the page before."""
    if not token:
        return ""
    try:
        return base64.b64decode(token, altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError) as error:
        raise SqsError(INVALID_PARAMETER_VALUE, "Invalid or expired next token.") from error


async def purge_queue(caller: Caller, call: PurgeQueueCall) -> SqsReply:
    """Delete all messages of a queue.

    Raises:
        SqsError: There is no such queue, or a strict front has purged it in the last minute.
    """
    queue = caller.scope.queue_at(call.queue_url)
    pauses = caller.state.pauses
    if caller.settings.is_strict:
        place = caller.scope.place_of(queue)
        pauses.check_purge(queue, queue if place is None else place.name, trio.current_time())
    try:
        await caller.state.queue(queue).purge()
    except UnknownQueueError:
        caller.state.forget(queue)
        raise queue_does_not_exist() from None
    if caller.settings.is_strict:
        pauses.purged(queue, trio.current_time())
    return DONE


async def delete_queue(caller: Caller, call: DeleteQueueCall) -> SqsReply:
    """Delete a queue with its messages, and its topic if that came with it.

    Raises:
        SqsError: There is no such queue.
    """
    name = caller.scope.queue_at(call.queue_url)
    queue = await described(caller, name)
    admin = caller.client.admin
    owns_topic = OWNS_TOPIC in queue.labels and queue.topic == name
    try:
        try:
            await admin.delete_queue(name, with_topic=owns_topic, detach_sources=True)
        except InvalidRequestError:
            if not owns_topic:
                raise
            # Another queue on the topic has come since.
            await admin.delete_queue(name, detach_sources=True)
    except UnknownQueueError:
        raise queue_does_not_exist() from None
    finally:
        caller.state.forget(name)
    if caller.settings.is_strict:
        caller.state.pauses.deleted(name, trio.current_time())
    return DONE
