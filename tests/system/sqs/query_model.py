"""The model of SQS for botocore in the query protocol, which botocore itself had until 1.31.79.

Later versions have only JSON's model. The names that the query protocol adds are those of that
version, and of the examples in the Amazon SQS API Reference.
"""

import copy
from typing import Any, Final

_NAMESPACE: Final = "http://queue.amazonaws.com/doc/2012-11-05/"

_ITEMS: Final = {
    "AWSAccountIdList": "AWSAccountId",
    "ActionNameList": "ActionName",
    "AttributeNameList": "AttributeName",
    "BatchResultErrorEntryList": "BatchResultErrorEntry",
    "BinaryList": "BinaryListValue",
    "ChangeMessageVisibilityBatchRequestEntryList": "ChangeMessageVisibilityBatchRequestEntry",
    "ChangeMessageVisibilityBatchResultEntryList": "ChangeMessageVisibilityBatchResultEntry",
    "DeleteMessageBatchRequestEntryList": "DeleteMessageBatchRequestEntry",
    "DeleteMessageBatchResultEntryList": "DeleteMessageBatchResultEntry",
    "ListMessageMoveTasksResultEntryList": "ListMessageMoveTasksResultEntry",
    "MessageAttributeNameList": "MessageAttributeName",
    "MessageList": "Message",
    "MessageSystemAttributeList": "MessageSystemAttributeName",
    "QueueUrlList": "QueueUrl",
    "SendMessageBatchRequestEntryList": "SendMessageBatchRequestEntry",
    "SendMessageBatchResultEntryList": "SendMessageBatchResultEntry",
    "StringList": "StringListValue",
    "TagKeyList": "TagKey",
}
"""Names of the members of lists."""

_MAPS: Final = {
    "MessageBodyAttributeMap": ("MessageAttribute", "Name"),
    "MessageBodySystemAttributeMap": ("MessageSystemAttribute", "Name"),
    "MessageSystemAttributeMap": ("Attribute", "Name"),
    "QueueAttributeMap": ("Attribute", "Name"),
    "TagMap": ("Tag", "Key"),
}
"""Names of maps, and of the keys in them."""

_LISTS_OF_VALUES: Final = {
    "StringListValues": "StringListValue",
    "BinaryListValues": "BinaryListValue",
}

_CODES: Final = {
    "BatchEntryIdsNotDistinct": "AWS.SimpleQueueService.BatchEntryIdsNotDistinct",
    "BatchRequestTooLong": "AWS.SimpleQueueService.BatchRequestTooLong",
    "EmptyBatchRequest": "AWS.SimpleQueueService.EmptyBatchRequest",
    "InvalidBatchEntryId": "AWS.SimpleQueueService.InvalidBatchEntryId",
    "MessageNotInflight": "AWS.SimpleQueueService.MessageNotInflight",
    "PurgeQueueInProgress": "AWS.SimpleQueueService.PurgeQueueInProgress",
    "QueueDeletedRecently": "AWS.SimpleQueueService.QueueDeletedRecently",
    "QueueDoesNotExist": "AWS.SimpleQueueService.NonExistentQueue",
    "QueueNameExists": "QueueAlreadyExists",
    "TooManyEntriesInBatchRequest": "AWS.SimpleQueueService.TooManyEntriesInBatchRequest",
    "UnsupportedOperation": "AWS.SimpleQueueService.UnsupportedOperation",
}
"""Codes of errors, where they are not the names."""


def query_model(json_model: dict[str, Any]) -> dict[str, Any]:
    """Return the model of the query protocol for a model of the JSON protocol."""
    model = copy.deepcopy(json_model)
    metadata = model["metadata"]
    for name in ("jsonVersion", "targetPrefix", "awsQueryCompatible"):
        metadata.pop(name, None)
    metadata.update(protocol="query", protocols=["query"], xmlNamespace=_NAMESPACE)
    for operation in model["operations"].values():
        if "output" in operation:
            operation["output"]["resultWrapper"] = operation["output"]["shape"]
    shapes = model["shapes"]
    for name, item in _ITEMS.items():
        shapes[name]["member"]["locationName"] = item
    for name, (own, key) in _MAPS.items():
        shapes[name]["locationName"] = own
        shapes[name]["key"]["locationName"] = key
        shapes[name]["value"]["locationName"] = "Value"
    for name, code in _CODES.items():
        shapes[name]["error"] = {"code": code}
    _name_members(shapes)
    return model


def _name_members(shapes: dict[str, Any]) -> None:
    """Name the members of structures that are lists of values, or maps."""
    for shape in shapes.values():
        for name, member in shape.get("members", {}).items():
            if name in _LISTS_OF_VALUES:
                member["locationName"] = _LISTS_OF_VALUES[name]
            elif member["shape"] in _MAPS:
                member["locationName"] = _MAPS[member["shape"]][0]
