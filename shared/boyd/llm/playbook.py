"""Playbooks: instructions for a kind of problem, given to a model when they match.

A playbook is a Markdown file with YAML front matter:

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
from boyd.settings.validation import decode

#: Bytes of a file.
MAX_BYTES = 256 * 1024
#: Characters of its front matter.
MAX_SETTINGS = 32 * 1024

PlaybookPhase = Literal["observe", "orient", "decide", "act"]
_DEFAULT_PHASES: tuple[PlaybookPhase, ...] = ("orient", "decide")
_Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
_FENCE = re.compile(r"^---[ \t]*(?:\n|\Z)", re.MULTILINE)
_CUT = "\n[... cut]"


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, str) else [] if value is None else value


def _as_integer(value: Any) -> Any:
    text = isinstance(value, str) and re.fullmatch(r"[+-]?\d{1,9}", value.strip())
    return int(value) if text else value


_Texts = Annotated[list[_Text], BeforeValidator(_as_list)]


class Trigger(Model):
    """The condition of a playbook: every field that is set must match some observation.

    Attributes:
        severity: the minimum severity.
        keywords: one of them occurs in the source or the data, ignoring case.
        sources: the source begins with one of them.
    """

    severity: Severity | None = None
    keywords: _Texts = Field(default_factory=list)
    sources: _Texts = Field(default_factory=list)


class Playbook(Model):
    """One playbook.

    Attributes:
        phases: phases of the loop in which it is used.
        priority: higher ones come first.
        body: the Markdown.
        source: its file or plugin.
    """

    id: _Text
    name: _Text
    description: _Text
    trigger: Annotated[Trigger, BeforeValidator(lambda value: {} if value is None else value)] = (
        Trigger()
    )
    phases: Annotated[list[PlaybookPhase], BeforeValidator(_as_list), Field(min_length=1)] = Field(
        default_factory=lambda: list(_DEFAULT_PHASES)
    )
    priority: Annotated[int, BeforeValidator(_as_integer)] = 0
    body: Annotated[str, StringConstraints(strip_whitespace=True)] = ""
    source: str = ""


class _Loader(yaml.SafeLoader):
    """Reads every plain word as text: `404`, `yes` and `2026-01-01` are names and keywords.

    Aliases are rejected: a few lines of them can expand to a billion values.
    """

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """Compose the next value."""
        if self.check_event(yaml.AliasEvent):
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise yaml.composer.ComposerError(None, None, "aliases (*) are not allowed", mark)
        return super().compose_node(parent, index)


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag.endswith((":null", ":merge"))]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def parse(text: str, name: str) -> Playbook:
    """Parse the *text* of file *name*, which also gives the default id; raises `ConfigError`."""
    settings, body = _split(text, name)
    _check_spelling(settings, name)
    fields = {key: value for key, value in settings.items() if key in Playbook.model_fields}
    if fields.get("id") is None:
        fields["id"] = _slug(Path(name).stem)
    if fields.get("phases", ()) is None:
        del fields["phases"]
    try:
        return Playbook.model_validate({**fields, "body": body, "source": name})
    except ValidationError as error:
        raise ConfigError(f"{name}: {explain(error)}") from None


def load_folder(path: Path) -> tuple[list[Playbook], list[str]]:
    """The playbooks of a folder in order of their file names, and warnings about invalid ones."""
    playbooks: dict[str, Playbook] = {}
    warnings: list[str] = []
    try:
        # Hidden ones are of editors and systems, such as `.#disk.md`.
        files = sorted(
            file
            for file in path.iterdir()
            if file.suffix.lower() == ".md" and not file.name.startswith(".")
        )
    except OSError as error:
        return [], [f"{path}: {error.strerror}"]
    for file in files:
        try:
            playbook = parse(_read(file), str(file))
            if playbook.id in playbooks:
                first = playbooks[playbook.id].source
                raise ConfigError(f"{file}: id: {playbook.id!r} is already used by {first}")
            playbooks[playbook.id] = playbook
        except ConfigError as error:
            warnings.append(str(error))
    return list(playbooks.values()), warnings


def match(
    playbooks: Iterable[Playbook], observations: Sequence[Observation], phase: PlaybookPhase
) -> list[Playbook]:
    """The matching playbooks, highest priority first."""
    data = [json.dumps(each.data, ensure_ascii=False) for each in observations]
    texts = [f"{o.source}\n{text}".casefold() for o, text in zip(observations, data, strict=True)]
    matching = [
        playbook
        for playbook in playbooks
        if phase in playbook.phases and _matches(playbook.trigger, observations, texts)
    ]
    return sorted(matching, key=lambda playbook: (-playbook.priority, playbook.id))


def section(playbooks: Sequence[Playbook], limit_chars: int) -> str:
    """Playbooks for a prompt within a limit; the first one that does not fit is cut."""
    text = ""
    for playbook in playbooks:
        heading = f"## Playbook: {playbook.name}"
        entry = f"{heading}\n\n{playbook.description}\n\n{playbook.body}".rstrip()
        before = "\n\n" if text else ""
        left = limit_chars - len(text) - len(before)
        if len(entry) <= left:
            text += before + entry
            continue
        room = left - len(_CUT)
        return text + before + entry[:room].rstrip() + _CUT if room > len(playbook.name) else text
    return text


def to_markdown(playbook: Playbook) -> str:
    """The file content from which `parse` reads this playbook."""
    settings = playbook.model_dump(exclude={"body", "source"}, exclude_none=True)
    head = yaml.safe_dump(settings, sort_keys=False, allow_unicode=True, width=100)
    return f"---\n{head}---\n\n{playbook.body}\n"


def _split(text: str, name: str) -> tuple[dict[str, Any], str]:
    plain = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n").lstrip()
    begin = _FENCE.match(plain)
    end = _FENCE.search(plain, begin.end()) if begin else None
    if begin is None or end is None:
        raise ConfigError(f"{name}: must start with settings between two lines of ---")
    if end.start() - begin.end() > MAX_SETTINGS:
        raise ConfigError(f"{name}: the settings have more than {MAX_SETTINGS} characters")
    try:
        # The custom loader is a safe one.
        settings = yaml.load(plain[begin.end() : end.start()], Loader=_Loader)  # noqa: S506
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise ConfigError(f"{name}: {_explain_yaml(error)}") from None
    if not isinstance(settings, dict):
        raise ConfigError(f"{name}: the settings are not a mapping of names to values")
    return settings, plain[end.end() :]


def _explain_yaml(error: Exception) -> str:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark:
        return f"line {error.problem_mark.line + 2}: {error.problem or 'invalid YAML'}"
    return "the settings nest too deeply" if isinstance(error, RecursionError) else str(error)


def _check_spelling(settings: dict[str, Any], name: str) -> None:
    """Reject fields that look misspelled; other unknown fields are the author's notes."""
    fields = {"id", "name", "description", "trigger", "phases", "priority"}
    for key in settings:
        close = difflib.get_close_matches(str(key).lower(), fields, 1, 0.75)
        if key not in fields and close:
            raise ConfigError(f"{name}: {key}: unknown field; did you mean {close[0]}?")


