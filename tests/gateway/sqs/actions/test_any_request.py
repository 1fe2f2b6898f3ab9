"""Any request is answered, or refused for its own fault: none is a defect of the front."""

from pathlib import Path
from random import Random
from typing import Final

import msgspec
from msgspec import inspect

from tests.gateway.sqs.callers import BASE_URL, open_caller
from tidelog.gateway.sqs.actions.registry import ACTIONS
from tidelog.gateway.sqs.failures import error_of
from tidelog.gateway.sqs.protocol.codec import CALLS
from tidelog.gateway.sqs.protocol.json_codec import JSON
from tidelog.gateway.sqs.protocol.query_codec import QUERY
from tidelog.gateway.sqs.protocol.replies import MessagesReceived, MoveTaskStarted, SqsReply
from tidelog.gateway.sqs.protocol.requests import CreateQueueCall

REQUEST_COUNT: Final = 600
QUEUES: Final = {
    "a": {},
    "b.fifo": {"FifoQueue": "true", "ContentBasedDeduplication": "true"},
    "c": {},
}
ARN: Final = "arn:aws:sqs:us-east-1:000000000000:"
TEXTS: Final = (
    "", "a", "x" * 300, "ü", "\x00", "\U0001f600", "a b", "-1", "1", "9" * 20, "true", "All", ".*",
    "{}", "[]", f'{{"deadLetterTargetArn":"{ARN}c","maxReceiveCount":"3"}}',
    '{"deadLetterTargetArn":1,"maxReceiveCount":[]}', '{"redrivePermission":5}',
    f'{{"redrivePermission":"byQueue","sourceQueueArns":["{ARN}a"]}}', '{"Statement":[1]}',
    '{"Statement":[{"Effect":"Allow","Sid":5}]}', "String", "Number", "http://", "NaN", "\u0661",
)  # fmt: skip
NUMBERS: Final = (0, 0, 1, 1, 2, 5, -1, 11, 43_201, 1 << 31, 1 << 63, 10**30)
NAMES: Final = (
    "All", "AWSTraceHeader", "ContentBasedDeduplication", "DeduplicationScope", "DelaySeconds",
    "FifoQueue", "FifoThroughputLimit", "KmsMasterKeyId", "MaximumMessageSize", "Policy",
    "QueueArn", "RedriveAllowPolicy", "RedrivePolicy", "SqsManagedSseEnabled", "VisibilityTimeout",
)  # fmt: skip
USUAL: Final = {
    "QueueUrl": [f"{BASE_URL}/000000000000/{name}" for name in (*QUEUES, "missing")],
    "SourceArn": [ARN + name for name in (*QUEUES, "missing")],
    "DestinationArn": [ARN + name for name in QUEUES],
    "QueueName": [*QUEUES, "new", "new.fifo"],
    "Id": list("abcdefghij"),
    "DataType": ["String", "Number", "Binary"],
    "MessageBody": ["hello"],
    "MessageGroupId": ["g", "h"],
}
NEEDED: Final = {*USUAL, "Attributes", "Entries", "ReceiptHandle", "StringValue", "Tags"}


class Requests:
    """Requests by chance, of parameters that are mostly legal."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.usual = USUAL | {"ReceiptHandle": ["garbage"], "TaskHandle": ["garbage"]}

    def value(self, kind: inspect.Type, name: str = "") -> object:
        """Return a value that JSON can have; `None` for a parameter that is left out."""
        choice = self.random.choice
        result: object
        match kind:
            case inspect.UnionType(types=types):
                given = next(one for one in types if not isinstance(one, inspect.NoneType))
                is_absent = self.random.random() < (0.05 if name in NEEDED else 0.6)
                result = None if is_absent else self.value(given, name)
            case inspect.StructType(fields=fields):
                members = [(field.encode_name, field.type) for field in fields]
                values = {key: self.value(member, key) for key, member in members}
                result = {key: value for key, value in values.items() if value is not None}
            case inspect.ListType(item_type=item):
                result = [self.value(item, name) for _ in range(choice((0, 1, 1, 2, 11)))]
            case inspect.DictType(value_type=value):
                result = {choice(NAMES): self.value(value) for _ in range(choice((0, 1, 2)))}
            case inspect.IntType():
                result = 0 if name == "WaitTimeSeconds" else choice(NUMBERS)
            case inspect.StrType():
                is_usual = name in self.usual and self.random.random() < 0.75
                result = choice(self.usual[name] if is_usual else TEXTS)
            case _:  # bytes
                result = "AP8="
        return result

    def learn(self, reply: SqsReply) -> None:
        """Use handles of a reply in later requests."""
        if isinstance(reply, MessagesReceived):
            handles = [each.receipt_handle for each in reply.messages or ()]
            self.usual["ReceiptHandle"] = [*self.usual["ReceiptHandle"], *handles][-10:]
        elif isinstance(reply, MoveTaskStarted) and reply.task_handle:
            self.usual["TaskHandle"] = ["garbage", reply.task_handle]


async def test_any_request_is_answered_or_refused(tmp_path: Path) -> None:
    requests = Requests(Random(2))
    defects: list[tuple[str, object, Exception]] = []
    async with open_caller(tmp_path) as caller:
        for name, attributes in QUEUES.items():
            await ACTIONS["CreateQueue"](caller, CreateQueueCall(name, attributes))
        for _ in range(REQUEST_COUNT):
            action = requests.random.choice(sorted(CALLS.keys() - {"DeleteQueue"}))
            kind = CALLS[action]
            given = requests.value(inspect.type_info(kind))
            try:
                reply = await ACTIONS[action](caller, msgspec.convert(given, kind))
            except Exception as failure:  # noqa: BLE001  (`error_of` tells defects from refusals)
                if not error_of(failure).shape.is_senders_fault:
                    defects.append((action, given, failure))
            else:
                requests.learn(reply)
                assert JSON.encode_reply(action, reply, "r").status == 200
                assert QUERY.encode_reply(action, reply, "r").status == 200
    assert not defects
