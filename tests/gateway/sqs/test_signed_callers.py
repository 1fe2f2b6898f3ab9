"""Callers of signed requests: keys, grants, revocations and clients of users, at a real broker."""

# Reads private state of clients.
# pyright: reportPrivateUsage=false

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest
import trio

import tidelog
from tests.coordinator.raft_clients import until
from tests.gateway.sqs.http_client import HttpClient, HttpReply
from tests.gateway.sqs.signing import presigned, signed
from tidelog.client.client import Client
from tidelog.gateway.sqs import signed_callers
from tidelog.gateway.sqs.actions.move_tasks import start_message_move_task
from tidelog.gateway.sqs.actions.queues import create_queue
from tidelog.gateway.sqs.actions.send import send_message
from tidelog.gateway.sqs.front_runner import FrontRunner
from tidelog.gateway.sqs.http.messages import HttpRequest
from tidelog.gateway.sqs.listen_address import ListenAddress
from tidelog.gateway.sqs.protocol.errors import SqsError
from tidelog.gateway.sqs.protocol.requests import (
    CreateQueueCall,
    SendMessageCall,
    StartMessageMoveTaskCall,
)
from tidelog.gateway.sqs.server import FrontConfig, open_front
from tidelog.gateway.sqs.settings import FrontSettings
from tidelog.gateway.sqs.signed_callers import SignedCallers
from tidelog.wire.env.real.real_env import real_env
from tidelog.wire.errors import NotAuthorizedError
from tidelog.wire.messages.access_keys import CreatedAccessKey
from tidelog.wire.security.token import new_token

URL = "http://127.0.0.1:9324/"
ADMINS_TOKEN = new_token(bytes(6), bytes(32))


class Secured(NamedTuple):
    """A broker that enforces access, its administrator, and a front of it."""

    address: str
    admin: Client
    front: Client
    callers: SignedCallers


@asynccontextmanager
async def secured(data_dir: Path) -> AsyncGenerator[Secured, None]:
    """Run a broker that enforces access; yield an administrator of it, and a front."""
    file = data_dir / "admin.toml"
    file.write_text(f'user = "root"\ntoken = "{ADMINS_TOKEN}"\n')
    file.chmod(0o600)
    settings = {"authorization": "enforce", "authentication": "required"}
    async with (
        tidelog.open_broker(data_dir / "data", bootstrap_admin=str(file), **settings) as broker,
        tidelog.connect(broker.address, token=ADMINS_TOKEN, profile="") as admin,
    ):
        await admin.security.create_user("front")
        await admin.access.grant("user:front", ["impersonate"], "cluster")
        token = await admin.security.create_token("front")
        async with (
            tidelog.connect(broker.address, token=token, profile="") as front,
            trio.open_nursery() as nursery,
        ):
            callers = SignedCallers(
                front, FrontSettings(), nursery, address="127.0.0.1:9324", env=real_env()
            )
            yield Secured(broker.address, admin, front, callers)
            nursery.cancel_scope.cancel()


async def with_user(admin: Client, name: str, *, account: str = "") -> CreatedAccessKey:
    """Create a user that may do everything with queues whose names begin with its own."""
    await admin.security.create_user(name)
    for kind in ("queue", "topic"):
        await admin.access.grant(f"user:{name}", ["*"], kind, name=f"{name}*")
    return await admin.security.create_access_key(name, account=account)


def by(key: CreatedAccessKey, *, region: str = "us-east-1") -> HttpRequest:
    return signed(URL, b"{}", region=region, key_id=key.access_key_id, secret=key.secret)


async def code_of(callers: SignedCallers, request: HttpRequest) -> str:
    with pytest.raises(SqsError) as raised:
        await callers.caller_of(request)
    return raised.value.shape.query_code


@pytest.mark.difference(
    "Requests",
    cloud="Identities are those of IAM. `SenderId` is the unique id of a user or role.",
    here="They are users of tidelog with access keys. `SenderId` is the user, such as"
    " `user:alice`, and grants decide what it may do.",
    why="SDKs and native programs have the same users, rights and quotas.",
)
async def test_a_signed_request_acts_for_its_user_and_no_other(tmp_path: Path) -> None:
    async with secured(tmp_path) as world:
        alice, bob = await with_user(world.admin, "alice"), await with_user(world.admin, "bob")
        caller = await world.callers.caller_of(by(alice))
        assert caller.sender == (("sqs.sender", b"user:alice"),)
        url = (await create_queue(caller, CreateQueueCall("alice-jobs"))).queue_url
        await send_message(caller, SendMessageCall(url, "hello"))
        described = await world.admin.admin.describe_queues(["alice-jobs"])
        assert [each.name for each in described] == ["alice-jobs"]

        other = await world.callers.caller_of(by(bob))
        assert other.client is not caller.client
        assert other.state is not caller.state
        with pytest.raises((SqsError, NotAuthorizedError)):
            await send_message(other, SendMessageCall(url, "hello"))
        with pytest.raises((SqsError, NotAuthorizedError)):
            await create_queue(other, CreateQueueCall("alice-others"))
        again = presigned(URL, key_id=alice.access_key_id, secret=alice.secret)
        assert (await world.callers.caller_of(again)).client is caller.client


