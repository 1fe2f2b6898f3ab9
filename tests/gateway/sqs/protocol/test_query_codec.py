"""AWS Query: forms as old SDKs and curl send them, replies in the vendor's XML."""

import re
from urllib.parse import urlencode
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.gateway.sqs.http.messages import HttpRequest
from tidelog.gateway.sqs.protocol.choice import codec_of
from tidelog.gateway.sqs.protocol.codec import CALLS
from tidelog.gateway.sqs.protocol.errors import (
    INTERNAL,
    SqsError,
    missing_parameter,
    queue_does_not_exist,
)
from tidelog.gateway.sqs.protocol.json_codec import JSON
from tidelog.gateway.sqs.protocol.query_codec import QUERY
from tidelog.gateway.sqs.protocol.replies import (
    DONE,
    BatchDone,
    BatchSent,
    DoneEntry,
    FailedEntry,
    MessageSent,
    MessagesReceived,
    MoveTask,
    MoveTasks,
    QueueAttributes,
    QueuesListed,
    QueueTags,
    ReceivedMessage,
    SentEntry,
    SourceQueues,
    SqsReply,
)
from tidelog.gateway.sqs.protocol.requests import (
    AddPermissionCall,
    CreateQueueCall,
    DeleteEntry,
    DeleteMessageBatchCall,
    GetQueueAttributesCall,
    MessageAttribute,
    ReceiveMessageCall,
    SendEntry,
    SendMessageBatchCall,
    SendMessageCall,
    SetQueueAttributesCall,
    SqsCall,
    UntagQueueCall,
)

URL = "http://h/0/q"


def _request(body: str | bytes, target: str = "/", method: bytes = b"POST") -> HttpRequest:
    headers = {b"host": b"h", b"content-type": b"application/x-www-form-urlencoded"}
    form = body.encode() if isinstance(body, str) else body
    return HttpRequest(method, target.encode(), headers, form)


def _call(**parameters: str) -> SqsCall:
    return QUERY.decode(_request(urlencode(parameters))).call


def _form(action: str, *pairs: tuple[str, str]) -> SqsCall:
    return QUERY.decode(_request(urlencode([("Action", action), *pairs]))).call


def _reply(action: str, reply: SqsReply) -> str:
    response = QUERY.encode_reply(action, reply, "r-1")
    assert response.status == 200
    assert response.content_type == "text/xml"
    assert ET.fromstring(response.body) is not None
    text = response.body.decode()
    start = (
        f'<?xml version="1.0"?><{action}Response'
        ' xmlns="http://queue.amazonaws.com/doc/2012-11-05/">'
    )
    end = f"<ResponseMetadata><RequestId>r-1</RequestId></ResponseMetadata></{action}Response>"
    assert text.startswith(start)
    assert text.endswith(end)
    return text[len(start) : -len(end)]


def _refusal(request: HttpRequest) -> tuple[str, str]:
    with pytest.raises(SqsError) as raised:
        QUERY.decode(request)
    return raised.value.shape.query_code, raised.value.message


def test_the_form_of_a_message_is_decoded() -> None:
    body = (
        "Action=SendMessage&QueueUrl=http%3A%2F%2Fh%2F0%2Fq&MessageBody=a+b%2Bc%20gr%C3%BC%C3%9Fe"
        "&DelaySeconds=5&MessageAttribute.1.Name=a&MessageAttribute.1.Value.DataType=String"
        "&MessageAttribute.1.Value.StringValue=x%3D1&MessageAttribute.2.Name=b"
        "&MessageAttribute.2.Value.DataType=Binary&MessageAttribute.2.Value.BinaryValue=AP8%3D"
        "&MessageSystemAttribute.1.Name=AWSTraceHeader"
        "&MessageSystemAttribute.1.Value.DataType=String"
        "&MessageSystemAttribute.1.Value.StringValue=Root%3D1&Version=2012-11-05"
    )
    assert QUERY.decode(_request(body)) == (
        "SendMessage",
        SendMessageCall(
            queue_url=URL,
            message_body="a b+c grüße",
            delay_seconds=5,
            message_attributes={
                "a": MessageAttribute(data_type="String", string_value="x=1"),
                "b": MessageAttribute(data_type="Binary", binary_value=b"\x00\xff"),
            },
            message_system_attributes={
                "AWSTraceHeader": MessageAttribute(data_type="String", string_value="Root=1")
            },
        ),
    )


