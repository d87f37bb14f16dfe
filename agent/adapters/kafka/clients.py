"""Beginning and ending aiokafka's clients, both bounded in time.

The one rule: no `start()` or `stop()` of aiokafka is awaited without an end. A producer's stop waits for batches that
an idempotent producer retries for ever, a consumer's may raise CancelledError of its own tasks, and a connection with
unsent bytes to a paused broker never reports its end; what does not end by itself is cut.
"""

import asyncio
from typing import Any, Final, TypeVar

from aiokafka import AIOKafkaClient, AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import errors as kafka

from agent.adapters.kafka.errors import FOREIGN, as_ours, why_unreachable
from agent.adapters.kafka.settings import KafkaSettings

Client = TypeVar("Client", AIOKafkaClient, AIOKafkaConsumer, AIOKafkaProducer)
_CUT_S: Final = 1.0
_leftovers: set[asyncio.Task[None]] = set()
"""Clients being let go of; held here so that they are not collected half-way."""


async def started(client: Client, settings: KafkaSettings, *, topic: str = "", operation: str = "") -> Client:
    """Connect a new client and return it; one that cannot is let go of again. `topic` and `operation` are what it is
    for, to be named when the right to that is missing.

    Raises CannotRun (password, certificate, unknown host), Refused (rights) or Unavailable within about twice the
    connect time-out.
    """
    doing = f"use topic {topic}" if topic else f"connect to {settings.bootstrap_servers}"
    try:
        async with asyncio.timeout(settings.connect_timeout_s):
            await (client.bootstrap() if isinstance(client, AIOKafkaClient) else client.start())
    except kafka.KafkaConnectionError:
        await stop(client, settings)
        raise await why_unreachable(settings) from None
    except TimeoutError:
        await stop(client, settings)
        found = await why_unreachable(settings)
        raise found from None
    except FOREIGN as error:
        await stop(client, settings)
        raise as_ours(error, settings, doing, topic=topic, operation=operation) from error
    except BaseException:
        stop_soon(client, settings)
        raise
    return client


async def stop(client: Any, settings: KafkaSettings) -> None:
    """Let go of a client within the close time-out and about a second; never raises, may be called again."""
    task = stop_soon(client, settings)
    await asyncio.wait({task})


def stop_soon(client: Any, settings: KafkaSettings) -> asyncio.Task[None]:
    """The same in a task of its own, which goes on when the caller is cancelled."""
    task = asyncio.create_task(_stop(client, settings.close_timeout_s))
    _leftovers.add(task)
    task.add_done_callback(_leftovers.discard)
    return task


async def _stop(client: Any, seconds: float) -> None:
    if isinstance(client, AIOKafkaClient):
        if not await _ended(client.close(), seconds):
            await _cut(client)
    elif not await _ended(client.stop(), seconds):
        if isinstance(client, AIOKafkaProducer):
            sender = client._sender.sender_task
            if sender is not None:
                sender.cancel()
            await _cut(client.client)
            await _end_sender(sender)
            client._message_accumulator.fail_all(kafka.ProducerClosed())
        else:
            await _cut(client._client)


async def _cut(client: AIOKafkaClient) -> None:
    """Drop the connections without waiting for their last bytes, for which aiokafka has no public way."""
    for connection in list(client._conns.values()):
        if connection._writer is not None:
            connection._writer.transport.abort()
    await _ended(client.close(), _CUT_S)
    if client._md_update_fut is not None:
        client._md_update_fut.cancel()


async def _end_sender(sender: "asyncio.Task[None] | None") -> None:
    """Once cancelled it waits for its requests one by one, each of which may wait for metadata that will not come."""
    if sender is None:
        return
    for _ in range(100):
        if sender.done():
            break
        sender.cancel()
        await asyncio.sleep(0)
    if sender.done() and not sender.cancelled():
        sender.exception()


async def _ended(closing: Any, seconds: float) -> bool:
    """Whether it came to an end of its own within the time, and without an error."""
    task = asyncio.ensure_future(closing)
    done, _ = await asyncio.wait({task}, timeout=seconds)
    if not done:
        task.cancel()
        await asyncio.wait({task}, timeout=_CUT_S)
        return False
    return not task.cancelled() and task.exception() is None
