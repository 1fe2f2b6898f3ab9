"""FastAPI: produce in a request, a worker beside it, and a look at what it did.

Needs a broker: `tidelog serve`, and `pip install fastapi uvicorn`. Run it with
`uvicorn examples.fastapi_service:app`, and try it:

    curl -X POST localhost:8000/orders -H 'content-type: application/json' \
        -d '{"customer": "ada", "amount": 42}'
    curl localhost:8000/orders/shipped

The environment variable `BROKER` has the address of a broker; 127.0.0.1:8433 by default.
"""

import asyncio
import json
import os
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Annotated, cast

from fastapi import Depends, FastAPI, HTTPException, Request
from pydantic import BaseModel

import tidelog.aio as tidelog

ORDERS = "example-orders-of-web"


class Order(BaseModel):
    """An order, as the body of a request."""

    customer: str
    amount: int


class Shop:
    """What the requests of the service share."""

    def __init__(self, client: tidelog.Client, producer: tidelog.Producer) -> None:
        """Use an open client and an open producer."""
        self.queue = client.queue(ORDERS)
        self.producer = producer
        self.shipped: list[str] = []

    async def place(self, order: Order) -> str:
        """Append an order to the log, on disk when this returns; return its id."""
        value = order.model_dump_json().encode()
        receipt = await self.producer.send(ORDERS, value, key=order.customer.encode())
        return receipt.message_id

    async def ship(self, message: tidelog.Message) -> None:
        """Handle one order; the worker deletes its message afterwards, or retries it."""
        order = json.loads(message.value or b"{}")
        self.shipped.append(f"{order['amount']} for {order['customer']}")


def end_service(task: "asyncio.Task[None]") -> None:
    """End the service after an error of the worker; uvicorn would go on without it."""
    if not task.cancelled() and task.exception() is not None:
        signal.raise_signal(signal.SIGTERM)


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncGenerator[None, None]:
    """Connect once for all requests, and run a worker beside them."""
    async with (
        tidelog.connect(os.environ.get("BROKER", "127.0.0.1:8433")) as client,
        client.producer() as producer,
        asyncio.TaskGroup() as tasks,
    ):
        # A queue over the topic of the same name: what is produced there is a message of it.
        await client.admin.create_queue(ORDERS, partitions=3, visibility_timeout=30)
        shop = app.state.shop = Shop(client, producer)
        worker = shop.queue.worker(shop.ship, concurrency=10)
        tasks.create_task(worker.run()).add_done_callback(end_service)
        yield
        worker.stop()  # Finishes the orders in hand.


app = FastAPI(lifespan=lifespan)


def the_shop(request: Request) -> Shop:
    """Return what all requests share."""
    return cast("Shop", request.app.state.shop)


@app.post("/orders", status_code=201)
async def place(order: Order, shop: Annotated[Shop, Depends(the_shop)]) -> dict[str, str]:
    """Place an order."""
    try:
        async with asyncio.timeout(5):
            return {"id": await shop.place(order)}
    except (TimeoutError, tidelog.TidelogError) as error:
        raise HTTPException(503, f"the order may not be placed: {error}") from error


@app.get("/orders/shipped")
async def shipped(shop: Annotated[Shop, Depends(the_shop)]) -> list[str]:
    """List what this process has shipped."""
    return shop.shipped
