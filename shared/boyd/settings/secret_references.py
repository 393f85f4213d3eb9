"""References to secrets, such as `secret://vault/db/prod#password`, and who reads them.

A reference is stored, shown and signed; its value exists only in the memory of the process that
uses it. Providers are found by entry points in the group `boyd.secrets`.
"""

from __future__ import annotations

import json
import re
import time
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import entry_points
from threading import Lock
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError

from boyd.errors import ConfigError, SecretUnavailable
from boyd.settings.validation import mistakes, nearest
from boyd.text.redaction import MIN_LENGTH, register_referenced

GROUP = "boyd.secrets"
SCHEME = "secret://"
#: The most characters of a reference and of a value.
MAX_REFERENCE, MAX_SECRET = 500, 65_536
#: The most references in the parameters of one call.
MAX_REFERENCES = 20

_REFERENCE = re.compile(
    r"secret://(?P<provider>[a-z0-9][a-z0-9_-]{0,62})/(?P<path>[\w.~+=@:-]+(?:/[\w.~+=@:-]+)*)"
    r"(?:#(?P<field>[^\s#]{1,200}))?",
    re.ASCII,
)


class SecretSettings(BaseModel):
    """Settings of secrets that are named by references.

    Attributes:
        cache: seconds for which a process keeps a value in its memory; 0: it reads each time.
        max_cached: the most values that it keeps.
        providers: the providers by the name that references use: each has its options, and `use`
            if its kind has another name.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    cache: float = Field(default=10.0, ge=0, le=3600)
    max_cached: int = Field(default=1000, gt=0, le=100_000)
    providers: dict[str, dict[str, Any]] = Field(default_factory=dict)


class SecretProvider(ABC):
    """Reads secrets from where they are kept; subclasses are entry points in `boyd.secrets`."""

    class Options(BaseModel):
        """The options in `secrets.providers.NAME`; an unknown one is an error."""

        # An input may be a password in the wrong place.
        model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    options: Any

    def __init__(self, options: BaseModel) -> None:
        self.options = options

    @abstractmethod
    def read(self, path: str) -> str | Mapping[str, Any]:
        """The secret at *path*, as a text or with its fields.

        It has a time limit of its own, and may be called by several threads at once.

        Raises:
            SecretUnavailable: it cannot be read.
        """


@dataclass(frozen=True)
class SecretReference:
    """A reference: the name of a provider, a path there, and perhaps a field."""

    text: str
    provider: str
    path: str
    field: str | None = None

    @classmethod
    def parse(cls, text: str) -> SecretReference:
        """Parse *text*.

        Raises:
            ValueError: it is no reference.
        """
        match = _REFERENCE.fullmatch(text) if len(text) <= MAX_REFERENCE else None
        if match is None or not {".", ".."}.isdisjoint(match["path"].split("/")):
            raise ValueError(
                f"{text[:100]!r} is no reference to a secret: write secret://PROVIDER/PATH#FIELD"
            )
        return cls(text, match["provider"], match["path"], match["field"])

    def select(self, secret: str | Mapping[str, Any]) -> str:
        """The value that it stands for in the *secret* at its path.

        Raises:
            SecretUnavailable: there is no such field, or no text that could be masked.
        """
        value = secret if self.field is None else self._field_of(secret)
        if isinstance(value, Mapping):
            example = f"{self.text}#{next(iter(value), 'FIELD')}"
            raise SecretUnavailable(f"{self.text} has fields: name one of them, as {example}")
        text = value if isinstance(value, str) else json.dumps(value)
        if not MIN_LENGTH <= len(text.strip()) <= MAX_SECRET:
            raise SecretUnavailable(
                f"{self.text} has {len(text.strip())} characters; only a secret of {MIN_LENGTH} to "
                f"{MAX_SECRET} can be masked wherever it appears"
            )
        return text

    def _field_of(self, secret: str | Mapping[str, Any]) -> Any:
        fields: Any = secret
        if isinstance(secret, str):
            with suppress(ValueError):
                fields = json.loads(secret)
        if not isinstance(fields, Mapping) or fields.get(self.field or "") is None:
            raise SecretUnavailable(f"{self.text}: the secret has no field {self.field!r}")
        return fields[self.field or ""]


class SecretReader:
    """Reads what references stand for, and keeps it in memory for some seconds."""

    def __init__(self, settings: SecretSettings | None = None) -> None:
        self.settings = settings or SecretSettings()
        self._providers: dict[str, SecretProvider] = {}
        self._cache: OrderedDict[tuple[str, str], tuple[float, str | Mapping[str, Any]]]
        self._cache = OrderedDict()
        self._lock = Lock()

    def read(self, text: str) -> str:
        """The secret that the reference *text* stands for; errors and logs will not show it.

        Raises:
            SecretUnavailable: it cannot be read.
        """
        try:
            reference = SecretReference.parse(text)
        except ValueError as error:
            raise SecretUnavailable(str(error)) from None
        try:
            secret = self._read(reference)
        except Exception as error:  # noqa: BLE001 - whatever a provider raises is a refusal
            # What a library says may quote the secret: only the type of it, and no chain.
            reason = str(error) if isinstance(error, ConfigError) else type(error).__name__
            raise SecretUnavailable(f"{text} could not be read: {reason}") from None
        value = reference.select(secret)
        register_referenced(value)
        return value

    def provider(self, name: str) -> SecretProvider:
        """The provider that references call *name*.

        Raises:
            ConfigError: it is not set, its kind is not installed, or its options are invalid.
        """
        with self._lock:
            if name not in self._providers:
                self._providers[name] = self._make(name)
            return self._providers[name]

    def _read(self, reference: SecretReference) -> str | Mapping[str, Any]:
        key, now = (reference.provider, reference.path), time.monotonic()
        with self._lock:
            until, secret = self._cache.get(key, (0.0, ""))
        if now < until:
            return secret
        secret = self.provider(reference.provider).read(reference.path)
        with self._lock:
            self._cache[key] = (now + self.settings.cache, secret)
            self._cache.move_to_end(key)
            while len(self._cache) > (self.settings.max_cached if self.settings.cache else 0):
                self._cache.popitem(last=False)
        return secret

    def _make(self, name: str) -> SecretProvider:
        options = self.settings.providers.get(name)
        if options is None:
            raise ConfigError(
                f"there is no provider {name!r}: add the table [secrets.providers.{name}] to the "
                f"settings of this process{nearest(name, self.settings.providers)}"
            )
        kind = _kind(str(options.get("use", name)))
        try:
            values = {key: value for key, value in options.items() if key != "use"}
            return kind(kind.Options(**values))
        except ValidationError as error:
            reason = mistakes(error, kind.Options)
            raise ConfigError(f"secrets.providers.{name}: {reason}") from None


class SuppliedSecrets(SecretReader):
    """Knows only what it was given: for a sandbox, which reaches no provider."""

    def __init__(self, values: Mapping[str, str]) -> None:
        super().__init__()
        self._values = values
        register_referenced(*values.values())

    def read(self, text: str) -> str:
        """The value that it was given.

        Raises:
            SecretUnavailable: there is none.
        """
        if text not in self._values:
            raise SecretUnavailable(f"{text} is not among the options of the plugin")
        return self._values[text]


class ReferencesOnly(SecretReader):
    """Reads nothing, and leaves references as they are: for a replay."""

    def read(self, text: str) -> str:
        """The reference itself."""
        return text


_reader = SecretReader()


def use_reader(reader: SecretReader) -> None:
    """Let *reader* read all secrets of this process from now on."""
    global _reader
    _reader = reader


def read_secret(text: str) -> str:
    """The secret that the reference *text* stands for, in this process.

    Raises:
        SecretUnavailable: it cannot be read.
    """
    return _reader.read(text)


def provider_problem(reference: SecretReference) -> str | None:
    """Return why this process has no provider for *reference*, if so."""
    try:
        _reader.provider(reference.provider)
    except ConfigError as error:
        return f"{reference.text}: {error}"
    return None


def places_in(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """The references in *value*, and texts that begin like one, each after its dotted path."""
    text = value.get_secret_value() if isinstance(value, SecretStr) else value
    if isinstance(text, str):
        if text.startswith(SCHEME):
            yield path, text
    else:
        for name, item in _items_of(value):
            yield from places_in(item, f"{path}.{name}" if path else str(name))


def _items_of(value: Any) -> Iterable[tuple[Any, Any]]:
    if isinstance(value, BaseModel):
        return value.__dict__.items()
    if isinstance(value, Mapping):
        return value.items()
    return enumerate(value) if isinstance(value, list | tuple | set | frozenset) else ()


def fill_secrets(value: Any) -> Any:
    """*value* with the secret for each reference in it; the same object if there is none.

    Raises:
        SecretUnavailable: one cannot be read, or there are too many.
    """
    references = dict.fromkeys(text for _, text in places_in(value))
    if len(references) > MAX_REFERENCES:
        raise SecretUnavailable(f"a call may name at most {MAX_REFERENCES} secrets")
    if not references:
        return value
    return _replace(value, {text: read_secret(text) for text in references})


def _replace(value: Any, secrets: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        return secrets.get(value, value)
    if isinstance(value, Mapping):
        return {name: _replace(item, secrets) for name, item in value.items()}
    return [_replace(item, secrets) for item in value] if isinstance(value, list) else value


def reveal(secret: SecretStr) -> str:
    """The value of an option, read now if the option holds a reference.

    Raises:
        SecretUnavailable: it cannot be read.
    """
    text = secret.get_secret_value()
    return read_secret(text) if text.startswith(SCHEME) else text


def _kind(name: str) -> type[SecretProvider]:
    """The class of a kind of provider.

    Raises:
        ConfigError: it is not installed, or is no `SecretProvider`.
    """
    points = {point.name: point for point in entry_points(group=GROUP)}
    if name not in points:
        raise ConfigError(f"no provider of the kind {name!r} is installed{nearest(name, points)}")
    kind = points[name].load()
    if not (isinstance(kind, type) and issubclass(kind, SecretProvider)):
        raise ConfigError(f"the provider {name!r} is no boyd.SecretProvider")
    return kind
