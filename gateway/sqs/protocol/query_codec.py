"""The protocol AWS Query: parameters are a form in the body or in the query string, replies XML.

Pure: no clock, no I/O. Source: "Making Query API requests using AWS query protocol in Amazon SQS"
of the Amazon SQS Developer Guide, and the models of SDKs until November 2023. Lists and maps are
flattened: `Attribute.1.Name`, `MessageAttribute.1.Value.StringValue`.
"""

import re
from collections.abc import Callable
from functools import cache
from typing import Final, NamedTuple, TypeAlias, final
from urllib.parse import parse_qsl

import msgspec
from msgspec import inspect

from tidelog.gateway.sqs.http.messages import HttpRequest, HttpResponse
from tidelog.gateway.sqs.protocol.codec import CALLS, DecodedRequest, SqsCodec, mismatch
from tidelog.gateway.sqs.protocol.errors import (
    INVALID_ACTION,
    MALFORMED_INPUT,
    MISSING_ACTION,
    NO_QUEUE_TEXT,
    QUEUE_DOES_NOT_EXIST,
    UNKNOWN_OPERATION,
    SqsError,
)
from tidelog.gateway.sqs.protocol.replies import SqsReply

CONTENT_TYPE: Final = "text/xml"
_XMLNS: Final = "http://queue.amazonaws.com/doc/2012-11-05/"
_DECLARATION: Final = '<?xml version="1.0"?>'
_WITHOUT_QUEUE: Final = frozenset({"CreateQueue", "ListQueues"})
"""Actions that the endpoint of a queue refuses."""
_PARTS_MAX: Final = 6
"""Parts of the longest name: `SendMessageBatchRequestEntry.1.MessageAttribute.1.Value.DataType`."""

_PARAMETERS_MAX: Final = 2_000
"""Parameters of a request: a batch of ten messages with ten attributes each has 350."""
_DIGITS_MAX: Final = 9
"""Digits of the number of an entry."""
_SPECIAL: Final = re.compile(r'[&<>"\x00-\x08\x0b\x0c\r\x0e-\x1f\ud800-\udfff\ufffe\uffff]')
_ESCAPES: Final = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "\r": "&#xD;"}

Node: TypeAlias = "str | dict[str, Node]"
"""Parameters by the parts of their names."""
Value: TypeAlias = "str | list[Value] | dict[str, Value]"
"""What msgspec converts into a request."""
Written: TypeAlias = "str | int | list[Written] | dict[str, Written]"
"""What msgspec makes of a reply; bytes are in Base64."""
Reading: TypeAlias = "Value | None"
"""A value; `None` where a value is given and parts are expected, or parts instead of a value."""
Reader: TypeAlias = Callable[[Node], Reading]
"""It returns a value from parameters."""


class _Member(NamedTuple):
    """One member of a structure."""

    name: str
    entry: str
    """Flattened name of a list or map; the cloud knows it by its plain name too."""
    read: Reader


class _Map(NamedTuple):
    """How a map is written."""

    entry: str
    """Name of an entry in the flattened form."""
    key: str
    value: str


_NO_MAP: Final = _Map("", "", "")
_MAPS: Final = {
    "Attributes": _Map("Attribute", "Name", "Value"),
    "MessageAttributes": _Map("MessageAttribute", "Name", "Value"),
    "MessageSystemAttributes": _Map("MessageSystemAttribute", "Name", "Value"),
    "Tags": _Map("Tag", "Key", "Value"),
    "tags": _Map("Tag", "Key", "Value"),
}
_LISTS: Final = {
    "AWSAccountIds": "AWSAccountId",
    "Actions": "ActionName",
    "AttributeNames": "AttributeName",
    "BinaryListValues": "BinaryListValue",
    "Failed": "BatchResultErrorEntry",
    "MessageAttributeNames": "MessageAttributeName",
    "MessageSystemAttributeNames": "MessageSystemAttributeName",
    "Messages": "Message",
    "QueueUrls": "QueueUrl",
    "Results": "ListMessageMoveTasksResultEntry",
    "StringListValues": "StringListValue",
    "TagKeys": "TagKey",
    "queueUrls": "QueueUrl",
}
"""Names of the elements of lists; those of batches begin with the name of the action."""


