"""What makes two situations the same one, whatever their numbers and times are.

The fingerprint of a situation is that of the set of its observations, in any order and number. Of
each of them count: source, type, severity, the names of its data, and its texts and truth values.
Numbers in the data do not count, and in texts what changes by itself becomes `#`: dates and times,
UUIDs, hexadecimal ids and numbers. Numbers that belong to a name do count: `web-1`, `sda1`,
`10.0.0.1:80`, the host and port of a URL. `metadata` and `timestamp` do not count.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

from boyd.models import SEVERITIES, Observation, Severity

#: Characters of a text that count.
LONGEST = 2000

_CHANGING = re.compile(
    r"""
    (?P<name>
        \b[a-z][a-z0-9+.-]{1,20}://[^\s/?\#"']{1,255}       # host and port of a URL
        | (?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?![\w.])(?::\d{1,5}(?!\d))?   # an address
    )
    | \b\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:[.,]\d{1,9})?)?(?:Z|[+-]\d\d:?\d\d)?)?
    | \b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b
    | \b(?=[a-f]{0,64}\d)(?=\d{0,64}[a-f])[0-9a-f]{8,64}\b
    | (?<![\w.-])[-+]?\d[\d.,]*
    """,
    re.VERBOSE | re.IGNORECASE,
)


def reaching(observations: Iterable[Observation], severity: Severity) -> list[Observation]:
    """Those *observations* that are at least as severe as *severity*."""
    least = SEVERITIES.index(severity)
    return [one for one in observations if one.severity and SEVERITIES.index(one.severity) >= least]


def fingerprint(observations: Iterable[Observation]) -> str:
    """Tells the situation that *observations* make from others; 16 hex digits."""
    marks = sorted({mark(one, one.severity or "") for one in observations})
    return hashlib.sha256("\n".join(marks).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def mark(observation: Observation, severity: str = "") -> str:
    """What an observation is about; with its *severity*, unless it makes no difference."""
    about = [observation.source, observation.type, severity, _shape(observation.data)]
    return hashlib.sha256(_dumped(about).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def subject(observation: Observation) -> str:
    """What an observation is of, whatever it says about it: its source, type and names in its data.

    Names are texts without blanks, so that a message may change.
    """
    about = [observation.source, observation.type, sorted(_names(observation.data))]
    return hashlib.sha256(_dumped(about).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def normal(text: str) -> str:
    """A text without what changes by itself."""
    plain = " ".join(text[:LONGEST].split())
    return _CHANGING.sub(lambda found: found["name"] or "#", plain)


def _shape(value: Any) -> Any:
    if isinstance(value, dict):
        return {normal(key): _shape(one) for key, one in value.items()}
    if isinstance(value, list):
        return sorted({_dumped(_shape(one)) for one in value})
    if isinstance(value, str):
        return normal(value)
    return value if isinstance(value, bool) else 0


def _names(value: Any, path: str = "") -> Iterator[str]:
    if isinstance(value, dict):
        for key, one in value.items():
            yield from _names(one, f"{path}/{normal(key)}")
    elif isinstance(value, list):
        for one in value:
            yield from _names(one, path)
    elif isinstance(value, str) and value and not re.search(r"\s", value):
        yield f"{path}={normal(value)}"


def _dumped(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
