"""`boyd init`: writes an agent file and a first plugin."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from string import Template

import click

from boyd.errors import ConfigError
from boyd_cli import output

#: What a new folder may be called, as the agent is called so, too.
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}", re.ASCII)

_AGENT = Template("""\
# An agent: its name, when it runs, and its plugins.
# Check it with `boyd check $file`, run it with `boyd up $file`.

# Identifies the agent in Redis keys, queues, metrics and commands.
id = "$id"
name = "$name"

# When iterations start:
#   manual        by `boyd trigger`, the API or a run
#   continuous    also every `loop_interval` seconds
#   event-driven  also at once for every event from outside
mode = "continuous"
loop_interval = 10

# Folder of your own plugins; each file may define one or more.
plugins_dir = "plugins"

# Seconds until a pending approval expires.
[approvals]
ttl = 3600

# Lets you approve actions that you requested: remove it once a second person can approve.
[approvals.required]
allow_requester = true

# Maximum number of executions of an action per target within a window of seconds; further
# ones wait for approval.
[budgets]
"hello:greet" = { limit = 5, window = 60 }

# Plugins, in order: `use` is a name that `boyd check` shows, an id from plugins_dir, or
# "package.module:Class".
[[plugins]]
use = "hello"
[plugins.options]
name = "world"

# Processor, memory, disks and load of the hosts that workers run on.
[[plugins]]
use = "host-metrics"
[plugins.options]
# A little less than loop_interval, so that a measurement is due in every iteration.
interval = 9

# Decisions that need a person's approval. Keep it last, so that it sees the final decision.
[[plugins]]
use = "approval-policy"
[plugins.options]
risks = ["high", "critical"]
""")

_PLUGIN = '''\
"""A first plugin: greets once, if nobody has been greeted yet."""

from pydantic import BaseModel, Field

from boyd import Context, Decision, Observation, Plugin, Situation, SituationAssessment
from boyd import action, observer, orienter, strategy


class GreetParams(BaseModel):
    """Parameters of the action; invalid ones are refused before it runs."""

    name: str = Field(min_length=1)


class Hello(Plugin):
    """Greets. Every worker has its own instance, so shared state belongs in `ctx.state`."""

    id = "hello"

    class Options(Plugin.Options):
        """The options that the agent file may set."""

        name: str = "world"

    options: Options

    @observer(timeout=5)
    def greeted(self, ctx: Context) -> list[Observation]:
        """Observe: has anybody been greeted?"""
        done = ctx.state.get("greeted", False)
        return [Observation(source=self.id, type="state", severity="info", data={"greeted": done})]

    @orienter()
    def manners(self, observations: list[Observation]) -> SituationAssessment:
        """Orient: what does that mean?"""
        mine = [o for o in observations if o.source == self.id]
        missing = any(not o.data["greeted"] for o in mine)
        return SituationAssessment(
            source=f"{self.id}:manners",
            findings=["Nobody has been greeted" if missing else "Everybody has been greeted"],
            confidence=0.9,
            data={"missing": missing},
        )

    @strategy()
    def be_polite(self) -> Decision:
        """Decide: greet."""
        return Decision(
            action=f"{self.id}:greet",
            params={"name": self.options.name},
            rationale="Nobody has been greeted yet",
            confidence=0.9,
        )

    @be_polite.applicable_when
    def _missing(self, situation: Situation) -> bool:
        return situation.evidence(f"{self.id}:manners").get("missing") is True

    # With risk="high" the approval policy would ask a person first.
    @action(risk="low", idempotent=True, timeout=5, target="name")
    def greet(self, params: GreetParams, ctx: Context) -> str:
        """Act: greet."""
        ctx.state.set("greeted", True)
        ctx.logger.info("Hello, %s!", params.name)
        return f"Hello, {params.name}!"
'''


@click.command()
@click.argument("folder", default=".", type=click.Path(path_type=Path, file_okay=False))
def init(folder: Path) -> None:
    """Write an agent file and a first plugin.

    They go into FOLDER; existing files are not overwritten.
    """
    name = folder.resolve().name
    if not folder.exists() and not _PLAIN.fullmatch(name):
        problem = f"{name!r} is not a valid agent id: use letters, digits, '.', '_' and '-'"
        raise ConfigError(f"{problem}, as in {_slug(name)}; nothing was written")
    agent, plugin = folder / "agent.toml", folder / "plugins" / "hello.py"
    slug = _slug(name)
    title = re.sub(r"[-_.]+", " ", slug).strip().capitalize()
    texts = {agent: _AGENT.substitute(id=slug, name=title, file=agent.name), plugin: _PLUGIN}
    for path in texts:
        if path.exists():
            raise ConfigError(f"{path} already exists; nothing was written")
    for path, text in texts.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("x", encoding="utf-8") as file:
                file.write(text)
        except OSError as error:
            raise ConfigError(f"{path} cannot be written: {error.strerror}") from None
        output.say(f"wrote {path}")
    boyd, reference = shlex.quote(output.command_name()), shlex.quote(str(agent))
    output.say(f"Next: {boyd} check {reference} && {boyd} up {reference}")


def _slug(name: str) -> str:
    plain = re.sub(r"[^a-z0-9._-]+", "-", name.lower()).strip("._-")
    return plain[:63] or "agent"
