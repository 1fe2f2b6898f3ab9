"""Signatures of botocore against the access keys of users: grants and accounts are the user's."""

import json
import subprocess
from collections.abc import Iterator
from typing import NamedTuple
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from botocore.auth import SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from tests.paths import ROOT
from tests.system.integration.processes import TIDELOG, environment
from tests.system.sqs.clients import REGION, json_client, query_client
from tests.system.sqs.failures import fails_with
from tests.system.sqs.fronts import running_broker, running_front


class AccessKey(NamedTuple):
    """An access key, as its creation prints it."""

    access_key_id: str
    secret: str


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the address of a broker with the user `ann`."""
    with running_broker(tmp_path_factory.mktemp("signed")) as address:
        command(address, "user", "create", "ann", "--no-password")
        yield address


@pytest.fixture(scope="module")
def front(broker: str) -> Iterator[str]:
    """Return the URL of a front that checks signatures."""
    with running_front(broker) as url:
        yield url


def command(broker: str, *words: str) -> str:
    """Run a command that must succeed; return its output."""
    done = subprocess.run(
        [*TIDELOG, *words, "--broker", broker],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def new_key(broker: str, *options: str) -> AccessKey:
    """Create an access key of `ann`."""
    said = json.loads(command(broker, "access-key", "create", "user:ann", "--json", *options))
    return AccessKey(said["access_key_id"], said["secret_access_key"])


@pytest.fixture(scope="module")
def key(broker: str) -> AccessKey:
    """Return an access key."""
    return new_key(broker)


def test_both_protocols_are_signed(
    front: str, key: AccessKey, tmp_path_factory: pytest.TempPathFactory
) -> None:
    sqs = json_client(front, *key)
    url = sqs.create_queue(QueueName="signed")["QueueUrl"]
    sqs.send_message(QueueUrl=url, MessageBody="x")

    query = query_client(
        front, tmp_path_factory.mktemp("models"), key_id=key.access_key_id, secret=key.secret
    )
    (message,) = query.receive_message(QueueUrl=url, AttributeNames=["All"])["Messages"]
    assert message["Body"] == "x"
    assert message["Attributes"]["SenderId"] == "user:ann"
    sqs.close()
    query.close()


def test_a_wrong_secret_and_an_unknown_key_are_refused(front: str, key: AccessKey) -> None:
    wrong = json_client(front, key.access_key_id, "a" * 40)
    unknown = json_client(front, "TDLAAAAAAAAAAAAAAAAA", key.secret)

    with fails_with("SignatureDoesNotMatch", status=403):
        wrong.list_queues()
    with fails_with("InvalidClientTokenId", status=403):
        unknown.list_queues()
    wrong.close()
    unknown.close()


def test_a_request_without_a_signature_is_refused(front: str) -> None:
    request = Request(
        front,
        data=b"{}",
        headers={
            "Content-Type": "application/x-amz-json-1.0",
            "X-Amz-Target": "AmazonSQS.ListQueues",
        },
    )

    with pytest.raises(HTTPError) as caught:
        urlopen(request)

    with caught.value as error:
        assert error.code == 403
        assert error.headers["x-amzn-query-error"].startswith("MissingAuthenticationToken")


def test_a_presigned_url_is_a_request(front: str, key: AccessKey) -> None:
    request = AWSRequest("GET", f"{front}/?Action=ListQueues&Version=2012-11-05")
    signer = SigV4QueryAuth(Credentials(*key), "sqs", REGION, expires=60)
    signer.add_auth(request)

    with urlopen(request.prepare().url) as response:
        said = response.read()

    assert response.status == 200
    assert b"<ListQueuesResult" in said
    with pytest.raises(HTTPError) as caught:
        urlopen(request.prepare().url.replace("ListQueues", "CreateQueue"))
    with caught.value as error:
        assert b"<Code>SignatureDoesNotMatch</Code>" in error.read()


def test_an_account_and_a_region_have_queues_of_their_own(broker: str, front: str) -> None:
    key = new_key(broker, "--account", "111122223333")
    sqs = json_client(front, *key)

    url = sqs.create_queue(QueueName="own")["QueueUrl"]

    assert url == f"{front}/111122223333/own"
    assert sqs.list_queues()["QueueUrls"] == [url]
    names = json.loads(command(broker, "queue", "list", "--json"))
    assert "111122223333.own" in json.dumps(names)
    sqs.close()


def test_a_removed_key_is_of_no_use(broker: str, front: str) -> None:
    key = new_key(broker)
    sqs = json_client(front, *key)
    sqs.list_queues()

    command(broker, "access-key", "remove", key.access_key_id)

    # The first reply may ask the SDK to try again: the front learns of it from the broker.
    code = "ServiceUnavailable"
    while code == "ServiceUnavailable":
        code = ""
        try:
            sqs.list_queues()
        except sqs.exceptions.ClientError as error:
            code = error.response["Error"]["Code"]
    assert code == "InvalidClientTokenId"
    sqs.close()
