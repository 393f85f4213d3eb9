"""Shell completion of ids and names, which the API is asked for; errors give no completions."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice

import click
from click.shell_completion import CompletionItem, get_completion_class

from boyd import naming
from boyd.errors import BoydError
from boyd.models import ApprovalQueue, ProcedureList, RunPage
from boyd.models.investigation import InvestigationPage
from boyd.settings.process_settings import load_settings
from boyd_cli import output
from boyd_cli.api_access import Api, Flags, open_api, profile_names
from boyd_cli.group import boyd

#: Names or ids, each with a description.
Offers = Iterable[tuple[str, str]]
Completer = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]

#: The longest wait after Tab, in seconds.
PATIENCE = 2.0
#: The largest number of completions.
_MOST = 200


def completer(find: Callable[[Api], Offers]) -> Completer:
    """Offer the ids from *find* that begin with the typed word."""

    def complete(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
        try:
            offers = islice(find(_api(ctx)), _MOST * 10)
            fitting = [(id, text) for id, text in offers if id.startswith(incomplete)]
        except BoydError:
            return []
        return [CompletionItem(id, help=output.one_line(text)) for id, text in fitting[:_MOST]]

    return complete


def _api(ctx: click.Context) -> Api:
    """Open the API for the half-typed command line."""
    url, key, profile, agent = (ctx.params.get(name) for name in ("url", "key", "profile", "agent"))
    settings = load_settings({}, ctx.params.get("config"))
    api = open_api(settings, Flags(url, key, profile, agent if isinstance(agent, str) else None))
    api.agent.timeout = api.deployment.timeout = PATIENCE
    return api


def agents(api: Api) -> Offers:
    """The agents that the key may access."""
    from boyd.models.responses import AgentList

    return [(entry.id, entry.name) for entry in api.deployment.get("/agents", AgentList).agents]


def actions(api: Api) -> Offers:
    """The actions of the agent."""
    from boyd.models.responses import ActionList

    manifests = api.agent.get("/actions", ActionList).actions
    return [(manifest.id, manifest.description) for manifest in manifests]


def iterations(api: Api) -> Offers:
    """The last iterations of the agent."""
    from boyd.models.responses import IterationList

    summaries = api.agent.get("/loop/history", IterationList, limit=50).iterations
    return [(str(summary.iteration), summary.situation or "") for summary in summaries]


def runs(api: Api) -> Offers:
    """The last runs."""
    return [(run.id, run.title) for run in api.agent.get("/runs", RunPage, limit=_MOST).runs]


def investigations(api: Api) -> Offers:
    """The last investigations."""
    page = api.agent.get("/investigations", InvestigationPage, limit=_MOST).investigations
    return [(investigation.id, investigation.question) for investigation in page]


def approvals(api: Api) -> Offers:
    """Pending approvals, then resolved ones."""
    queue = api.agent.get("/approvals", ApprovalQueue, includeHistory=True, limit=_MOST)
    for item in (*queue.pending, *queue.history):
        yield item.id, f"{item.action_id} {item.status}: {item.decision.rationale}"


def pending_approvals(api: Api) -> Offers:
    """Pending approvals."""
    queue = api.agent.get("/approvals", ApprovalQueue, limit=_MOST)
    return [(item.id, f"{item.action_id}: {item.decision.rationale}") for item in queue.pending]


def acknowledgeable(api: Api) -> Offers:
    """Open anomalies, then pending approvals."""
    from boyd.models.responses import AnomalyList

    for anomaly in api.agent.get("/anomalies", AnomalyList).anomalies:
        yield anomaly.id or "", anomaly.description
    yield from pending_approvals(api)


def procedures(api: Api) -> Offers:
    """The latest procedures."""
    for procedure in api.agent.get("/procedures", ProcedureList, limit=_MOST).procedures:
        yield procedure.id, procedure.action


def executions(api: Api) -> Offers:
    """The last executions that succeeded."""
    from boyd.models.responses import IterationList

    for past in api.agent.get("/loop/history", IterationList, limit=50).iterations:
        for result in past.results:
            if result.success:
                yield naming.iteration_execution(str(past.iteration)), result.action
    queue = api.agent.get("/approvals", ApprovalQueue, includeHistory=True, limit=_MOST)
    for item in queue.history:
        if item.result is not None and item.result.success:
            yield naming.approval(item.id), item.action_id


def cancellable_executions(api: Api) -> Offers:
    """The executions of clients that wait for their turn."""
    from boyd.models import HoldList

    for hold in api.agent.get("/holds", HoldList).holds:
        if hold.is_queued_call:
            yield hold.execution, f"{hold.action} {hold.target}".rstrip()


def keys(api: Api) -> Offers:
    """The keys of the API."""
    from boyd.models.responses import KeyList

    infos = api.deployment.get("/keys", KeyList).keys
    return [(info.id, f"{info.name} of {info.principal}") for info in infos]


def profiles(_ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the name of a profile."""
    try:
        return [CompletionItem(name) for name in profile_names() if name.startswith(incomplete)]
    except BoydError:
        return []


#: For bash, where a colon ends a word: click's own script cannot complete `plugin:action`.
_BASH = r"""_boyd_completion() {
    local line="${COMP_LINE:0:COMP_POINT}" word="" prefix="" type value
    local -a words
    read -ra words <<< "$line"
    local number=${#words[@]}
    if [[ $line != *[[:space:]] ]]; then
        number=$((number - 1))
        word="${words[number]}"
    fi
    [[ $COMP_WORDBREAKS != *:* ]] || prefix="${word%"${word##*:}"}"
    COMPREPLY=()
    while IFS=, read -r type value; do
        case $type in
            dir) compopt -o dirnames ;;
            file) compopt -o default ;;
            plain) COMPREPLY+=("${value#"$prefix"}") ;;
        esac
    done < <(COMP_WORDS="$line" COMP_CWORD=$number _BOYD_COMPLETE=bash_complete "$1")
}

complete -o nosort -F _boyd_completion boyd
"""


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script for a shell.

    For bash: `source <(boyd completion bash)`; add it to ~/.bashrc to make it permanent.
    """
    if shell == "bash":
        output.say(_BASH.rstrip())
        return
    kind = get_completion_class(shell)
    assert kind is not None, "click knows these shells"
    output.say(kind(boyd, {}, "boyd", "_BOYD_COMPLETE").source())
