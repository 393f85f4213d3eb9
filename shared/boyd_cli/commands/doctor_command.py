"""`boyd doctor`: problems of a deployment, and their remedies."""

from __future__ import annotations

import click

from boyd.agent import load_agent
from boyd.embedded.state_folder import with_redis
from boyd.errors import BoydError, StoreError, StoreLoginRefused
from boyd.health.checks import examine
from boyd.health.finding import Finding, error, ok
from boyd.health.reader import brokers_of, read_health
from boyd.plugin import Action, Observer
from boyd.settings.process_settings import Settings
from boyd.store import connect, mask_url
from boyd.text.formatting import counted
from boyd_cli import output
from boyd_cli.options import agents_option, settings_options, with_agents
from boyd_cli.views.tables import folded

#: Seconds to wait for an answer of Redis or of the broker.
PATIENCE = 3.0


@click.command()
@agents_option
@output.output_option
@settings_options
def doctor(settings: Settings, agents: tuple[str, ...], form: str) -> None:
    """Find problems, and suggest remedies.

    Checks Redis, workers, beats, queues and agents. Agents given here or in the settings are also
    checked for the queues that their plugins need. Exit status 1 if there is an error.
    """
    findings = _findings(with_redis(with_agents(settings, agents)))
    if not output.print_data(form, {"findings": findings}):
        _show(findings)
    output.fail_if(any(finding.level == "error" for finding in findings))


def _show(findings: list[Finding]) -> None:
    if len(findings) == 1:  # without Redis there is nothing else to look at
        output.say(f"{findings[0].level}: {_text(findings[0])}")
        return
    rows = [[finding.level, finding.subject, _text(finding)] for finding in findings]
    output.print_table(["", "check", folded("found")], rows)
    bad = sum(finding.level != "ok" for finding in findings)
    output.say()
    output.say(f"{counted(bad, 'problem')} found." if bad else "No problems found.")


def _text(finding: Finding) -> str:
    what = finding.what.rstrip(".")
    return f"{what}: {finding.what_to_do}" if finding.what_to_do else finding.what


def _findings(settings: Settings) -> list[Finding]:
    assert settings.redis_url is not None
    where = mask_url(settings.redis_url)
    needs, wrong = _needs(settings)
    client = connect(settings.redis_url, timeout=PATIENCE)
    brokers = brokers_of(settings, PATIENCE)
    try:
        health = read_health(client, brokers, needs)
    except StoreError as refusal:
        advice = "start it, or set BOYD_REDIS_URL to another server"
        if isinstance(refusal, StoreLoginRefused):
            advice = "check user and password in BOYD_REDIS_URL"
        return [error("redis", f"{where}: {refusal}", advice)]
    found = [ok("redis", f"{where} answers in {health.latency * 1000:.1f} ms")]
    if brokers and health.broker_error is None:
        named = " and ".join(map(mask_url, settings.broker_urls))
        found.append(ok("broker", f"{named} {'answer' if len(brokers) > 1 else 'answers'}"))
    return [*found, *examine(health, needs), *wrong]


def _needs(settings: Settings) -> tuple[dict[str, dict[str, list[str]]], list[Finding]]:
    """The queues that plugins name in the agent files."""
    needs: dict[str, dict[str, list[str]]] = {}
    wrong = []
    for reference in settings.agents:
        try:
            agent = load_agent(reference)
        except BoydError as mistake:
            wrong.append(error("agent file", str(mistake), f"see `boyd check {reference}`"))
        else:
            found = needs.setdefault(agent.id, {})
            parts: list[Observer | Action] = [*agent.host.observers.values()]
            for part in (*parts, *agent.host.actions.values()):
                if part.queue:
                    found.setdefault(part.queue, []).append(part.id)
    return needs, wrong
