"""A model on loopback that answers when a test lets it, and lionagi's way to it.

The answers are scripted by step: a task carries ``STEP=<name>``, and the step's reply
is held back until the test opens its door. So a flow stands still where a test wants
it, without any waiting by the clock.
"""

from __future__ import annotations

import json
import re
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

PLUGIN = """\
name: held
version: 1.0.0
description: A scripted chat model on loopback.
lionagi: ">=0.36,<1"
capabilities:
  providers:
    - module: held.py
"""
PROVIDER = '''\
"""A chat provider without a key, on loopback."""
import os

from lionagi.providers.openai._chat_schemas import OpenAIChatCompletionsRequest
from lionagi.service.connections.endpoint import Endpoint
from lionagi.service.connections.registry import EndpointType, register_endpoint


@register_endpoint(
    provider="held",
    endpoint="chat/completions",
    aliases=["chat", "query_cli"],
    endpoint_type=EndpointType.API,
    options=OpenAIChatCompletionsRequest,
    base_url=os.environ["HELD_URL"],
    auth_type="none",
)
class HeldEndpoint(Endpoint):
    def __init__(self, config=None, **kwargs):
        kwargs.pop("api_key", None)
        kwargs.setdefault("allow_local_network", True)
        kwargs.setdefault("max_retries", 1)
        super().__init__(config, **kwargs)
'''

_STEP = re.compile(r"STEP=([a-z0-9]+)")


@dataclass
class Step:
    """One assignment of a plan and how the model answers it."""

    name: str
    role: str
    after: tuple[int, ...] = ()
    """1-based places of the assignments it needs."""
    statuses: list[int] = field(default_factory=lambda: [200])
    """HTTP status by attempt; the last one stays."""
    spawns: dict[str, Any] | None = None
    escalates: dict[str, Any] | None = None
    """Asked for in the first answer alone."""
    opened: threading.Event = field(default_factory=threading.Event)
    asked: list[str] = field(default_factory=list)
    """The requests it was named in, whole."""


class Model:
    """A chat server that knows the steps of one flow."""

    def __init__(self, *steps: Step, spawned: tuple[Step, ...] = ()) -> None:
        self.plan = steps
        self.steps = {step.name: step for step in (*steps, *spawned)}
        self.changed = threading.Condition()
        handler = type("Handler", (_Handler,), {"model": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def close(self) -> None:
        for step in self.steps.values():
            step.opened.set()
        self._server.shutdown()
        self._server.server_close()

    def open(self, *names: str) -> None:
        """Let steps be answered from now on."""
        for name in names:
            self.steps[name].opened.set()

    def wait_for(self, name: str, count: int = 1, limit: float = 60.0) -> str:
        """Wait until a step was asked for; return the request."""
        step = self.steps[name]
        with self.changed:
            there = self.changed.wait_for(lambda: len(step.asked) >= count, limit)
        assert there, f"{name} was not asked for"
        return step.asked[count - 1]

    def answer(self, request: dict[str, Any]) -> tuple[int, str]:
        last = _text(request["messages"][-1])
        if "Decompose the task into a DAG" in last:
            return 200, json.dumps(self._planned())
        if "Synthesize all op outputs" in last:
            return 200, "All of it together."
        at = last.rfind("Instruction:")
        found = _STEP.search(last, max(at, 0))
        assert found is not None, last[:400]
        step = self.steps[found.group(1)]
        with self.changed:
            step.asked.append(last)
            attempt = len(step.asked)
            self.changed.notify_all()
        step.opened.wait(120)
        status = step.statuses[min(attempt, len(step.statuses)) - 1]
        reply = f"The answer of {step.name}."
        if step.spawns is not None:
            wish = json.dumps({"spawn_request": step.spawns})
            reply += f"\n\n```json\n{wish}\n```\n"
        if step.escalates is not None and attempt == 1:
            wish = json.dumps({"escalation_request": step.escalates})
            reply += f"\n\n```json\n{wish}\n```\n"
        return status, reply

    def _planned(self) -> dict[str, Any]:
        return {
            "reason": {"title": "Plan", "content": "As asked.", "confidence_score": 1},
            "assignments": [
                {
                    "task": f"STEP={step.name} Do it.",
                    "assignee": step.role,
                    "depends_on": [str(place) for place in step.after],
                }
                for step in self.plan
            ],
        }


def _text(message: dict[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, list):
        return "".join(part.get("text", "") for part in content)
    return str(content)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    model: Model

    def log_message(self, *_: object) -> None:
        pass

    def do_POST(self) -> None:
        size = int(self.headers.get("Content-Length", 0))
        status, reply = self.model.answer(json.loads(self.rfile.read(size)))
        body: dict[str, Any] = {"error": {"message": "no", "type": "scripted"}}
        if status == 200:
            body = {
                "id": "x",
                "object": "chat.completion",
                "created": 0,
                "model": "held",
                "choices": [
                    {
                        "index": 0,
                        "message": {"role": "assistant", "content": reply},
                        "finish_reason": "stop",
                    }
                ],
                "usage": {
                    "prompt_tokens": 1,
                    "completion_tokens": 1,
                    "total_tokens": 2,
                },
            }
        data = json.dumps(body).encode()
        try:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)
        except OSError:
            pass  # the flow was killed while it waited