def _read(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            raw = opened.read(MAX_BYTES + 1)
        if len(raw) > MAX_BYTES:
            raise ConfigError(f"{file}: is longer than {MAX_BYTES} bytes")
        return decode(raw)
    except OSError as error:
        raise ConfigError(f"{file}: {error.strerror}") from None
    except ValueError as error:
        raise ConfigError(f"{file}: {error}") from None


def _slug(stem: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", stem.lower()).strip("-") or "unknown"


def _matches(trigger: Trigger, observations: Sequence[Observation], texts: Sequence[str]) -> bool:
    rank = SEVERITIES.index
    severities = [rank(each.severity) for each in observations if each.severity]
    prefixes = tuple(trigger.sources)
    return (
        (trigger.severity is None or max(severities, default=-1) >= rank(trigger.severity))
        and (not trigger.keywords or any(_occurs(word, texts) for word in trigger.keywords))
        and (not prefixes or any(each.source.startswith(prefixes) for each in observations))
    )


def _occurs(keyword: str, texts: Sequence[str]) -> bool:
    """Report whether *keyword* occurs, as it is or as JSON escapes it."""
    forms = {keyword.casefold(), json.dumps(keyword, ensure_ascii=False)[1:-1].casefold()}
    return any(form in text for text in texts for form in forms)