@pytest.mark.parametrize("name", ["jobs", "jobs.fifo"])
async def test_a_rule_for_the_queue_is_enough_to_send(tmp_path: Path, name: str) -> None:
    async with secured(tmp_path) as world:
        await world.admin.admin.create_queue(name, fifo=name.endswith(".fifo"))
        await world.admin.security.create_user("ann")
        await world.admin.access.grant("user:ann", ["send"], "queue", name=name)
        key = await world.admin.security.create_access_key("ann")
        caller = await world.callers.caller_of(by(key))
        url = caller.scope.url_of(name)

        for body in ("1", "2"):
            group, sent_id = ("g", body) if name.endswith(".fifo") else (None, None)
            call = SendMessageCall(
                url, body, message_group_id=group, message_deduplication_id=sent_id
            )
            await send_message(caller, call)

        found = await world.admin.queue(name).receive(10, wait=5)
        assert [message.value for message in found] == [b"1", b"2"]


async def test_a_user_moves_dead_letters_between_its_own_queues(tmp_path: Path) -> None:
    async with secured(tmp_path) as world:
        caller = await world.callers.caller_of(by(await with_user(world.admin, "alice")))
        await create_queue(caller, CreateQueueCall("alice-dead"))
        arn = caller.scope.arn_of("alice-dead")
        policy = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 3})
        await create_queue(caller, CreateQueueCall("alice-jobs", {"RedrivePolicy": policy}))
        jobs = caller.client.queue("alice-jobs")
        await jobs.send(b"hello")
        (message,) = await jobs.receive(wait=5)
        await message.reject("no")
        assert await caller.client.queue("alice-dead").receive(wait=5, visibility_timeout=0)

        await start_message_move_task(caller, StartMessageMoveTaskCall(arn))

        (moved,) = await jobs.receive(wait=5)
        assert moved.value == b"hello"


async def test_regions_and_the_account_of_the_key_are_prefixes(tmp_path: Path) -> None:
    async with secured(tmp_path) as world:
        key = await with_user(world.admin, "alice", account="111122223333")
        scope = (await world.callers.caller_of(by(key, region="eu-west-1"))).scope
        assert scope.queue_named("jobs") == "111122223333.eu-west-1.jobs"


async def test_wrong_unknown_and_missing_signatures_are_refused(tmp_path: Path) -> None:
    async with secured(tmp_path) as world:
        key, callers = await with_user(world.admin, "alice"), world.callers
        wrong = signed(URL, b"{}", key_id=key.access_key_id, secret="A" * 40)
        cloud = signed(URL, b"{}", key_id="AKIAAAAAAAAAAAAAAAAA", secret=key.secret)
        unknown = signed(URL, b"{}", key_id="TDLAAAAAAAAAAAAAAAAA", secret=key.secret)
        short = by(key)
        header = short.headers[b"authorization"]
        cut = short._replace(headers={**short.headers, b"authorization": header[:-2]})
        for _ in range(2):  # Before and after the front knows the key.
            assert await code_of(callers, wrong) == "SignatureDoesNotMatch"
            assert await code_of(callers, by(key)._replace(body=b"[]")) == "SignatureDoesNotMatch"
            assert await code_of(callers, cut) == "SignatureDoesNotMatch"
            assert await code_of(callers, cloud) == "InvalidClientTokenId"
            assert await code_of(callers, unknown) == "InvalidClientTokenId"
            nothing = by(key)._replace(headers={b"host": b"127.0.0.1"})
            assert await code_of(callers, nothing) == "MissingAuthenticationToken"
            await callers.caller_of(by(key))


async def test_a_disabled_key_is_refused_within_seconds_and_its_receives_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(signed_callers, "FRESH_S", 0.1)
    async with secured(tmp_path) as world:
        key = await with_user(world.admin, "alice")
        caller = await world.callers.caller_of(by(key))
        queue = (await create_queue(caller, CreateQueueCall("alice-jobs"))).queue_url
        await world.admin.security.enable_access_key(key.access_key_id, is_enabled=False)
        # The broker has ended the connections by now, and lets no other one act for the user.
        with pytest.raises((SqsError, tidelog.TidelogError)):
            await send_message(caller, SendMessageCall(queue, "hello"))
        code = ""
        while code != "InvalidClientTokenId":
            try:
                await world.callers.caller_of(by(key))
            except SqsError as error:
                code = error.shape.query_code
            await trio.sleep(0.05)
        await world.admin.security.enable_access_key(key.access_key_id)
        caller = await world.callers.caller_of(by(key))
        await send_message(caller, SendMessageCall(queue, "hello"))


