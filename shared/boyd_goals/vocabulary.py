"""Words that decide what a sentence says: opposites, negations, plans, questions and hedges."""

from __future__ import annotations

import re

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
#: Prefixes that turn a word into its opposite.
UN = ("un", "in", "im", "non", "non-", "dis")

_NEGATIONS = """
    not no never none neither nor without cannot nothing nobody nowhere false unable lack lacks
    lacking hardly barely zero
    nicht kein keine keinen nie ohne nichts ne pas jamais aucun aucune sans sin nunca ningún ninguna
    non senza não sem nunca niet geen nooit zonder inte ikke nie ei не нет без никогда ні
    لا ليس لم غير לא אין ללא 不 没 未 没有 ない नहीं
"""
#: Words that turn a statement into its opposite, in the languages that we know of.
NEGATIONS = frozenset(_NEGATIONS.split())
#: What says that all is well, though it contains a negation.
WELL = re.compile(
    r"\b(?:(?:with(?:out)?|no|0|zero)(?: (?:any|no|0|further))* (?P<noun>error|failure|problem|"
    r"issue|warning|fault|exception|delay)s?|(?:exit|return|status) ?(?:code|status)? ?[:=]? ?0)\b"
)

#: What is not so yet, or is only asked: a plan, the future, a question or a wish.
OPEN = re.compile(
    r"\b(?:will|won't|shall|going to|about to|plan|plans|planned|planning|schedul\w+|tomorrow|"
    r"upcoming|next (?:week|month|year|day|night|time)|to-?do|intend\w*|propos\w+|whether|"
    r"dry[- ]run|simulat\w+|hypothetical\w*|wird|werden|sera|será|будет)\b|\w'll\b"
)
_HEDGE_LINES = r"""
    would|wouldn't|should|shouldn't|could|couldn't|can|may(?! \d)|might|must|needs? to|
    needed to|has to|have to|had to|to be|supposed|expect\w*|wants?|wanted|wish\w*|hope\w*|
    hoping|aims?|goals?|wait\w*|await\w*|until(?! (?:\w+ )?\d)|unless|later|soon|eventually|not yet|
    probably|perhaps|maybe|likely|unlikely|possibl[ey]|seem\w*|appears?|apparently|supposedly|
    allegedly|reportedly|unclear|unknown|uncertain|unverified|thinks?|believes?|assum\w+|guess\w*|
    claims?|claimed|suppose|doubt\w*|almost|nearly|partly|partially|half|some|most|few|several|
    only|barely|or|either|try|tries|trying|attempt\w*|in progress|being|starting|progress|
    used to|formerly|previously|yesterday|last (?:week|month|year|night|time)|no longer|
    mention\w*|refer\w*|related-to|related|see also|how to|titled|entitled|called|named|
    checklist|runbook|playbook|guide|howto|tutorial|template|example|documentation|manual|ticket|
    heading|chapter|section|agenda|dashboard|query|searched|test|tests|demo|draft|
    says?|said|tells?|told|asks?|asked|requests?|requested|
    skip\w*|ignor\w*|unchanged|reverted|rolled back|would-be|except|instead|rather
"""
_HEDGES = "|".join(line.strip(" |") for line in _HEDGE_LINES.strip().splitlines())
#: What makes a claim doubtful, partial, past or second-hand.
HEDGES = re.compile(rf"\b(?:{_HEDGES})\b")
#: What makes a claim conditional, or an order, if it stands in front of it.
CONDITIONS = re.compile(
    r"\b(?:if|when|whenever|once|while|as soon as|provided|after|before)\b|"
    r"^\W*(?:please |then )?(?:make sure|ensure|check|verify|assert|confirm|let|see|read)\b"
)
#: A sentence that asks: it ends so, or begins so.
QUESTION = re.compile(
    r"[?\uff1f\u061f]\s*[\"')]*$|^\W*(?:is|are|was|were|has|have|does|did|do|can|could|should|will|would|"
    r"what|which|who|whose|whom|where|when|why|how)\s(?!.*[.!]$)"
)
#: Words in front of a number that change it.
COMPARISONS = re.compile(
    r"\b(?:at least|at most|more than|less than|fewer than|greater than|up to|over|under|above|"
    r"below|about|around|approximately|roughly|almost|nearly|exactly)\b(?= -?\d)|[<>]=?"
)
#: Comparisons that the number itself fulfils.
INCLUSIVE = frozenset(["at least", "at most", "up to", ">=", "<=", "exactly"])
#: What an action says that has not done it, or not all of it.
UNDONE = re.compile(
    r"\b(?:already|pending|queued|skip\w*|ignor\w*|unchanged|would|should|could|may|might|"
    r"in progress|part\w{0,3}ly|timed out|rolled back|requested|unknown|instead|except)\b"
)
#: Percentages, except all of it.
PARTIAL = re.compile(r"\b(?!100\b)\d+(?:\.\d+)* percent\b")

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
    status state health condition currently now still again already also finally since today
    info notice ok success done confirmed verified result report check here back run
"""
#: Words beside a subject that do not make it another one.
BESIDE = frozenset(_BESIDE.split())
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