def test_entries_of_a_batch_are_in_the_order_of_their_numbers() -> None:
    call = _form(
        "SendMessageBatch",
        *[
            (f"SendMessageBatchRequestEntry.{number}.{name}", value)
            for number in (10, 2, 1)
            for name, value in (("Id", f"m{number}"), ("MessageBody", "x"))
        ],
        ("SendMessageBatchRequestEntry.2.MessageAttribute.1.Name", "a"),
        ("SendMessageBatchRequestEntry.2.MessageAttribute.1.Value.DataType", "Number"),
        ("SendMessageBatchRequestEntry.2.MessageAttribute.1.Value.StringValue", "1"),
    )
    number = {"a": MessageAttribute(data_type="Number", string_value="1")}
    assert call == SendMessageBatchCall(
        entries=[
            SendEntry(id="m1", message_body="x"),
            SendEntry(id="m2", message_body="x", message_attributes=number),
            SendEntry(id="m10", message_body="x"),
        ]
    )
    call = _form("DeleteMessageBatch", ("DeleteMessageBatchRequestEntry.1.Id", "a"))
    assert call == DeleteMessageBatchCall(entries=[DeleteEntry(id="a")])


def test_lists_and_maps_have_their_flattened_names() -> None:
    assert _form(
        "CreateQueue",
        ("QueueName", "q"),
        ("Attribute.1.Name", "DelaySeconds"),
        ("Attribute.1.Value", "5"),
        ("Tag.1.Key", "k"),
        ("Tag.1.Value", ""),
    ) == CreateQueueCall(queue_name="q", attributes={"DelaySeconds": "5"}, tags={"k": ""})
    assert _form(
        "ReceiveMessage",
        ("AttributeName.1", "All"),
        ("MessageSystemAttributeName.1", "SenderId"),
        ("MessageAttributeName.1", "a.*"),
        ("MessageAttributeName.2", "b"),
        ("MaxNumberOfMessages", "10"),
    ) == ReceiveMessageCall(
        attribute_names=["All"],
        message_system_attribute_names=["SenderId"],
        message_attribute_names=["a.*", "b"],
        max_number_of_messages=10,
    )
    assert _form(
        "AddPermission", ("Label", "l"), ("AWSAccountId.1", "1"), ("ActionName.1", "*")
    ) == AddPermissionCall(label="l", aws_account_ids=["1"], actions=["*"])
    assert _form("UntagQueue", ("TagKey.1", "k")) == UntagQueueCall(tag_keys=["k"])


def test_a_single_element_may_have_no_number() -> None:
    assert _call(
        Action="SetQueueAttributes",
        **{"Attribute.Name": "VisibilityTimeout", "Attribute.Value": "35"},
    ) == SetQueueAttributesCall(attributes={"VisibilityTimeout": "35"})
    assert _call(Action="GetQueueAttributes", AttributeName="All") == GetQueueAttributesCall(
        attribute_names=["All"]
    )


def test_the_plain_names_of_maps_are_known_too() -> None:
    assert _call(
        Action="SetQueueAttributes", **{"Attributes.1.Name": "Policy", "Attributes.1.Value": ""}
    ) == SetQueueAttributesCall(attributes={"Policy": ""})


def test_the_queue_is_the_path_without_a_parameter() -> None:
    target = "/0/q?Action=SendMessage&MessageBody=a%2Bb"
    request = _request(b"", target, b"GET")
    assert QUERY.decode(request).call == SendMessageCall(queue_url=URL, message_body="a+b")
    other = _request(b"", target + "&QueueUrl=http://h/0/other", b"GET")
    assert QUERY.decode(other).call == SendMessageCall(
        queue_url="http://h/0/other", message_body="a+b"
    )


