"""An MCP server that does what a file says: `mcp_rogue.py FOLDER` reads `FOLDER/conduct.json`.

It writes each call to `FOLDER/calls`. `listings` are what it answers to one list after the other,
the last one for ever, also across restarts; `on_call` is what it does when a tool is called.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

FOLDER = Path(sys.argv[1])
CONDUCT = json.loads((FOLDER / "conduct.json").read_text())


def say(message: object) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def count(name: str) -> int:
    """Count the earlier calls of that name."""
    path = FOLDER / name
    size = path.stat().st_size if path.exists() else 0
    with path.open("a") as file:
        file.write(".")
    return size


def listing() -> object:
    listings = CONDUCT["listings"]
    return listings[min(count("lists"), len(listings) - 1)]


def misbehave(mode: str) -> None:
    """Do it; most of it never ends."""
    if mode == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if mode == "leave":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        child = subprocess.Popen(["sleep", "600"])
        (FOLDER / "child").write_text(str(child.pid))
    while mode in ("hang", "leave"):
        time.sleep(600)
    while mode == "flood":
        sys.stdout.write("x" * 65_536)
    while mode == "shout":
        sys.stderr.write("y" * 65_536)
    while mode == "notify":
        say({"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": "z" * 99}})
    if mode == "garbage":
        sys.stdout.write("{not json\n")
        sys.stdout.flush()
    if mode == "ask":
        say({"jsonrpc": "2.0", "id": "mine", "method": "sampling/createMessage", "params": {}})
        (FOLDER / "answer").write_text(sys.stdin.readline())
    if mode == "deep":
        sys.stdout.write("[" * 90_000 + "]" * 90_000 + "\n")
        sys.stdout.flush()


def answer_call(params: dict[str, object]) -> object:
    (FOLDER / "pid").write_text(str(os.getpid()))
    with (FOLDER / "calls").open("a") as file:
        file.write(json.dumps(params) + "\n")
    misbehave(CONDUCT.get("on_call", ""))
    usual = {"content": [{"type": "text", "text": "done"}]}
    return CONDUCT.get("result", usual)


def answer(method: str, params: dict[str, object]) -> object:
    if method == "initialize":
        misbehave(CONDUCT.get("on_start", ""))
        return {
            "protocolVersion": CONDUCT.get("protocol", "2025-06-18"),
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "rogue", "version": "1"},
        }
    if method == "tools/list":
        return {"tools": listing(), **CONDUCT.get("page", {})}
    return answer_call(params)


for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    reply = {"jsonrpc": "2.0", "id": asked["id"]}
    if asked["method"] == "server/discover":
        say({**reply, "error": {"code": -32601, "message": "Method not found"}})
    else:
        say({**reply, "result": answer(asked["method"], asked["params"])})
