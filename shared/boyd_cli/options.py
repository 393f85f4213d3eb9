"""Options of commands: their types, and those that many share: settings, API, agent, output."""

from __future__ import annotations

import functools
import inspect
import json
import math
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from boyd.models import unstorable, utc_now
from boyd.settings.process_settings import Settings, load_settings
from boyd.settings.validation import nearest
from boyd.text.formatting import UNITS, parse_moment
from boyd_cli import completion, output
from boyd_cli.api_access import Api, CommandAccess, Flags, open_api, open_store
from boyd_cli.completion import Offers, completer

_Command = Callable[..., Any]
_Decorator = Callable[[_Command], _Command]
_Check = Callable[[click.Context, click.Parameter, Any], Any]

_DURATION = re.compile(r"(\d{1,6})([smhdw])")


def _seconds(ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
    """Parse a duration such as `90d`."""
    if value is None:
        return None
    match = _DURATION.fullmatch(value)
    if match is None or int(match[1]) == 0:
        advice = "write a number and s, m, h, d or w, as in 90d"
        raise click.BadParameter(f"{value!r} is not a time; {advice}", ctx, param)
    return float(match[1]) * UNITS[match[2]]


#: An option for a duration, in seconds.
duration_option = functools.partial(click.option, callback=_seconds, metavar="TIME")


def _moment(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """Check a date, a date with a time, an age, `today` or `yesterday`."""
    if value is not None:
        try:
            parse_moment(value, utc_now())
        except ValueError as error:
            raise click.BadParameter(str(error), ctx, param) from None
    return value


def period_options(command: _Command) -> _Command:
    """Give *command* the options `--since` and `--until`, as the times `since` and `until`.

    They count from the clock of what *command* reads, so this stands below the options for access.
    """
    forms = "a date (local time by default), today, yesterday, or how long ago, as in 2h"

    @functools.wraps(command)
    def with_period(*args: Any, **params: Any) -> Any:
        texts = {name: text for name in ("since", "until") if (text := params[name])}
        if texts and (params.get("records") or params.get("observations")):
            raise click.UsageError("--since and --until do not apply to a file: omit them")
        now = _read_clock(params) if texts else utc_now()
        moments = {name: parse_moment(text, now) for name, text in texts.items()}
        if len(moments) == 2 and not moments["since"] < moments["until"]:
            raise click.BadParameter("it is not before --until", param_hint="--since")
        return command(*args, **params | moments)

    since = click.option(
        "--since", callback=_moment, metavar="TIME", help=f"Start of the period: {forms}."
    )
    until = click.option(
        "--until", callback=_moment, metavar="TIME", help="End of the period, likewise."
    )
    decorated: _Command = since(until(with_period))
    return decorated


def _read_clock(params: Mapping[str, Any]) -> datetime:
    """The time by Redis, which a command with these arguments reads over the API or directly."""
    access: CommandAccess | None = params.get("access")
    api: Api | None = access.api() if access else params.get("api")
    if api is not None:
        return api.deployment.read_clock()
    return open_store(access.settings if access else params["settings"]).clock.read()


class Whole(click.IntRange):
    """A whole number, named so in error messages: click speaks of an integer range."""

    name = "whole number"


class Number(click.FloatRange):
    """A number, likewise."""

    name = "number"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Parse a number; NaN and infinity, which JSON cannot hold, are refused."""
        number: float = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number", param, ctx)
        return number


def recording_options(jobs: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Options of commands that replay: `records`, `observations`, and `jobs` with that help."""
    file = click.Path(path_type=Path, exists=True, dir_okay=False)
    records = click.option(
        "--records", type=file, help="A file of records instead of archive and Redis."
    )
    observations = click.option(
        "--observations", type=file, help="Observations in CSV or JSON lines instead of records."
    )
    processes = click.option(
        "--jobs",
        type=Whole(1, 256),
        default=lambda: len(os.sched_getaffinity(0)),
        show_default="one per core",
        help=jobs,
    )
    return lambda command: records(observations(processes(command)))


def check_shape(shape: re.Pattern[str], expected: str) -> _Check:
    """A callback that refuses texts but those of that *shape*, which are what is *expected*."""

    def check(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
        if value is not None and not shape.fullmatch(value):
            raise click.BadParameter(f"{value!r} is not {expected}", ctx, param)
        return value

    return check


def words_option(
    *names: str,
    choices: Sequence[str] = (),
    offers: Callable[[Api], Offers] | None = None,
    **options: Any,
) -> _Decorator:
    """An option for words, separated by commas or repeated; only for *choices*, if there are any.

    Completion uses *offers*, or else the choices.
    """

    def split(ctx: click.Context, param: click.Parameter, values: Iterable[str]) -> list[str]:
        words = [word.strip() for value in values for word in value.split(",")]
        for word in words:
            if not word:
                raise click.BadParameter("empty values are not allowed", ctx, param)
            if choices and word not in choices:
                hint = nearest(word, choices)
                raise click.BadParameter(f"{word!r} is not a valid choice{hint}", ctx, param)
        return list(dict.fromkeys(words))

    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
        """Complete the word after the last comma."""
        before, comma, last = incomplete.rpartition(",")
        words = [choice for choice in choices if choice.startswith(last)]
        if offers is not None:
            words = [item.value for item in completer(offers)(ctx, param, last)]
        return [f"{before}{comma}{word}" for word in words]

    if choices:
        options["metavar"] = f"[{'|'.join(choices)}]"
    return click.option(*names, multiple=True, callback=split, shell_complete=complete, **options)


def parse_json(text: str | bytes) -> Any:
    """Parse JSON that the API takes; bytes in any encoding, with or without its mark.

    Raises:
        ValueError: it is not JSON, has a number that JSON cannot hold, or nests too deeply.
    """
    try:
        value = json.loads(text)
    except RecursionError:
        raise ValueError("it nests too deeply") from None
    flaw = unstorable(value)
    if flaw:
        raise ValueError(flaw)
    return value


def _object(_ctx: click.Context, param: click.Parameter, value: str | None) -> dict[str, Any]:
    """Parse a JSON object; `-` reads standard input."""
    if value is None:
        return {}
    try:
        parsed = parse_json(sys.stdin.buffer.read() if value == "-" else value)
    except ValueError as error:
        raise click.BadParameter(f"not JSON: {error}", param=param) from None
    if not isinstance(parsed, dict):
        raise click.BadParameter('it must be a JSON object, such as \'{"path": "/tmp"}\'')
    return parsed


#: An option for a JSON object.
object_option = functools.partial(click.option, metavar="JSON", callback=_object)


class Pairs(dict[str, Any]):
    """Values by name.

    Attributes:
        typed: the typed text of each value that was parsed as JSON and is no string.
    """

    def __init__(self) -> None:
        super().__init__()
        self.typed: dict[str, str] = {}


def _pairs(_ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> Pairs:
    """Parse `name=value`; a value is JSON if it parses, otherwise text."""
    pairs = Pairs()
    for text in values:
        name, sign, value = text.partition("=")
        if not sign or not name:
            raise click.BadParameter(f"{text!r} is not NAME=VALUE", param=param)
        try:
            pairs[name] = parse_json(value)
        except ValueError:
            pairs[name] = value
        if not isinstance(pairs[name], str):
            pairs.typed[name] = value
    return pairs


#: A repeatable option for `name=value`.
pairs_option = functools.partial(click.option, multiple=True, metavar="NAME=VALUE", callback=_pairs)


def _refuse_empty(complaint: str) -> _Check:
    def check(_ctx: click.Context, _param: click.Parameter, value: Any) -> Any:
        for text in value if isinstance(value, tuple) else (value,):
            if text is not None and not text.strip():
                raise click.BadParameter(complaint)
        return value

    return check


#: Refuses empty values: an unset shell variable must not select the default.
not_empty = _refuse_empty("it is empty: give a value, or omit the option")
_not_empty_id = _refuse_empty("the id is empty: give an id or a prefix of one")


def id_argument(name: str, offers: Callable[[Api], Offers], **options: Any) -> _Decorator:
    """An argument for an id or a prefix of one; completion offers *offers*."""
    complete = completer(offers)
    return click.argument(name, callback=_not_empty_id, shell_complete=complete, **options)


#: Names an agent; an empty name is refused and does not select the default.
agent_option = click.option(
    "--agent",
    callback=not_empty,
    shell_complete=completion.completer(completion.agents),
    help="The agent; required if there are several.",
)


def gives(name: str, load: Callable[..., object], *options: _Decorator) -> _Decorator:
    """Give a command *options*, and what *load* makes of their values as the argument *name*."""
    names = inspect.signature(load).parameters

    def decorate(command: _Command) -> _Command:
        @functools.wraps(command)
        def wrapper(*args: Any, **params: Any) -> Any:
            values = {key: params.pop(key) for key in names if key in params}
            return command(*args, **{name: load(**values)}, **params)

        decorated: _Command = wrapper
        for option in reversed(options):
            decorated = option(decorated)
        return decorated

    return decorate


_config = click.option("--config", type=click.Path(path_type=Path), help="Settings file (TOML).")
_redis_url = click.option("--redis-url", callback=not_empty, help="The Redis that holds the state.")
_log_level = click.option(
    "--log-level", type=click.Choice(["debug", "info", "warning", "error"]), help="Log level."
)
_api_flags = (
    click.option("--url", callback=not_empty, help="URL of the API."),
    click.option(
        "--key", help="API key. `ps` shows it to other users; BOYD_API_KEY_FILE does not."
    ),
    click.option(
        "--profile",
        callback=not_empty,
        shell_complete=completion.profiles,
        help="Take URL and key from this profile.",
    ),
)
_direct = click.option(
    "--redis", "direct", is_flag=True, help="Use Redis directly instead of the API."
)


def _load(config: Path | None, **options: str | None) -> Settings:
    flags = {key: value for key, value in options.items() if value is not None}
    if config is not None:
        os.environ["BOYD_CONFIG"] = str(config.resolve())  # for the processes that we start
    return load_settings(flags, config)


def _settings(config: Path | None, redis_url: str | None, log_level: str | None) -> Settings:
    return _load(config, redis_url=redis_url, log_level=log_level)


def _api(
    config: Path | None,
    url: str | None,
    key: str | None,
    profile: str | None,
    agent: str | None = None,
) -> Api:
    return open_api(_load(config), Flags(url, key, profile, agent))


def _access(
    config: Path | None,
    url: str | None,
    key: str | None,
    profile: str | None,
    direct: bool,
    redis_url: str | None,
) -> CommandAccess:
    settings = _load(config, redis_url=redis_url)
    return CommandAccess(settings, Flags(url, key, profile), direct or redis_url is not None)


#: `--config`, `--redis-url` and `--log-level`, as `settings`.
settings_options = gives("settings", _settings, _config, _redis_url, _log_level)
#: The options for the API, as `api`, which heeds an `--agent` that the command may have.
deployment_api_options = gives("api", _api, _config, *_api_flags)
#: The options for API and agent, as `api`.
api_options = gives("api", _api, agent_option, _config, *_api_flags)
#: The options for the API or Redis, as `access`.
access_options = gives("access", _access, _config, *_api_flags, _direct, _redis_url)


#: Agents to load, as `agents`.
agents_option = click.option(
    "--agent",
    "agents",
    multiple=True,
    metavar="FILE|MODULE:NAME",
    help="Agent to load; repeatable. Default: the setting `agents`.",
)


_FORMS = ("table", "json", "yaml")
_output = functools.partial(
    click.option,
    *("-o", "--output", "form"),
    type=click.Choice(_FORMS),
    default="table",
    show_default=True,
)
#: Gives a command the option `-o table|json|yaml`, as `form`.
output_option = _output(help="Output format.")
#: The same for commands that write reports.
report_option = _output(type=click.Choice([*_FORMS, "markdown"]), help="Output format.")
#: The same for commands that stream; see `print_item`.
lines_option = _output(help="Output format; json prints one object per line.")


def _ask(ctx: click.Context, param: click.Parameter, yes: bool) -> bool:
    if not yes and not output.can_ask():
        raise click.UsageError("pass --yes: there is no terminal on which to ask", ctx)
    return not yes


#: Gives a command that asks before it goes on the option `--yes`, and whether to ask, as `ask`.
yes_option = click.option(
    *("--yes", "ask"),
    is_flag=True,
    callback=_ask,
    help="Do not ask; necessary without a terminal.",
)

wait_option = click.option(
    "--wait",
    type=Number(0),
    default=30.0,
    show_default=True,
    help="Seconds to wait for the result; 0: do not wait.",
)


def data_options(command: _Command) -> _Command:
    """Give *command* `-o`, as `form`, and the options for API and agent, as `api`."""
    return output_option(api_options(command))


def with_agents(settings: Settings, agents: tuple[str, ...]) -> Settings:
    """The settings, with the agents of the command line if there are any."""
    return settings.model_copy(update={"agents": agents}) if agents else settings
