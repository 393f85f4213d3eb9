"""Criteria, read into what to look for: words, names, numbers, states, and whether they claim it.

Texts are compared by words in a basic form: one form of each letter and dash, lower case, singular.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from datetime import date
from functools import lru_cache
from typing import NamedTuple

from boyd.text.tokenizer import STOP, is_place, stem, tokens

# --- Words ---------------------------------------------------------------------------------------

# Each line has states on both sides that exclude each other; inflections are joined by slashes.
_OPPOSITES = """
    up online alive reachable responding | down offline dead unreachable unresponsive crashed hung
    on | off
    complete/completed/completes/completion | incomplete unfinished undone aborted pending queued
    finished/finish/finishes done | incomplete unfinished undone aborted pending running queued
    complete/completed/completes finished done | cancelled/canceled interrupted running
    started/start/starts running active | stopped/stop/stops inactive exited crashed terminated
    open/opened/opens reopened | closed/close/closes shut
    enabled/enables | disabled/disables
    healthy ok | unhealthy degraded failing
    success/successful/succeeded/succeeds passed/passes | failure/failed/fails/failing error
    complete/completed/completes finished done | failure/failed/fails
    accepted approved allowed granted | rejected denied refused forbidden declined
    connected | disconnected
    present exists/exist/existing | absent missing gone
    full | empty
    high higher | low lower
    more | less fewer
    increased/increases/rising/rose | decreased/decreases/falling/fell/dropped
    resolved fixed solved closed | open unresolved ongoing firing
    ready | unready
    available | unavailable
    valid | invalid expired
    synced/synchronized/synchronised | unsynced stale lagging
    installed mounted attached | removed uninstalled unmounted detached
    locked | unlocked
    hot | cold
    primary | secondary standby
    public | private
    green | red
    encrypted | unencrypted plaintext
    restarted deployed | reverted skipped
"""
_BAD = """
    aborted cancelled canceled crashed dead degraded denied down error exited failed failing fails
    failure gone hung incomplete interrupted missing offline refused rejected skipped stale
    terminated unavailable unfinished unhealthy unreachable unready unresponsive unresolved
"""


def _read_opposites() -> tuple[dict[str, str], dict[str, frozenset[str]]]:
    """The basic form of each inflection, and the opposites of each state."""
    basic: dict[str, str] = {}
    opposites: dict[str, frozenset[str]] = {}
    for line in _OPPOSITES.strip().splitlines():
        sides = [[group.split("/") for group in side.split()] for side in line.split("|")]
        for own, other in (sides, sides[::-1]):
            against = frozenset(word for group in other for word in group)
            for group in own:
                for word in group:
                    basic.setdefault(word, group[0])
                    opposites[word] = opposites.get(word, frozenset()) | against
    return basic, opposites


#: The basic form of each state, and the states that exclude it.
STATES, OPPOSITES = _read_opposites()
#: States that spoil a claim which does not name them, in their basic form.
BAD = frozenset(STATES.get(word, word) for word in _BAD.split())
_PARTICLE_VERBS = """
    set sets setting back backs backed build builds built clean cleaned end ended give gave look
    looked make made pick picked speed start started take took turn turned wake write wrote
"""
#: Verbs with which "up" and "down" are no states, as in "set up".
PARTICLE_VERBS = frozenset(_PARTICLE_VERBS.split())
#: States as something that happens, as in "it completes", which is no fact yet.
EVENTS = frozenset(
    word
    for word in STATES
    if word.endswith("s") and STATES.get(re.sub("e?s$", "ed", word)) == STATES[word]
)
#: Prefixes that turn a word into its opposite.
UN = ("un", "in", "im", "non", "non-", "dis")

_NEGATIONS = """
    not no never none neither nor without cannot nothing nobody nowhere false unable lack lacks
    lacking hardly barely zero unknown unclear undetermined
    nicht kein keine keinen nie ohne nichts ne pas jamais aucun aucune sans sin nunca ningún ninguna
    non senza não sem nunca niet geen nooit zonder inte ikke nie ei не нет без никогда ні
    لا ليس لم غير לא אין ללא 不 没 未 没有 ない नहीं