async def test_an_idle_client_is_closed_and_the_next_request_opens_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(signed_callers, "IDLE_S", 0.2)
    async with secured(tmp_path) as world:
        key = await with_user(world.admin, "alice")
        first = await world.callers.caller_of(by(key))
        await until(lambda: not world.callers.user_count)
        monkeypatch.undo()  # The next client must outlast a slow request.
        second = await world.callers.caller_of(by(key))
        assert second.client is not first.client
        await create_queue(second, CreateQueueCall("alice-jobs"))


async def test_the_clients_of_users_end_their_receives_when_they_are_closed(
    tmp_path: Path, nursery: trio.Nursery
) -> None:
    async with secured(tmp_path) as world:
        key = await with_user(world.admin, "alice")
        caller = await world.callers.caller_of(by(key))
        await create_queue(caller, CreateQueueCall("alice-jobs"))
        open_receives = caller.client._cluster.open_work.receives
        receiving = trio.CancelScope()

        async def receive() -> None:
            with receiving:
                await caller.state.queue("alice-jobs").receive(wait=20)

        nursery.start_soon(receive)
        await until(lambda: len(open_receives) == 1)
        receiving.cancel()
        await world.callers.close()

        receives = caller.client.statistics().requests["RECEIVE"]
        assert (receives.count, receives.errors) == (1, {})
        assert world.callers.user_count == 0


async def test_a_front_without_the_action_says_so_and_serves_no_user(tmp_path: Path) -> None:
    async with secured(tmp_path) as world:
        key = await with_user(world.admin, "alice")
        await world.admin.access.revoke("user:front", ["impersonate"], "cluster")
        with pytest.raises(SqsError, match="user:front may not impersonate cluster") as raised:
            await world.callers.caller_of(by(key))
        assert raised.value.shape.status == 503


async def test_without_authentication_an_anonymous_front_acts_for_users(tmp_path: Path) -> None:
    async with (
        tidelog.open_broker(tmp_path) as broker,
        tidelog.connect(broker.address, profile="") as client,
        trio.open_nursery() as nursery,
    ):
        await client.security.create_user("alice")
        key = await client.security.create_access_key("alice")
        address = "127.0.0.1:9324"
        callers = SignedCallers(client, FrontSettings(), nursery, address=address, env=real_env())
        caller = await callers.caller_of(by(key))
        assert caller.client.statistics().connections.principal == "user:alice"
        await create_queue(caller, CreateQueueCall("jobs"))
        wrong = signed(URL, b"{}", key_id=key.access_key_id, secret="A" * 40)
        assert await code_of(callers, wrong) == "SignatureDoesNotMatch"
        nursery.cancel_scope.cancel()


async def test_a_front_that_may_not_act_for_users_does_not_start(tmp_path: Path) -> None:
    config = FrontConfig(ListenAddress("127.0.0.1", 0))
    async with secured(tmp_path) as world:
        await world.admin.access.revoke("user:front", ["impersonate"], "cluster")

        @asynccontextmanager
        async def front() -> AsyncGenerator[Client, None]:
            yield world.front

        runner = FrontRunner(front, config, waits_for=(), on_start=lambda _: None, env=real_env())
        with pytest.raises(NotAuthorizedError, match="impersonate cluster"):
            await runner.run_until(trio.Event())


async def test_a_front_that_may_no_longer_act_for_users_is_not_ready(tmp_path: Path) -> None:
    config = FrontConfig(ListenAddress("127.0.0.1", 0))
    async with (
        secured(tmp_path) as world,
        open_front(world.front, config) as front,
        HttpClient.connected(front.address[1]) as http,
    ):
        before = await http.get("/ready")
        await world.admin.access.revoke("user:front", ["impersonate"], "cluster")
        after = await http.get("/ready")

    assert before.status == 200
    assert after.status == 503
    assert "impersonate cluster" in msgspec.json.decode(after.body)["reason"]


async def test_a_front_answers_signed_requests_alone(tmp_path: Path) -> None:
    config = FrontConfig(ListenAddress("127.0.0.1", 0))
    async with secured(tmp_path) as world:
        key = await with_user(world.admin, "alice")
        async with (
            open_front(world.front, config) as front,
            HttpClient.connected(front.address[1]) as http,
        ):

            async def ask(action: str, **parameters: str) -> HttpReply:
                request = signed(
                    f"http://127.0.0.1:{front.address[1]}/",
                    msgspec.json.encode(parameters),
                    {"X-Amz-Target": f"AmazonSQS.{action}"},
                    key_id=key.access_key_id,
                    secret=key.secret,
                )
                return await http.ask_as_signed(request)

            url = msgspec.json.decode((await ask("CreateQueue", QueueName="alice-jobs")).body)
            sent = await ask("SendMessage", MessageBody="hello", **url)
            denied = await ask("CreateQueue", QueueName="others")
            unsigned = await http.ask("ListQueues")
            metrics = await http.get("/metrics")
    assert sent.status == 200
    assert metrics.value_of("tidelog_sqs_access_keys") == 1
    assert (denied.status, unsigned.status) == (403, 403)
    assert b"AccessDenied" in denied.body
    assert b"MissingAuthenticationToken" in unsigned.body
    for reply in (denied, unsigned):
        assert key.secret.encode() not in reply.body
