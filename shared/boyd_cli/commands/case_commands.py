"""`boyd cases` and `boyd test`: regression cases of an agent, made of recorded iterations."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click

from boyd.models import LoopResult
from boyd.models.replayed import Fate
from boyd.settings.process_settings import Settings
from boyd_cli import completion, output
from boyd_cli.api_access import Api
from boyd_cli.commands.history_command import ITERATION
from boyd_cli.commands.replay_command import chosen_agent, shadow_task
from boyd_cli.options import api_options, not_empty, settings_options
from boyd_cli.parameter_types import object_option
from boyd_cli.views.tables import folded, label, whole

if TYPE_CHECKING:
    from boyd.replay.regression_cases import Expectation


@click.group()
def cases() -> None:
    """Keep recorded iterations as regression cases of an agent."""


@cases.command()
@click.argument(
    "iteration", type=ITERATION, shell_complete=completion.completer(completion.iterations)
)
@click.option("--expect", metavar="ACTION", callback=not_empty, help="The right action, or no-op.")
@object_option("--params", help="Its params; absent: any.")
@click.option("--fate", type=click.Choice(get_args(Fate)), help="What the gate should make of it.")
@click.option("--name", callback=not_empty, help="The case's name; default: number and action.")
@click.option(
    "--folder",
    type=click.Path(path_type=Path),
    default=Path("cases"),
    show_default=True,
    help="The folder of cases, beside the agent file.",
)
@api_options
def add(
    api: Api,
    iteration: str,
    expect: str | None,
    params: Any,
    fate: Fate | None,
    name: str | None,
    folder: Path,
) -> None:
    """Make a case of ITERATION: it should be decided as it was, or as --expect says."""
    from boyd.replay.regression_cases import Expectation, ReplayCase, write_case

    if not expect and (params or fate):
        raise click.UsageError("--params and --fate need --expect")
    record = api.agent.get(f"/loop/history/{iteration}", LoopResult)
    if expect:
        expectation = Expectation(action=expect, params=params or None, fate=fate)
    else:
        expectation = _as_was(record)
    name = name or f"{iteration}-{expectation.action.replace(':', '-')}"
    path = write_case(folder, name, ReplayCase(expect=expectation, record=record))
    output.say(f"wrote {path}; `boyd test` replays it")


def _as_was(record: LoopResult) -> Expectation:
    from boyd.replay.differences import recorded_course
    from boyd.replay.regression_cases import Expectation
    from boyd.replay.shadow import CannotTell

    try:
        return Expectation.of(recorded_course(None, record))
    except CannotTell as unknown:
        output.stop(output.FAILED, f"{unknown}; say what is right with --expect ACTION")


@click.command()
@click.argument("agent", required=False)
@click.option(
    "--folder",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="The folder of cases; default: `cases` beside the agent file.",
)
@output.output_option
@settings_options
def test(settings: Settings, agent: str | None, folder: Path | None, form: str) -> None:
    """Replay all cases of an agent; fails if one is decided otherwise.

    AGENT is an agent file or module:agent; default: the setting `agents`, or agent.toml here.
    """
    from boyd.replay.regression_cases import CaseResult, folder_of, read_cases
    from boyd.replay.shadow_pool import ShadowPool

    reference = chosen_agent(settings, agent)
    where = folder or folder_of(reference)
    known = read_cases(where)
    if not known:
        output.stop(output.FAILED, f"no cases in {where}: make one with `boyd cases add`")
    with ShadowPool(shadow_task(reference, None), 1) as pool:
        portions = [[case.record.to_json() for case in known.values()]]
        found = [one for portion in pool.judge(portions) for one in portion]
    pairs = zip(known.items(), found, strict=True)
    results = [CaseResult.of(name, case, judgement) for (name, case), judgement in pairs]
    if not output.print_data(form, results):
        rows = [[one.case, _verdict(one.mistakes), "\n".join(one.mistakes)] for one in results]
        output.print_table([label("case", least=20), whole("result"), folded("why")], rows)
    output.fail_if(any(one.mistakes for one in results))


def _verdict(mistakes: list[str]) -> str:
    return "failed" if mistakes else "ok"