"""
#: Words that turn a statement into its opposite, in the languages that we know of.
NEGATIONS = frozenset(_NEGATIONS.split())
#: What says that all is well, though it contains a negation.
WELL = re.compile(
    r"\b(?:(?:without|(?:with )?(?:no|0|zero))(?: (?:any|no|0|further)){0,2} (?P<noun>error|"
    r"failure|problem|issue|warning|fault|exception|delay)s?|"
    r"(?:exit|return|status) ?(?:code|status)? ?[:=]? ?0|"
    r"(?:failed|errors|unreachable|skipped|ignored) ?[:=] ?0)\b",
    re.IGNORECASE,
)

#: What is not so yet, or is only asked: a plan, the future, a question or a wish.
OPEN = re.compile(
    r"\b(?:will|won't|shall|going to|about to|plan|plans|planned|planning|schedul\w+|tomorrow|"
    r"upcoming|next (?:week|month|year|day|night|time)|to-?do|intend\w*|propos\w+|whether|"
    r"dry[- ]run|simulat\w+|hypothetical\w*|wird|werden|sera|será|будет)\b|\w'll\b|"
    # Boxes to tick, signs of failure, and tags of a tone, as in "It is up /s".
    r"\[ \]|[\u2717\u2718\u274c\u26a0\u2620]|\s/(?:s|j|sarc\w*)\W*$|"
    r"[\U0001f44e\U0001f534\U0001f6ab\U0001f6d1\U0001f602\U0001f609\U0001f643\U0001f644\U0001f923]"
)
_HEDGE_LINES = r"""
    would|wouldn't|should|shouldn't|could|couldn't|can|may(?! \d)|might|must|needs? to|
    has to|have to|to be|expect\w*|wanted|desired|wait\w*|until(?! (?:\w+ )?\d)|unless|soon|
    not yet|perhaps|almost|partly|partially|half|some|most|few|only|or|either|in progress|being|
    from (?:\w+ )?(?:19|20)\d\d|rarely|seldom|sometimes|occasionally|
    starting|used to|related-to|how to|named|test|tests|instead|rather|skip\w*|rolled back|reverted|
    close to|(?:all|every\w*)(?: \w+)? but|
    [1-9]\d* (?:\w+ )?(?:failed|missing|skipped|remaining|left|to go)