@pytest.mark.parametrize("action", ["CreateQueue", "ListQueues", "FooBar"])
def test_the_endpoint_of_a_queue_refuses_other_actions(action: str) -> None:
    text = f"The action {action} is not valid for this endpoint."
    assert _refusal(_request(b"", f"/0/q?Action={action}", b"GET")) == ("InvalidAction", text)


def test_a_request_without_action_is_refused() -> None:
    expected = ("MissingAction", "No action was supplied with this request.")
    assert _refusal(_request(b"QueueUrl=a")) == expected
    with pytest.raises(SqsError) as raised:
        QUERY.decode(_request(b"", "/0/q", b"GET"))
    response = QUERY.encode_error(raised.value, "r-1")
    assert (response.status, response.body) == (404, b"<UnknownOperationException/>")


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"DelaySeconds=soon", "STRING_VALUE can not be converted to an Integer"),
        (b"MessageBody=%FF", "Parameters must be in UTF-8."),
        (b"MessageBody=\xff", "Parameters must be in UTF-8."),
        (b"a=b&" * 2_000, "A request has at most 2000 parameters."),
    ],
)
def test_a_malformed_parameter_is_refused(body: bytes, text: str) -> None:
    assert _refusal(_request(b"Action=SendMessage&" + body)) == ("MalformedInput", text)


@given(
    action=st.sampled_from(sorted(CALLS)),
    pairs=st.lists(
        st.tuples(
            st.lists(
                st.sampled_from(
                    ["Attribute", "1", "2", "Name", "Value", "MessageAttribute", "Key", "Id", "x",
                     "SendMessageBatchRequestEntry", "DataType", "QueueUrl", "BinaryValue", ""]
                ),
                min_size=1,
                max_size=9,
            ).map(".".join),
            st.text(max_size=4),
        ),
        max_size=8,
    ),
)  # fmt: skip
def test_any_form_is_decoded_or_refused(action: str, pairs: list[tuple[str, str]]) -> None:
    try:
        call = _form(action, *pairs)
    except SqsError:
        return
    assert isinstance(call, CALLS[action])


def test_a_reply_has_the_names_of_the_vendor() -> None:
    sent = MessageSent(md5_of_message_body="d", message_id="i", sequence_number="7")
    assert _reply("SendMessage", sent) == (
        "<SendMessageResult><MD5OfMessageBody>d</MD5OfMessageBody><MessageId>i</MessageId>"
        "<SequenceNumber>7</SequenceNumber></SendMessageResult>"
    )
    assert _reply("DeleteMessage", DONE) == ""
    assert _reply("ReceiveMessage", MessagesReceived()) == "<ReceiveMessageResult/>"
    assert _reply("ListQueues", QueuesListed(queue_urls=["a", "b"], next_token="t")) == (
        "<ListQueuesResult><QueueUrl>a</QueueUrl><QueueUrl>b</QueueUrl>"
        "<NextToken>t</NextToken></ListQueuesResult>"
    )
    assert _reply("ListDeadLetterSourceQueues", SourceQueues(queue_urls=["a"])) == (
        "<ListDeadLetterSourceQueuesResult><QueueUrl>a</QueueUrl>"
        "</ListDeadLetterSourceQueuesResult>"
    )
    assert _reply("GetQueueAttributes", QueueAttributes(attributes={"QueueArn": "x"})) == (
        "<GetQueueAttributesResult><Attribute><Name>QueueArn</Name><Value>x</Value></Attribute>"
        "</GetQueueAttributesResult>"
    )
    assert _reply("ListQueueTags", QueueTags(tags={"k": "v"})) == (
        "<ListQueueTagsResult><Tag><Key>k</Key><Value>v</Value></Tag></ListQueueTagsResult>"
    )
    task = MoveTask(status="RUNNING", approximate_number_of_messages_moved=0)
    assert _reply("ListMessageMoveTasks", MoveTasks(results=[task])) == (
        "<ListMessageMoveTasksResult><ListMessageMoveTasksResultEntry><Status>RUNNING</Status>"
        "<ApproximateNumberOfMessagesMoved>0</ApproximateNumberOfMessagesMoved>"
        "</ListMessageMoveTasksResultEntry></ListMessageMoveTasksResult>"
    )