@final
class QueryCodec(SqsCodec):
    """AWS Query."""

    def decode(self, request: HttpRequest) -> DecodedRequest:
        """Return what a request asks for (`SqsCodec.decode`)."""
        path, _, query = request.target.partition(b"?")
        parameters = _parameters(query)
        if request.body:
            parameters.update(_parameters(request.body))
        action = parameters.get("Action")
        if not action:
            if request.method == b"GET":
                raise SqsError(UNKNOWN_OPERATION, "")
            raise SqsError(MISSING_ACTION, "No action was supplied with this request.")
        call = CALLS.get(action)
        at_queue = path.count(b"/") > 1
        if call is None or (at_queue and action in _WITHOUT_QUEUE):
            text = f"The action {action} is not valid for this endpoint."
            raise SqsError(INVALID_ACTION, text)
        if at_queue:
            host = request.headers.get(b"host", b"").decode("latin-1")
            parameters.setdefault("QueueUrl", f"http://{host}{path.decode('latin-1')}")
        values = _reader_of(action)(_tree(parameters))
        try:
            return DecodedRequest(action, msgspec.convert(values, call, strict=False))
        except msgspec.ValidationError as error:
            raise SqsError(MALFORMED_INPUT, mismatch(error)) from error

    def encode_reply(self, action: str, reply: SqsReply, request_id: str) -> HttpResponse:
        """Return the response to a request that succeeded (`SqsCodec.encode_reply`)."""
        parts = [f'{_DECLARATION}<{action}Response xmlns="{_XMLNS}">']
        if type(reply) is not SqsReply:
            content: list[str] = []
            _write_members(content, msgspec.to_builtins(reply), action)
            result = "".join(content)
            parts.append(
                f"<{action}Result>{result}</{action}Result>" if result else f"<{action}Result/>"
            )
        parts.append(
            f"<ResponseMetadata><RequestId>{request_id}</RequestId></ResponseMetadata>"
            f"</{action}Response>"
        )
        return _response(200, "".join(parts), request_id)

    def encode_error(self, error: SqsError, request_id: str) -> HttpResponse:
        """Return the response to a request that failed (`SqsCodec.encode_error`)."""
        shape = error.shape
        if shape is UNKNOWN_OPERATION:
            return _response(404, "<UnknownOperationException/>", request_id)
        text = error.message
        if shape is QUEUE_DOES_NOT_EXIST and text == NO_QUEUE_TEXT:
            text = "The specified queue does not exist for this wsdl version."
        fault = "Sender" if shape.is_senders_fault else "Receiver"
        content = (
            f'{_DECLARATION}<ErrorResponse xmlns="{_XMLNS}"><Error><Type>{fault}</Type>'
            f"<Code>{shape.query_code}</Code><Message>{_escaped(text)}</Message><Detail/></Error>"
            f"<RequestId>{request_id}</RequestId></ErrorResponse>"
        )
        return _response(shape.status, content, request_id)


def _response(status: int, content: str, request_id: str) -> HttpResponse:
    body = content.encode()
    return HttpResponse(status, CONTENT_TYPE, body, (("x-amzn-RequestId", request_id),))


def _parameters(form: bytes) -> dict[str, str]:
    """Return the parameters of a form."""
    if not form:
        return {}
    if form.count(b"&") >= _PARAMETERS_MAX:
        text = f"A request has at most {_PARAMETERS_MAX} parameters."
        raise SqsError(MALFORMED_INPUT, text)
    try:
        return dict(parse_qsl(form.decode("ascii"), keep_blank_values=True, errors="strict"))
    except UnicodeDecodeError as error:
        raise SqsError(MALFORMED_INPUT, "Parameters must be in UTF-8.") from error


def _tree(parameters: dict[str, str]) -> dict[str, Node]:
    """Return parameters by the parts of their names."""
    root: dict[str, Node] = {}
    for name, value in parameters.items():
        parts = name.split(".", _PARTS_MAX)
        node = root
        for part in parts[:-1]:
            child = node.get(part)
            if not isinstance(child, dict):
                child = node[part] = {}
            node = child
        node.setdefault(parts[-1], value)
    return root


@cache
def _reader_of(action: str) -> Reader:
    """Return the reader of the request of an action."""
    return _reader(inspect.type_info(CALLS[action]), action)


