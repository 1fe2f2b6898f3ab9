"""A program for the last boto3 with the query protocol; it prints the protocol that it spoke."""

import sys

import boto3

sqs = boto3.client("sqs")
url = sqs.create_queue(QueueName="old.fifo", Attributes={"FifoQueue": "true"}, tags={"a": "b"})[
    "QueueUrl"
]
sent = sqs.send_message_batch(
    QueueUrl=url,
    Entries=[
        {
            "Id": str(number),
            "MessageBody": f"ä & <{number}>",
            "MessageGroupId": "g",
            "MessageDeduplicationId": str(number),
            "MessageAttributes": {"blob": {"DataType": "Binary", "BinaryValue": b"\0\xff"}},
        }
        for number in range(3)
    ],
)
assert len(sent["Successful"]) == 3, sent
found = sqs.receive_message(
    QueueUrl=url,
    MaxNumberOfMessages=10,
    AttributeNames=["All"],
    MessageAttributeNames=["All"],
    WaitTimeSeconds=5,
)["Messages"]
assert [message["Body"] for message in found] == [f"ä & <{n}>" for n in range(3)], found
assert found[0]["MessageAttributes"]["blob"]["BinaryValue"] == b"\0\xff", found
assert found[0]["Attributes"]["MessageGroupId"] == "g", found
for message in found:
    sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
assert sqs.list_queue_tags(QueueUrl=url)["Tags"] == {"a": "b"}
code = ""
try:
    sqs.get_queue_url(QueueName="missing")
except sqs.exceptions.QueueDoesNotExist as error:
    code = error.response["Error"]["Code"]
assert code == "AWS.SimpleQueueService.NonExistentQueue", code
sqs.delete_queue(QueueUrl=url)
sys.stdout.write(sqs.meta.service_model.metadata["protocol"] + "\n")