"""
_HEDGES = "|".join(line.strip(" |") for line in _HEDGE_LINES.strip().splitlines())
#: What makes a claim doubtful, partial, past or second-hand, though we know its words.
HEDGES = re.compile(rf"\b(?:{_HEDGES})\b")
#: What makes a claim conditional, or an order, if it stands in front of it.
CONDITIONS = re.compile(
    r"\b(?:if|when|whenever|once|while|as soon as|provided|after|before)\b|"
    r"^\W*(?:please |then )?(?:make sure|ensure|check|verify|assert|confirm|let|see|read)\b"
)
#: What tells that a state may have ended.
PAST = re.compile(r"\b(?:was|were|had|war|waren|gewesen|était|étaient|estaba)\b")
#: What tells that a state has yet to come.
IN_A_WHILE = re.compile(
    r"\bin (?:an?|\d{1,9}) ?(?:s|sec|second|m|min|minute|h|hour|day|week|month|year)s?\b"
)
#: A sentence that asks: it ends so, or begins so.
QUESTION = re.compile(
    r"[?\uff1f\u061f]\s*[\"')]*$|^\W*(?:is|are|was|were|has|have|does|did|do|can|could|should|will|would|"
    r"what|which|who|whose|whom|where|when|why|how)\s(?!.*[.!]$)"
)
#: Words in front of a number that change it.
COMPARISONS = re.compile(
    r"\b(?:at least|at most|more than|less than|fewer than|greater than|up to|over|under|above|"
    r"below|about|around|approximately|roughly|almost|nearly|exactly|minus)\b(?= -?\d)|[<>]=?|"
    r"[~\u2248\u00b1](?= ?\d)"
)
#: Comparisons that the number itself fulfils.
INCLUSIVE = frozenset(["at least", "at most", "up to", ">=", "<=", "exactly"])
#: What an action says that has not done it, or not all of it.
UNDONE = re.compile(
    r"\b(?:already|pending|queued|skip\w*|ignor\w*|unchanged|would|should|could|may|might|"
    r"in progress|part\w{0,3}ly|timed out|timeout|rolled back|requested|unknown|instead|except|"
    r"(?:re)?starting|stopping|waiting|trying|traceback|unrecogni[sz]ed|unsupported|check mode|"
    r"(?:code|status|rc) ?[:=]? ?(?:[1-9]\d?|[45]\d\d)|"
    r"bereits|fehlgeschlagen|übersprungen|déjà|échec|échoué|rien)\b"
)
#: Percentages, except all of it.
PARTIAL = re.compile(r"\b(?!100\b)\d{1,9}(?:\.\d{1,9}){0,2} {1,2}percent\b")
#: A share that is written as a number.
FRACTION = re.compile(r"(?<![\w.-])0?\.\d{1,9}(?! ?\w*s\b)(?=\s+[a-z])")
#: The last day on which something is valid, as in "valid until", "notAfter=" and "expires on".
ENDS = re.compile(
    r"(?<![a-z])(?:until|till|thr(?:ough|u)|not[\W_]*after|expir[a-z]+|end(?:s|ed|ing)?|"
    r"end[\W_]*of[\W_]*(?:life|support)|eol|laps(?:es|ed)|valid[\W_]*to)"
    r"(?:[^\w.;!?]+[a-z]+){0,3}?[^\w.;!?]+"
    r"(?:(?P<year>\d{4})[-/.](?P<month>\d\d?)(?:[-/.](?P<day>\d\d?))?(?!\d)|"
    r"\d\d?[./]\d\d?[./](?P<last>\d{4})|"
    r"(?:(?P<before>\d\d?)[a-z.]{0,2} )?(?P<name>jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)"
    r"[a-z]*\.?(?: (?P<after>\d\d?)(?:st|nd|rd|th)?(?!\d))?,?(?: \d\d?:[\d:.]+)?,? "
    r"(?P<named>\d{4})|(?P<alone>(?:19|20)\d\d))\b"
)
#: What a criterion says that is about an end itself.
OWN_ENDS = re.compile(r"expir|\bend(?:s|ed)?\b|until|lapse|not after|past|(?:19|20)\d\d")
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
#: A status of HTTP that tells of an error.
ERROR_STATUS = re.compile(r"(?<!port )(?<!on )(?<!in )(?<!to )(?<![\w.:-])[45]\d\d(?=\W*$)")

_VERBS = """
    is are was were be been has have had does did do isn't aren't wasn't weren't hasn't haven't
    can cannot can't stays remains became becomes ist sind war est sont es está è é är
"""
#: Verbs that tell where a clause ends.
VERBS = frozenset(_VERBS.split())
_GENERAL = """
    service server host node machine system application app instance process job task
"""
#: Nouns that a claim may leave out.
GENERAL = frozenset(_GENERAL.split())
_BESIDE = """
    status state health condition role mode phase currently now still again already also
    finally since today info notice ok success done confirmed verified result report check here
    back run wieder
"""
#: Words beside a subject that do not make it another one.
BESIDE = frozenset(_BESIDE.split())
_PLAIN = """
    a an the its their our this these that those it they there is are was were be been has have
    does do did and of in on at to from by with for via per into since during after before
    all every each both also again already now fully completely finally currently successfully
    correctly properly automatically longer
    second minute hour day noon midnight utc am pm percent ms s min
    h d kb mb gb tb true yes fine running restart
    turned switched powered until
    der die das den dem des ein eine le la les un une el los las lo una il de du del
