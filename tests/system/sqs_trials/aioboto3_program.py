"""A program with aioboto3: a hundred tasks send, and a hundred receive and delete."""

import asyncio
import sys
from collections import Counter
from typing import Any

import aioboto3
from botocore.config import Config

TASKS = 100
MESSAGES = 1_000


async def main() -> None:
    """Send messages, and receive all of them."""
    # Long polls would hold all of the 10 connections that are usual.
    config = Config(max_pool_connections=2 * TASKS)
    async with aioboto3.Session().client("sqs", config=config) as sqs:
        url = (await sqs.create_queue(QueueName="aioboto3-trial"))["QueueUrl"]
        seen: Counter[str] = Counter()

        async def send(first: int) -> None:
            for number in range(first, MESSAGES, TASKS):
                await sqs.send_message(QueueUrl=url, MessageBody=str(number))

        async def receive() -> None:
            while len(seen) < MESSAGES:
                reply: dict[str, Any] = await sqs.receive_message(
                    QueueUrl=url, MaxNumberOfMessages=10, WaitTimeSeconds=1
                )
                for message in reply.get("Messages", []):
                    seen[message["Body"]] += 1
                    await sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])

        await asyncio.gather(
            *(send(first) for first in range(TASKS)), *(receive() for _ in range(TASKS))
        )
    assert set(seen.values()) == {1}, seen
    sys.stdout.write(f"{len(seen)} messages, each received once\n")


asyncio.run(main())
