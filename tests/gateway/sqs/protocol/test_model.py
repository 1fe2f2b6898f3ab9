"""The messages are those of the vendor's model of the service, as SDKs have it."""

import gzip
import json
from pathlib import Path
from typing import Any, Final

import botocore
import msgspec
import pytest

from tidelog.gateway.sqs.protocol import errors, replies
from tidelog.gateway.sqs.protocol.codec import CALLS
from tidelog.gateway.sqs.protocol.errors import SERVICE, ErrorShape

_FILE: Final = Path(botocore.__file__).parent / "data/sqs/2012-11-05/service-2.json.gz"
_MODEL: Final[dict[str, Any]] = json.loads(gzip.decompress(_FILE.read_bytes()))
_SHAPES: Final = _MODEL["shapes"]
_REPLIES: Final = {
    "CancelMessageMoveTask": replies.MessageMoveCancelled,
    "ChangeMessageVisibilityBatch": replies.BatchDone,
    "CreateQueue": replies.QueueLocated,
    "DeleteMessageBatch": replies.BatchDone,
    "GetQueueAttributes": replies.QueueAttributes,
    "GetQueueUrl": replies.QueueLocated,
    "ListDeadLetterSourceQueues": replies.SourceQueues,
    "ListMessageMoveTasks": replies.MoveTasks,
    "ListQueueTags": replies.QueueTags,
    "ListQueues": replies.QueuesListed,
    "ReceiveMessage": replies.MessagesReceived,
    "SendMessage": replies.MessageSent,
    "SendMessageBatch": replies.BatchSent,
    "StartMessageMoveTask": replies.MoveTaskStarted,
}


def _check_structure(kind: msgspec.inspect.Type, shape: dict[str, Any]) -> None:
    """Check that a type has the members of a shape, and their types."""
    if isinstance(kind, msgspec.inspect.UnionType):
        kind = next(one for one in kind.types if not isinstance(one, msgspec.inspect.NoneType))
    match kind:
        case msgspec.inspect.StructType(fields=fields):
            assert shape["type"] == "structure"
            assert {field.encode_name for field in fields} == shape["members"].keys()
            for field in fields:
                member = shape["members"][field.encode_name]["shape"]
                _check_structure(field.type, _SHAPES[member])
        case msgspec.inspect.ListType(item_type=item):
            assert shape["type"] == "list"
            _check_structure(item, _SHAPES[shape["member"]["shape"]])
        case msgspec.inspect.DictType(value_type=value):
            assert shape["type"] == "map"
            _check_structure(value, _SHAPES[shape["value"]["shape"]])
        case msgspec.inspect.IntType():
            assert shape["type"] in {"integer", "long"}
        case msgspec.inspect.BoolType():
            assert shape["type"] == "boolean"
        case msgspec.inspect.BytesType():
            assert shape["type"] == "blob"
        case _:
            assert isinstance(kind, msgspec.inspect.StrType)
            assert shape["type"] == "string"


def test_the_actions_are_those_of_the_model() -> None:
    assert CALLS.keys() == _MODEL["operations"].keys()


@pytest.mark.parametrize("action", sorted(CALLS))
def test_requests_and_replies_have_the_members_of_the_model(action: str) -> None:
    operation = _MODEL["operations"][action]
    _check_structure(msgspec.inspect.type_info(CALLS[action]), _SHAPES[operation["input"]["shape"]])
    assert (action in _REPLIES) == ("output" in operation)
    if action in _REPLIES:
        _check_structure(
            msgspec.inspect.type_info(_REPLIES[action]), _SHAPES[operation["output"]["shape"]]
        )


def test_errors_of_the_service_are_declared_in_the_model() -> None:
    declared = {name for name, shape in _SHAPES.items() if shape.get("exception")}
    known = {shape for shape in vars(errors).values() if isinstance(shape, ErrorShape)}
    names = {shape.json_name for shape in known if shape.namespace == SERVICE}
    assert names <= declared
    # tidelog encrypts nothing, and `InvalidIdFormat` is no longer answered.
    missing = {name for name in declared - names if not name.startswith("Kms")}
    assert missing == {"InvalidIdFormat"}
