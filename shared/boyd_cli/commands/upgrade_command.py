"""`boyd upgrade --check`: whether this release can take over a deployment, and how."""

from __future__ import annotations

from collections.abc import Iterator

import click

from boyd.agent import load_agent
from boyd.embedded.state_folder import with_archive
from boyd.errors import BoydError
from boyd.health.finding import Finding, error, ok, warning
from boyd.health.reader import read_health
from boyd.health.server_checks import order, processes_by_version
from boyd.health.snapshot import HealthSnapshot
from boyd.models import Model, utc_now
from boyd.settings.process_settings import Settings
from boyd.store import connect
from boyd.store.keys import SHARED_TYPES
from boyd.store.server.scripts import FORMAT
from boyd.text.formatting import counted
from boyd.text.version import VERSION
from boyd_cli import output
from boyd_cli.commands.check_commands import PATIENCE, show_checks
from boyd_cli.options import agents_option, output_option, settings_options, with_agents

#: The order of an upgrade: readers of records first, then those that may write new fields.
STEPS = (
    "the archive: it changes its tables when it starts",
    "workers, then act workers and beats",
    "the API and traces",
)


class UpgradeCheck(Model):
    """A comparison of a deployment with this release.

    `state` is `blocked` by an error, else `done` when nothing is left to do, `mixed` while several
    releases run, and `ready` before that. `steps` are left to do, in order; from a newer release
    to this one they begin with the API.
    """

    version: str = VERSION
    state: str
    findings: list[Finding]
    steps: list[str]


@click.command()
@click.option("--check", is_flag=True, help="Say whether and how to upgrade; change nothing.")
@agents_option
@output_option
@settings_options
def upgrade(settings: Settings, check: bool, agents: tuple[str, ...], form: str) -> None:
    """Check whether this release can take over a deployment.

    Compares the release that runs this command with live processes, the data in Redis, the tables
    of the archive and the agent files. Exit status 1 if something stands in the way.
    """
    if not check:
        raise click.UsageError(
            "Boyd is upgraded by its package or image: --check says whether and how"
        )
    result = check_upgrade(with_archive(with_agents(settings, agents)))
    if not output.print_item(form, result):
        show_checks(result.findings, utc_now())
        output.say()
        _show_steps(result)
    output.fail_if(result.state == "blocked")


def check_upgrade(settings: Settings) -> UpgradeCheck:
    """Compare this release with a deployment.

    Raises:
        StoreError: Redis does not answer.
    """
    assert settings.redis_url is not None
    health = read_health(connect(settings.redis_url, timeout=PATIENCE))
    findings = [
        *_check_processes(health),
        *_check_data(health),
        *_check_tables(settings),
        *_check_agent_files(settings),
    ]
    versions = {process.version for process in health.roster.live()}
    pending = any(finding.subject == "archive" and finding.level != "ok" for finding in findings)
    if any(finding.level == "error" for finding in findings):
        state = "blocked"
    elif len(versions) > 1:
        state = "mixed"
    else:
        state = "ready" if versions - {VERSION} or pending else "done"
    rolls_back = any(order(version) > order(VERSION) for version in versions)
    steps = list(reversed(STEPS) if rolls_back else STEPS) if state in ("ready", "mixed") else []
    return UpgradeCheck(state=state, findings=findings, steps=steps)


def _show_steps(result: UpgradeCheck) -> None:
    texts = {
        "blocked": "Do not upgrade before the errors are gone.",
        "done": f"Nothing is left to replace by {VERSION}.",
    }
    if result.state in texts:
        output.say(texts[result.state])
        return
    output.say(f"Replace these by {VERSION}, one process after the other:")
    for number, step in enumerate(result.steps, 1):
        output.say(f"  {number}. {step}")
    output.say("To go back, take the same steps from the last one.")


def _check_processes(health: HealthSnapshot) -> Iterator[Finding]:
    """Compare the versions of live workers and beats with this one."""
    roster = health.roster
    for version, processes in processes_by_version(roster.live()).items():
        names = ", ".join(f"{process.role} {process.name}" for process in processes)
        if version == VERSION:
            yield ok("processes", f"{counted(len(processes), 'process', 'processes')} of {VERSION}")
        elif order(version) > order(VERSION):
            advice = f"run this command of {version}, or roll these back to {VERSION}"
            yield warning("processes", f"{version} is newer than {VERSION}: {names}", advice)
        else:
            yield warning("processes", f"{version} runs: {names}", f"replace them by {VERSION}")
    if not roster.live():
        yield ok("processes", "no worker or beat runs")
    for name in roster.unreadable:
        advice = "a newer release may have written it: use that one"
        yield error("processes", f"the record of {name} cannot be read", advice)


def _check_data(health: HealthSnapshot) -> Iterator[Finding]:
    """Check that this release reads the data of each agent."""
    newer = {agent.entry.id: agent.state.format for agent in health.agents}
    newer = {name: format for name, format in newer.items() if format > FORMAT}
    for name, format in newer.items():
        problem = f"agent {name} is kept in format {format}; this release reads up to {FORMAT}"
        yield error("data", problem, "use the release that wrote it, or a later one")
    for name in health.unreached:
        advice = "start it, or let a replica take its place, and check again"
        yield error("data", f"the server with the state of agent {name} does not answer", advice)
    for key in health.roster.foreign:
        advice = "delete it, or restore it from a backup, and check again"
        yield error("data", f"{key} holds something else than a {SHARED_TYPES[key]}", advice)
    if not (newer or health.unreached or health.roster.foreign):
        yield ok("data", f"in format {FORMAT}, which this release reads and writes")


def _check_tables(settings: Settings) -> Iterator[Finding]:
    """Compare the tables of the archive, if there is one, with those of this release."""
    if not settings.archive_url:
        return
    from boyd.export.archive.database import NEWEST, Database

    try:
        database = Database(settings.archive_url)
        try:
            current = database.version()
        finally:
            database.close()
    except BoydError as problem:
        yield error("archive", str(problem), "start its database, or correct BOYD_ARCHIVE_URL")
        return
    if current == NEWEST:
        yield ok("archive", f"its tables have version {NEWEST}")
    elif current is None:
        yield ok("archive", "it has no tables yet; the archive creates them when it starts")
    elif current < NEWEST:
        text = f"its tables have version {current}, this release needs {NEWEST}"
        yield warning("archive", text, "back it up; the archive changes them when it starts")
    else:
        text = f"its tables have version {current}, which is newer than {NEWEST} of this release"
        yield error("archive", text, "run the archive of the newer release, or restore a backup")


def _check_agent_files(settings: Settings) -> Iterator[Finding]:
    """Check that this release accepts the agent files."""
    for reference in settings.agents:
        try:
            agent = load_agent(reference)
        except BoydError as problem:
            advice = f"change it before the upgrade: see `boyd check {reference}`"
            yield error("agent file", output.one_line(str(problem)), advice)
        else:
            yield ok("agent file", f"{reference}: this release accepts agent {agent.id}")