def test_received_messages_are_flattened() -> None:
    message = ReceivedMessage(
        message_id="i",
        receipt_handle="h",
        md5_of_body="d",
        body='<a & "b">\r\n',
        attributes={"SenderId": "s"},
        md5_of_message_attributes="e",
        message_attributes={"n": MessageAttribute(data_type="Binary", binary_value=b"\x00\xff")},
    )
    assert _reply("ReceiveMessage", MessagesReceived(messages=[message])) == (
        "<ReceiveMessageResult><Message><MessageId>i</MessageId><ReceiptHandle>h</ReceiptHandle>"
        "<MD5OfBody>d</MD5OfBody><Body>&lt;a &amp; &quot;b&quot;&gt;&#xD;\n</Body>"
        "<Attribute><Name>SenderId</Name><Value>s</Value></Attribute>"
        "<MD5OfMessageAttributes>e</MD5OfMessageAttributes>"
        "<MessageAttribute><Name>n</Name><Value><DataType>Binary</DataType>"
        "<BinaryValue>AP8=</BinaryValue></Value></MessageAttribute></Message>"
        "</ReceiveMessageResult>"
    )


@given(st.text())
def test_any_text_becomes_well_formed_xml(text: str) -> None:
    response = QUERY.encode_reply("ListQueueTags", QueueTags(tags={"k": text}), "r-1")
    value = ET.fromstring(response.body).find(".//{*}Value")
    assert value is not None
    illegal = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
    assert (value.text or "") == illegal.sub("\ufffd", text)


def test_entries_of_batches_have_the_name_of_their_action() -> None:
    failed = FailedEntry(id="b", sender_fault=True, code="InvalidParameterValue", message="m")
    failure = (
        "<BatchResultErrorEntry><Id>b</Id><SenderFault>true</SenderFault>"
        "<Code>InvalidParameterValue</Code><Message>m</Message></BatchResultErrorEntry>"
    )
    sent = BatchSent(
        successful=[SentEntry(id="a", message_id="i", md5_of_message_body="d")], failed=[failed]
    )
    assert _reply("SendMessageBatch", sent) == (
        "<SendMessageBatchResult><SendMessageBatchResultEntry><Id>a</Id><MessageId>i</MessageId>"
        "<MD5OfMessageBody>d</MD5OfMessageBody></SendMessageBatchResultEntry>"
        f"{failure}</SendMessageBatchResult>"
    )
    for action in ("DeleteMessageBatch", "ChangeMessageVisibilityBatch"):
        assert _reply(action, BatchDone(successful=[DoneEntry("a")], failed=[failed])) == (
            f"<{action}Result><{action}ResultEntry><Id>a</Id></{action}ResultEntry>"
            f"{failure}</{action}Result>"
        )


def test_an_error_has_the_code_of_the_query_protocol() -> None:
    response = QUERY.encode_error(missing_parameter("<x>"), "r-1")
    assert (response.status, response.content_type) == (400, "text/xml")
    assert response.body.decode() == (
        '<?xml version="1.0"?><ErrorResponse xmlns="http://queue.amazonaws.com/doc/2012-11-05/">'
        "<Error><Type>Sender</Type><Code>MissingParameter</Code>"
        "<Message>The request must contain the parameter &lt;x&gt;.</Message><Detail/></Error>"
        "<RequestId>r-1</RequestId></ErrorResponse>"
    )
    body = QUERY.encode_error(queue_does_not_exist(), "r-1").body.decode()
    assert "<Code>AWS.SimpleQueueService.NonExistentQueue</Code>" in body
    assert "<Message>The specified queue does not exist for this wsdl version.</Message>" in body
    broken = QUERY.encode_error(SqsError(INTERNAL, ""), "r-1")
    assert broken.status == 500
    assert b"<Type>Receiver</Type>" in broken.body


def test_the_protocol_is_chosen_by_its_headers() -> None:
    form = _request("Action=ListQueues")
    assert codec_of(form) is QUERY
    assert codec_of(form._replace(headers={b"x-amz-target": b"AmazonSQS.ListQueues"})) is JSON
    assert codec_of(form._replace(headers={b"content-type": b"application/x-amz-json-1.0"})) is JSON