"""
#: Words that take nothing back from a claim; any other word that it does not use itself may.
PLAIN = frozenset(_PLAIN.split()) | VERBS | GENERAL | BESIDE | NEGATIONS | {":", "=", "/"}
#: What a claim about each of several things says.
ALL = frozenset(["all", "every", "each", "both", "alle", "jeder", "tous", "toutes", "todos"])
_NUMBERS = "two three four five six seven eight nine ten"
#: Words for numbers; "one" is as often a pronoun.
NUMBERS = {word: str(number) for number, word in enumerate(_NUMBERS.split(), 2)}
#: Plurals that no ending tells.
PLURALS = {
    "children": "child", "people": "person", "men": "man", "women": "woman", "mice": "mouse",
    "indices": "index", "indexes": "index", "vertices": "vertex", "matrices": "matrix",
    "analyses": "analysis", "statuses": "status", "viruses": "virus", "buses": "bus",
    "leaves": "leaf", "feet": "foot", "crises": "crisis",
}  # fmt: skip

# --- Criteria as they are looked for -------------------------------------------------------------

#: Letters with their marks, which `\w` leaves out.
_LETTER = (
    r"(?:[^\W_\u0964\u0965]|[\u0300-\u036f\u0591-\u05c7\u0610-\u061a\u064b-\u065f\u0670"
    r"\u0900-\u0963\u0966-\u109f])"
)
_TOKEN = re.compile(
    rf"(?<![\w.-])-(?=\d)\d+(?:\.\d+)*|{_LETTER}+(?:['._-]{_LETTER}+)*[+#]{{0,2}}|[:=/]|[<>]=?"
)
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_UNIT = re.compile(
    r"(\d+(?:\.\d+)*)(x|%|[kmgt]i?b|[mµn]?s|min|h|d|m|k|w|v|hz|khz|mhz|ghz)", re.IGNORECASE
)
_JOINTS = re.compile(r"[._-]")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_DASHES = re.compile(r"[\u2010-\u2013\u2212]")
_ASIDE = re.compile(r" -+ |\u2014")
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}\b)")
_QUOTES = str.maketrans({"\u2019": "'", "\u2018": "'", "`": '"', **dict.fromkeys("“”„«»", '"')})
_PARTICIPLE = re.compile(r"[a-z]{2,}ed|(?:re)?(?:built|sent|written|shut|done|made|paid|taken)")
#: Verbs by which something is said to be as it should, though they are no states.
_DOES = re.compile(
    r"\w (?<!of )(?<!the )(?<!and )(?<!or )(?:serves|responds|replies|answers|loads|works|runs|"
    r"accepts|listens|delivers|sends|receives|arrives?|connects|resolves|renews|returns)\b(?! of\b)"
)
_FAILS = re.compile(r"\b(?:fail|refus|ceas|stop)\w* to\b")
_INTERROGATIVE = re.compile(
    r"\W*(?:(?:find|figure|work) out |(?:know|tell|learn|discover|see|explain|show)(?: me| us)? )?"
    r"(?:what|which|who|where|why|how)\b"
)
#: Words in front of "on" and "off" as states.
_SWITCHES = ("turned", "switched", "powered", "state", "status", "power", "=", ":")


class Criterion(NamedTuple):
    """A criterion as it is looked for.

    Attributes:
        words: all that can be found, in order.
        names: words that must be found as they are: identifiers, such as `web-3`.
        numbers: each number with the word that it counts; empty if there is none.
        states: words that have opposites.
        general: words that a claim may leave out.
        is_claim: it says that something is so.
        is_negated: it says that something is not so.
        text: in lower case, to see which words it uses itself.
    """

    words: tuple[str, ...]
    names: frozenset[str]
    numbers: tuple[tuple[str, str], ...]
    states: frozenset[str]
    general: frozenset[str]
    is_claim: bool
    is_negated: bool
    text: str

    @property
    def is_strict(self) -> bool:
        """True if its words must meet in one statement."""
        return self.is_claim or bool(self.names)

    @property
    def subject(self) -> frozenset[str]:
        """The words that name what the criterion is about."""
        counts = {number for number, _ in self.numbers}
        return frozenset(self.words) - self.states - self.general - counts

    @property
    def is_about(self) -> bool:
        """True if it asks for anything said about its subject, even for what it is not."""
        return not self.is_claim and bool(re.search(r"\babout\b", self.text))


# --- Text ----------------------------------------------------------------------------------------


def normalize(text: str) -> str:
    """The text with one form of each letter, dash and quotation mark."""
    text = unicodedata.normalize("NFKC", text).translate(_QUOTES)
    text = _THOUSANDS.sub("", _ASIDE.sub(", ", _DASHES.sub("-", text)))
    return text.replace("%", " percent ")


@lru_cache(maxsize=4096)
def split_tokens(text: str) -> tuple[str, ...]:
    """The words of a normal text, as they are; a number and its unit are two."""
    every: list[str] = []
    for token in _TOKEN.findall(text):
        unit = _UNIT.fullmatch(token)
        every += [unit[1], unit[2]] if unit else [token]
    return tuple(every)


@lru_cache(maxsize=8192)
def base_of(token: str) -> str:
    """A word in lower case, in the singular, and in the basic form of its state."""
    low = token.casefold().removesuffix("'s")
    low = NUMBERS.get(low) or PLURALS.get(low) or low
    singular = low if is_identifier(low) else stem(low)
    return STATES.get(low) or STATES.get(singular) or singular


def is_number(token: str) -> bool:
    """True for a number; `10.0.0.1` is none."""
    return _NUMBER.fullmatch(token) is not None


def is_identifier(token: str) -> bool:
    """True for an identifier: it has digits beside letters."""
    return any(map(str.isdigit, token)) and not is_number(token)


def split_word(token: str) -> list[str]:
    """The words in a compound, `likeThis` or like-this, as they are."""
    return [part for piece in _JOINTS.split(token) for part in _CAMEL.split(piece) if part]


@lru_cache(maxsize=8192)
def parts_of_word(token: str) -> tuple[str, ...]:
    """The words in a compound, in their basic form; one that consists of stop words is one."""
    parts = split_word(token)
    if all(part.lower() in STOP for part in parts):
        return (token.casefold(),)
    return tuple(base_of(part) for part in parts if not part.isdigit())


def has_verb(text: str) -> bool:
    """True if a text has a verb that we know, or a state, which stands for one."""
    low = (token.casefold() for token in split_tokens(text))
    return any(word in VERBS or base_of(word) in OPPOSITES for word in low)


# --- Reading a criterion -------------------------------------------------------------------------


@lru_cache(maxsize=512)
def read_criterion(subject: str, text: str, frame: frozenset[str]) -> Criterion:
    """Read the *text* of a criterion, whose words begin at *subject*.

    Words of the *frame* count only if there are no others.
    """
    low = normalize(text).casefold()
    every = _criterion_words(normalize(subject))
    words = tuple(word for word in every if word not in frame) or every
    numbers = _counts(words)
    states = frozenset(word for word in words if word in OPPOSITES)
    specific = [word for word in words if word not in GENERAL and word not in states]
    is_negated = count_negations(low) % 2 == 1
    return Criterion(
        words=words,
        names=frozenset(word for word in words if is_identifier(word) or _is_compound(word)),
        numbers=numbers,
        states=states,
        general=frozenset(words) & GENERAL if specific else frozenset(),
        is_claim=bool(words) and bool(states or numbers or is_negated or _claims(low, words)),
        is_negated=is_negated,
        text=low,
    )


def _claims(text: str, words: Sequence[str]) -> bool:
    """True if a text says by a verb that something is so, or might do so."""
    # Of words that cannot be told from states, all must be found.
    if not "".join(words).isascii() or any(_PARTICIPLE.fullmatch(word) for word in words):
        return True
    if QUESTION.search(text) or _INTERROGATIVE.match(text):
        return False
    return bool(_DOES.search(text)) or not VERBS.isdisjoint(split_tokens(text))


def words_in(text: str) -> set[str]:
    """The words of a text as criteria have them, with the parts of its compounds."""
    return {
        form
        for token in split_tokens(normalize(text))
        for form in (base_of(token), *parts_of_word(token))
    } - STOP


def _criterion_words(text: str) -> tuple[str, ...]:
    """The distinct words of a criterion: no stop words, addresses or paths."""
    every: list[str] = []
    sequence = split_tokens(without_places(text))
    for position, token in enumerate(sequence):
        low = token.casefold()
        if low in ("on", "off"):
            every += [low] if is_state(sequence, position) else []
        elif is_number(low) or is_identifier(low):
            every += [low] if low != "0" else []
        elif low not in STOP | NEGATIONS and any(map(str.isalnum, low)):
            parts = [part for part in parts_of_word(token) if part not in STOP]
            is_compound = len(parts) > 1 and _JOINTS.search(token)
            every += [low] if is_compound else parts
    return tuple(dict.fromkeys(every))


def without_places(text: str) -> str:
    """The text without its addresses and paths."""
    return " ".join(token for token in _places_apart(text) if not is_place(token))


def _places_apart(text: str) -> list[str]:
    """The text between its addresses and paths, and these."""
    parts, start = [], 0
    for token in tokens(text):
        if is_place(token):
            position = text.index(token, start)
            parts += [text[start:position], token]
            start = position + len(token)
    return [*parts, text[start:]]


def is_state(sequence: Sequence[str], position: int) -> bool:
    """True unless a word such as "on" or "up" is no state there, but a preposition or particle."""
    word = sequence[position].casefold()
    before = sequence[position - 1].casefold() if position else ""
    after = sequence[position + 1].casefold() if position + 1 < len(sequence) else ""
    if word in ("on", "off"):
        return not after or before in _SWITCHES
    if word in ("up", "down"):
        return after not in ("to", "the", "on") and before not in PARTICLE_VERBS
    return True


def _is_compound(word: str) -> bool:
    return not is_number(word) and bool(_JOINTS.search(word))


def _counts(content: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Each number with the word behind it, or else the one in front of it."""
    counts = []
    for position, word in enumerate(content):
        if is_number(word):
            after = [item for item in content[position + 1 :] if not is_number(item)]
            before = [item for item in content[:position] if not is_number(item)]
            counts.append((word, (after[:1] or before[-1:] or [""])[0]))
    return tuple(counts)


def ends_before(text: str, today: date) -> bool:
    """True if something has ended before *today*, by a text such as "valid until May 1, 2019".

    Where a date leaves out the day or the month, or may be read in two ways, the last day counts.
    """
    days = [_last_day(match) for match in ENDS.finditer(" ".join(text.casefold().split()))]
    return bool(days) and max(days) < (today.year, today.month, today.day)


def _last_day(match: re.Match[str]) -> tuple[int, int, int]:
    month = _MONTHS.index(match["name"]) + 1 if match["name"] else int(match["month"] or 12)
    year = match["year"] or match["last"] or match["named"] or match["alone"]
    return int(year), month, int(match["day"] or match["before"] or match["after"] or 31)


def count_negations(text: str) -> int:
    """The number of negations in a text in lower case."""
    negations = NEGATIONS | {"0"}
    words = sum(word in negations or word.endswith("n't") for word in split_tokens(text))
    return words + len(_FAILS.findall(text))
