"""Playbooks: what people know about a kind of trouble, told to a model when it fits.

A playbook is a Markdown file that begins with its settings in YAML:

    ---
    name: Disk full
    description: What to do when a disk fills up
    trigger:
      severity: warning
      keywords: [disk, "no space left"]
      sources: ["host-metrics:"]
    priority: 10
    ---
    Look at /var/log first ...
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BeforeValidator, Field, StringConstraints, ValidationError

from boyd.errors import ConfigError
from boyd.models import SEVERITIES, Model, Observation, Severity, explain

#: Bytes that a file may have.
MAX_BYTES = 256 * 1024
#: Characters that its settings may have.
MAX_SETTINGS = 32 * 1024

PlaybookPhase = Literal["observe", "orient", "decide", "act"]
_Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
_FENCE = re.compile(r"^---[ \t]*(?:\n|\Z)", re.MULTILINE)
_CUT = "\n[... cut]"


def _several(value: Any) -> Any:
    """A list, also where only one was given."""
    return [value] if isinstance(value, str) else [] if value is None else value


def _usual_phases() -> list[PlaybookPhase]:
    return ["orient", "decide"]


def _whole_number(value: Any) -> Any:
    text = isinstance(value, str) and re.fullmatch(r"[+-]?\d{1,9}", value.strip())
    return int(value) if text else value


_Texts = Annotated[list[_Text], BeforeValidator(_several)]


class Trigger(Model):
    """When a playbook fits; what is not set always does, and all that is set must.

    Attributes:
        severity: some observation is at least as severe.
        keywords: one of them is in the source or the data of some observation, in either case.
        sources: the source of some observation begins with one of them.
    """

    severity: Severity | None = None
    keywords: _Texts = Field(default_factory=list)
    sources: _Texts = Field(default_factory=list)


class Playbook(Model):
    """One playbook; those of higher priority come first.

    Attributes:
        phases: in which phases of the loop it is told.
        body: the Markdown.
        source: where it comes from: a file, or a plugin.
    """

    id: _Text
    name: _Text
    description: _Text
    trigger: Annotated[Trigger, BeforeValidator(lambda value: {} if value is None else value)] = (
        Trigger()
    )
    phases: Annotated[list[PlaybookPhase], BeforeValidator(_several), Field(min_length=1)] = Field(
        default_factory=_usual_phases
    )
    priority: Annotated[int, BeforeValidator(_whole_number)] = 0
    body: Annotated[str, StringConstraints(strip_whitespace=True)] = ""
    source: str = ""


class _Loader(yaml.SafeLoader):
    """Reads every plain word as text: `404`, `yes` and `2026-01-01` are names and keywords.

    Aliases are refused: a few lines of them stand for a billion values.
    """

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """The next value."""
        if self.check_event(yaml.AliasEvent):
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise yaml.composer.ComposerError(None, None, "an alias (*) cannot be used here", mark)
        return super().compose_node(parent, index)


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag.endswith((":null", ":merge"))]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def parse(text: str, name: str) -> Playbook:
    """Read a playbook.

    Args:
        text: of the file.
        name: of the file; its id comes from that unless it says another.

    Raises:
        ConfigError: it is none; names the file and the field.
    """
    settings, body = _parts(text, name)
    _no_misspelled(settings, name)
    known = {key: value for key, value in settings.items() if key in Playbook.model_fields}
    if known.get("id") is None:
        known["id"] = _slug(Path(name).stem)
    if known.get("phases", ()) is None:
        del known["phases"]
    try:
        return Playbook.model_validate({**known, "body": body, "source": name})
    except ValidationError as error:
        raise ConfigError(f"{name}: {explain(error)}") from None


def load_folder(path: Path) -> tuple[list[Playbook], list[str]]:
    """The playbooks of a folder, by the names of their files, and what is wrong with the others."""
    playbooks: dict[str, Playbook] = {}
    warnings: list[str] = []
    try:
        files = sorted(one for one in path.iterdir() if one.suffix.lower() == ".md")
    except OSError as error:
        return [], [f"{path}: {error.strerror}"]
    for file in files:
        try:
            found = parse(_read(file), str(file))
            if found.id in playbooks:
                first = playbooks[found.id].source
                raise ConfigError(f"{file}: id: {found.id!r} is that of {first} already")
            playbooks[found.id] = found
        except ConfigError as error:
            warnings.append(str(error))
    return list(playbooks.values()), warnings


def match(
    playbooks: Iterable[Playbook], observations: Sequence[Observation], phase: PlaybookPhase
) -> list[Playbook]:
    """The playbooks that fit, highest priority first."""
    said = [_said(one) for one in observations]
    fit = [
        one for one in playbooks if phase in one.phases and _fits(one.trigger, observations, said)
    ]
    return sorted(fit, key=lambda one: (-one.priority, one.id))


def section(playbooks: Sequence[Playbook], limit_chars: int) -> str:
    """Playbooks for a prompt, in their order, within a limit; the first too long one is cut."""
    text = ""
    for one in playbooks:
        entry = f"## Playbook: {one.name}\n\n{one.description}\n\n{one.body}".rstrip()
        before = "\n\n" if text else ""
        left = limit_chars - len(text) - len(before)
        if len(entry) <= left:
            text += before + entry
            continue
        begins = left - len(_CUT)
        return text + before + entry[:begins].rstrip() + _CUT if begins > len(one.name) else text
    return text


def to_markdown(playbook: Playbook) -> str:
    """The file that `parse` reads this playbook from."""
    settings = playbook.model_dump(exclude={"body", "source"}, exclude_none=True)
    head = yaml.safe_dump(settings, sort_keys=False, allow_unicode=True, width=100)
    return f"---\n{head}---\n\n{playbook.body}\n"


def _parts(text: str, name: str) -> tuple[dict[str, Any], str]:
    """The settings and the body."""
    plain = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n").lstrip()
    begin = _FENCE.match(plain)
    end = _FENCE.search(plain, begin.end()) if begin else None
    if begin is None or end is None:
        raise ConfigError(f"{name}: does not begin with settings between two lines of ---")
    if end.start() - begin.end() > MAX_SETTINGS:
        raise ConfigError(f"{name}: the settings have more than {MAX_SETTINGS} characters")
    try:
        # A loader of our own, and a safe one.
        settings = yaml.load(plain[begin.end() : end.start()], Loader=_Loader)  # noqa: S506
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise ConfigError(f"{name}: {_where(error)}") from None
    if not isinstance(settings, dict):
        raise ConfigError(f"{name}: the settings are no mapping of names to values")
    return settings, plain[end.end() :]


def _where(error: Exception) -> str:
    """What is wrong with some YAML, in one line, with the line of the file."""
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark:
        return f"line {error.problem_mark.line + 2}: {error.problem or 'is no YAML'}"
    return "the settings nest too deeply" if isinstance(error, RecursionError) else str(error)


def _no_misspelled(settings: dict[str, Any], name: str) -> None:
    """Refuse what looks like a slip; other fields are notes of those who wrote them."""
    fields = {"id", "name", "description", "trigger", "phases", "priority"}
    for key in settings:
        close = difflib.get_close_matches(str(key).lower(), fields, 1, 0.75)
        if key not in fields and close:
            raise ConfigError(f"{name}: {key}: is no field; {close[0]} is")


def _read(file: Path) -> str:
    """The text of a file.

    Raises:
        ConfigError: it cannot be read, is too long, or is not in UTF-8.
    """
    try:
        with file.open("rb") as opened:
            raw = opened.read(MAX_BYTES + 1)
        if len(raw) > MAX_BYTES:
            raise ConfigError(f"{file}: is longer than {MAX_BYTES} bytes")
        return raw.decode()
    except OSError as error:
        raise ConfigError(f"{file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{file}: is not in UTF-8") from None


def _slug(stem: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", stem.lower()).strip("-") or "unknown"


def _said(observation: Observation) -> str:
    data = json.dumps(observation.data, ensure_ascii=False)
    return f"{observation.source}\n{data}".casefold()


def _fits(trigger: Trigger, observations: Sequence[Observation], said: Sequence[str]) -> bool:
    severities = [one.severity for one in observations if one.severity]
    return (
        (trigger.severity is None or any(_reaches(one, trigger.severity) for one in severities))
        and (not trigger.keywords or any(_mentioned(one, said) for one in trigger.keywords))
        and (not trigger.sources or any(_begins(one, trigger.sources) for one in observations))
    )


def _reaches(severity: Severity, least: Severity) -> bool:
    return SEVERITIES.index(severity) >= SEVERITIES.index(least)


def _mentioned(keyword: str, said: Sequence[str]) -> bool:
    """Whether some observation has *keyword*, as it is or as JSON escapes it."""
    forms = {keyword.casefold(), json.dumps(keyword, ensure_ascii=False)[1:-1].casefold()}
    return any(form in text for text in said for form in forms)


def _begins(observation: Observation, sources: Sequence[str]) -> bool:
    return observation.source.startswith(tuple(sources))
