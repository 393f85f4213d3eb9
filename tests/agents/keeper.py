"""An agent with fifty secrets by reference, whose parts print them wherever they can.

It has ten in options, ten in rules, ten in steps of procedures, and uses others that its settings
permit. Its actions leave a digest of each value in the effects file: they got it.
"""

from __future__ import annotations

import base64
import faulthandler
import json
import os
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import quote

from pydantic import BaseModel, SecretStr

from boyd import (
    Agent,
    Context,
    EffectVerdict,
    EndpointReply,
    Observation,
    Plugin,
    Sandbox,
    Secret,
    action,
    endpoint,
    observer,
)
from boyd.plugins.decision_rules import DecisionRules
from boyd.plugins.notifier import Notifier
from boyd.settings.secret_references import reveal

EFFECTS = Path(os.environ.get("EFFECTS", "/dev/null"))


def reference(number: int) -> str:
    """The reference to one of the fifty."""
    return f"secret://vault/planted/{number}#password"


def show(value: str) -> dict[str, Any]:
    """The value in many forms."""
    return {
        "plain": value,
        "text": f"the password is {value}.",
        "json": json.dumps({"password": value}),
        "url": f"https://me:{quote(value, safe='')}@host/?p={quote(value)}",
        "base64": base64.b64encode(f"me:{value}".encode()).decode(),
        "repr": repr({"a": value.encode()}),
        "cut": f"{value[: len(value) * 3 // 4]}…",
        value: [value.encode().hex()],
    }


class Login(BaseModel):
    """The params of all actions."""

    host: str
    password: str
    fail: bool = False


class Keeper(Plugin):
    """Prints what it knows."""

    id = "keeper"

    class Options(Plugin.Options):
        """Ten secrets."""

        tokens: list[Secret]
        words: dict[str, SecretStr]

    options: Options

    @observer()
    def look(self, ctx: Context) -> list[Observation]:
        """See all secrets of the options."""
        values: list[Any] = [token.read() for token in self.options.tokens]
        values += [reveal(word) for word in self.options.words.values()]
        for value in values:
            print("printed", value)
            ctx.logger.warning("logged %s", value)
        return [
            Observation(source="look", type="metric", severity="critical", data={"values": values})
        ]

    def on_after_act(self, ctx: Context) -> None:
        """Fail with a secret."""
        raise RuntimeError(f"no login with {self.options.tokens[0].read()}")

    def _use(self, action: str, params: Login, ctx: Context) -> dict[str, Any]:
        with EFFECTS.open("a") as file:
            file.write(f"{action}:{sha256(params.password.encode()).hexdigest()}\n")
        print("printed", params.password)
        ctx.logger.error("logged %s", show(params.password))
        if params.fail:
            raise RuntimeError(f"401 for {show(params.password)}")
        return show(params.password)

    @action(target="host", concurrency=0, tool=True)
    def login(self, params: Login, ctx: Context) -> dict[str, Any]:
        """Log in."""
        return self._use("login", params, ctx)

    @login.rollback
    def _log_out(self, params: Login, ctx: Context) -> dict[str, Any]:
        return self._use("rollback", params, ctx)

    @login.verify(within=5, every=1)
    def _check(self, params: Login) -> EffectVerdict:
        return EffectVerdict(verdict="effective", evidence=f"in with {params.password}", final=True)

    @action(name="gated", target="host", concurrency=0, autonomy="approval-required")
    def log_in_gated(self, params: Login, ctx: Context) -> dict[str, Any]:
        """Log in, once a person has approved it."""
        return self._use("gated", params, ctx)

    @log_in_gated.dry_run
    def _preview(self, params: Login) -> str:
        return f"would log in with {params.password}"

    @action(name="confined", target="host", concurrency=0, sandbox=Sandbox(cpu=20))
    def log_in_confined(self, params: Login, ctx: Context) -> dict[str, Any]:
        """Log in from a sandbox."""
        print("printed", params.password)
        return {**show(params.password), "option": self.options.tokens[1].read()}

    @action(target="host", concurrency=0)
    def crash(self, params: Login, ctx: Context) -> None:
        """Crash with the secret on the stack."""
        password = params.password
        self._use("crash", params, ctx)
        faulthandler.dump_traceback()
        os.abort() if password else None

    @endpoint("GET", "/leak")
    def leak(self) -> EndpointReply:
        """Show the options."""
        return EndpointReply(body=show(self.options.tokens[2].read()))


def _step(number: int) -> dict[str, Any]:
    params = {"host": "${params.host}", "password": reference(number)}
    return {"id": f"s{number}", "action": "keeper:login", "params": params, "verify": False}


def _around(name: str) -> str:
    """An address from the environment, of which a sandbox has nothing."""
    return os.environ.get(name, "http://127.0.0.1:9")


agent = Agent(
    "keeper",
    plugins=[
        Keeper(
            tokens=[reference(n) for n in range(5)],
            words={str(n): reference(n) for n in range(5, 10)},
        ),
        DecisionRules(
            rules=[
                {
                    "name": f"r{n}",
                    "source": f"alert-{n}",
                    "action": "keeper:gated" if n % 2 else "keeper:login",
                    "params": {"host": f"h{n}", "password": reference(n)},
                }
                for n in range(10, 20)
            ]
        ),
        Notifier(
            groups=[
                {
                    "name": "all",
                    "default": True,
                    "recipients": [{"url": _around("HOOK"), "style": "json"}],
                }
            ]
        ),
    ],
    secrets=[
        {
            "references": [reference(n) for n in range(30, 50)],
            "actions": ["keeper:*"],
            "params": ["password"],
        }
    ],
    procedures={"many": {"params": {"host": "string"}, "steps": [_step(n) for n in range(20, 30)]}},
    verification={"keeper:login": {"before": False, "in_flight": 50}},
    llm={"base_url": f"{_around('MODEL')}/v1", "model": "scripted"},
)
