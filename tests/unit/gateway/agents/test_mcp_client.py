"""The official Python SDK of the protocol, over streamable HTTP, against a gateway that runs."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CallToolResult, TextContent

from connectors.gateway.agents.mcp import INSTRUCTIONS, VERSIONS
from tests.support.gateway import World

STATE = {"step": 3, "of": 7, "pending": ["rollback smoke"]}
SAVE = {"subject_id": "sdk", "kind": "task_state", "state": STATE, "ttl_seconds": 3600}
GET = {"subject_id": "sdk", "kind": "task_state"}


@asynccontextmanager
async def connected(made: World, mode: str, *scopes: str) -> AsyncIterator[Client]:
    authorized = {"authorization": f"Bearer {made.secret(*scopes)}"}
    async with (
        httpx2.AsyncClient(headers=authorized, timeout=20) as http,
        Client(streamable_http_client(f"{made.url}/mcp", http_client=http), mode=mode) as client,
    ):
        yield client


def told(result: CallToolResult) -> Any:
    (content,) = result.content
    assert isinstance(content, TextContent)
    return json.loads(content.text)


def with_client(made: World, mode: str, work: Callable[[Client], Awaitable[None]], *scopes: str) -> None:
    async def run() -> None:
        async with connected(made, mode, *(scopes or ("mcp:call",))) as client:
            await work(client)

    asyncio.run(run())


@pytest.mark.parametrize("mode", ["legacy", "auto"])
def test_it_shakes_hands_lists_both_tools_and_calls_them(shared: World, mode: str) -> None:
    """`auto` asks first whether the server speaks a protocol newer than ours."""

    async def work(client: Client) -> None:
        assert client.protocol_version == VERSIONS[0]
        assert (client.server_info.name, client.instructions) == ("titen", INSTRUCTIONS)
        assert client.server_capabilities.tools is not None
        assert client.server_capabilities.resources is None
        tools = (await client.list_tools()).tools
        assert [tool.name for tool in tools] == ["titen_checkpoint_save", "titen_checkpoint_get"]
        assert [tool.annotations.read_only_hint for tool in tools if tool.annotations is not None] == [False, True]
        saved = await client.call_tool("titen_checkpoint_save", SAVE)
        assert not saved.is_error
        assert told(saved)["data"]["state_hash"] == "5ab982ea637562b9b4d1c752bf073346eb27d7ea673a2adb463c1324c2fe947b"
        read = await client.call_tool("titen_checkpoint_get", GET)
        assert not read.is_error
        assert told(read)["data"]["state"] == STATE
        assert told(read)["data"]["checkpoint_id"] == told(saved)["data"]["checkpoint_id"]

    with_client(shared, mode, work)


def test_what_a_tool_refuses_is_a_result_and_what_is_no_tool_an_error(shared: World) -> None:
    async def work(client: Client) -> None:
        absent = await client.call_tool("titen_checkpoint_get", {**GET, "kind": "cursor"})
        assert absent.is_error
        assert told(absent) == {"code": "NOT_FOUND", "message": "Resource was not found."}
        with pytest.raises(MCPError) as unknown:
            await client.call_tool("titen_remember", {})
        assert (unknown.value.error.code, unknown.value.error.message) == (-32602, "Unknown tool: titen_remember")

    with_client(shared, "legacy", work)


def test_calls_at_the_same_time_find_their_answers(shared: World) -> None:
    async def work(client: Client) -> None:
        names = [f"sdk-{number}" for number in range(20)]
        await asyncio.gather(*(client.call_tool("titen_checkpoint_save", {**SAVE, "subject_id": name, "state": name}) for name in names))
        read = await asyncio.gather(*(client.call_tool("titen_checkpoint_get", {**GET, "subject_id": name}) for name in names))
        assert [told(each)["data"]["state"] for each in read] == names

    with_client(shared, "legacy", work)


def test_a_key_without_the_scope_is_not_let_in(shared: World) -> None:
    async def work(_: Client) -> None:
        raise AssertionError("was let in")

    with pytest.RaisesGroup(MCPError, allow_unwrapped=True, flatten_subgroups=True):
        with_client(shared, "legacy", work, "agent-checkpoints:read", "agent-checkpoints:write")