def _reader(kind: inspect.Type, action: str, form: _Map = _NO_MAP) -> Reader:
    """Return the reader of a type."""
    if isinstance(kind, inspect.UnionType):  # a type or `None`
        kind = next(one for one in kind.types if not isinstance(one, inspect.NoneType))
    if isinstance(kind, inspect.DictType):
        return _map_reader(form, _reader(kind.value_type, action))
    if isinstance(kind, inspect.StructType):
        return _structure_reader(kind, action)
    if isinstance(kind, inspect.ListType):
        return _list_reader(_reader(kind.item_type, action))
    return _scalar


def _structure_reader(kind: inspect.StructType, action: str) -> Reader:
    """Return the reader of a structure: parameters that it does not know are ignored."""
    members = [_member_of(field, action) for field in kind.fields]

    def read(node: Node) -> Reading:
        if isinstance(node, str):
            return None
        values: dict[str, Value] = {}
        for member in members:
            given = node.get(member.entry)
            if given is None:
                given = node.get(member.name)
            value = None if given is None else member.read(given)
            if value is not None:
                values[member.name] = value
        return values

    return read


def _member_of(field: inspect.Field, action: str) -> _Member:
    """Return a member of a structure."""
    name = field.encode_name
    form = _MAPS.get(name)
    if form is not None:
        return _Member(name, form.entry, _reader(field.type, action, form))
    entry = f"{action}RequestEntry" if name == "Entries" else _LISTS.get(name, name)
    return _Member(name, entry, _reader(field.type, action))


def _list_reader(read_element: Reader) -> Reader:
    """Return the reader of a flattened list; one element may have no number."""

    def read(node: Node) -> Reading:
        elements = [node] if isinstance(node, str) else _in_order(node)
        return [value for value in map(read_element, elements) if value is not None]

    return read


def _map_reader(form: _Map, read_value: Reader) -> Reader:
    """Return the reader of a flattened map; one entry may have no number."""

    def read(node: Node) -> Reading:
        if isinstance(node, str):
            return None
        values: dict[str, Value] = {}
        for entry in [node] if form.key in node else _in_order(node):
            key = None if isinstance(entry, str) else entry.get(form.key)
            if isinstance(entry, dict) and isinstance(key, str):
                value = read_value(entry.get(form.value, ""))
                values[key] = {} if value is None else value
        return values

    return read


def _scalar(node: Node) -> Reading:
    return node if isinstance(node, str) else None


def _in_order(entries: dict[str, Node]) -> list[Node]:
    """Return numbered entries in the order of their numbers."""
    numbered = [(int(number), node) for number, node in entries.items() if _is_number(number)]
    numbered.sort(key=lambda pair: pair[0])
    return [node for _, node in numbered]


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX


def _write_members(parts: list[str], members: dict[str, Written], action: str) -> None:
    """Write the members of a structure."""
    for name, value in members.items():
        form = _MAPS.get(name)
        if isinstance(value, list):
            element = f"{action}ResultEntry" if name == "Successful" else _LISTS[name]
            for one in value:
                _write(parts, element, one, action=action)
        elif form is not None and isinstance(value, dict):
            for key, one in value.items():
                parts.append(f"<{form.entry}><{form.key}>{_escaped(key)}</{form.key}>")
                _write(parts, form.value, one, action=action)
                parts.append(f"</{form.entry}>")
        else:
            _write(parts, name, value, action=action)


def _write(parts: list[str], name: str, value: Written, *, action: str) -> None:
    """Write one element."""
    if isinstance(value, dict):
        parts.append(f"<{name}>")
        _write_members(parts, value, action)
        parts.append(f"</{name}>")
    else:
        text = str(value).lower() if isinstance(value, bool) else str(value)
        parts.append(f"<{name}>{_escaped(text)}</{name}>")


def _escaped(text: str) -> str:
    """Return text as the content of an element.

    Parsers would change a carriage return. What XML cannot carry becomes U+FFFD: SQS refuses such
    messages, but other clients of the topic may have sent it.
    """
    return _SPECIAL.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    return _ESCAPES.get(found[0], "\ufffd")


QUERY: Final = QueryCodec()
