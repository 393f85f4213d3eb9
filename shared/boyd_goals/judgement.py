"""The judgement of a step: the criteria of a goal that its findings fulfil, with the evidence."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import date
from math import ceil
from typing import NamedTuple

from boyd.models import Model, Place, Triple
from boyd_goals.criteria import Criterion, words_in
from boyd_goals.goal_conditions import ConditionResult
from boyd_goals.knowledge.turtle import GOAL, MENTIONS, RELATED_TO
from boyd_goals.library import passages
from boyd_goals.progress import clip, condition_of, criteria_of, criterion_of, verb_of
from boyd_goals.state import Config, Goal, GoalEvidence
from boyd_goals.statements import BULLETS, Reading, lines_of, read

#: Limits of the text of evidence, of the lines it quotes, and of the facts around a symbol.
EVIDENCE_CHARS, _QUOTED, _AROUND = 800, 10, 500
#: Tools whose output tells facts, tools that tell a finding per line, and tools that find nothing
#: out: they compare labels, list what is missing, or arrange for something that comes later.
FACTUAL = frozenset(["kg_query", "kg_mutate", "reason", "infer_rules"])
_LISTING = frozenset(["library_search"])
_SILENT = frozenset(
    ["similarity_search", "gap_analysis", "consolidate", "content_ingest", "user_interact"]
)
#: Predicates that tell no more than that two things have to do with each other.
_NO_ANSWERS = frozenset([MENTIONS, RELATED_TO])
_PASSAGE = re.compile(r"(?P<title>.*?) \(\d+\): (?P<text>.*)")
#: A recalled memory: its time, the tool or the person that found it, and the finding.
_RECALLED = re.compile(
    r"\S+ \S+ (?:(?P<tool>[\w:-]+)|Answer of [^:]{0,200}): (?P<found>.*)", re.DOTALL
)
#: Lines in which the agent describes itself begin with one of these, or contain one of the marks.
_METADATA = (
    *("agent:", "criteria:", "desc:", "episode:", GOAL, "priority:", "status:", "summary:"),
    "tag:",
)
_GOAL_MARKS = ("desc:", "criteria:", f'"{GOAL}')


class StepFinding(Model):
    """Something a step found out: a fact, a passage, or the facts around one symbol.

    `is_asked` is true for an answer to exactly what the goal names, such as the output of its
    command; any other finding must be about what the goal speaks of.
    """

    lines: list[str]
    is_asked: bool = False

    @property
    def text(self) -> str:
        """All lines."""
        return "\n".join(self.lines)


class ToolStep(NamedTuple):
    """A successful use of a tool; `is_act` is true if it did what the goal wants done.

    What a finding says to have ended before the `day` is over.
    `about` has the words of each symbol that the goal speaks of; one of these must be complete in a
    finding. Without any, a finding must share a word with the goal.
    """

    cycle: int
    tool: str
    output: str
    findings: Sequence[StepFinding]
    day: date
    is_act: bool = False
    about: Sequence[Collection[str]] = ()
    condition: ConditionResult | None = None


class Judgement(NamedTuple):
    """The keywords of a goal that were found so far, and the evidence for its criteria."""

    matched: list[str]
    evidence: list[GoalEvidence]


# --- Findings ------------------------------------------------------------------------------------


def findings_in(tool: str, output: str) -> list[StepFinding]:
    """The findings in the output of a tool, without what the agent says about itself."""
    if tool in _SILENT:
        return []
    if tool == "memory_recall":
        return [finding for line in output.splitlines() for finding in _findings_in_memory(line)]
    if tool in FACTUAL:
        texts, is_asked = _facts(output), False
    elif tool in _LISTING:
        matches = (_PASSAGE.fullmatch(line) for line in output.splitlines())
        texts, is_asked = [match["text"] for match in matches if match], False
    else:
        # A page begins with its status.
        page = output.partition("\n\n")[2] if tool == "http_fetch" else output
        texts, is_asked = ["\n".join(lines) for lines in lines_of(page)] or passages(page), True
    cleaned = (_without_own_words(text) for text in texts)
    return [StepFinding(lines=[text], is_asked=is_asked) for text in cleaned if text]


def around(facts: Iterable[Triple]) -> StepFinding:
    """The facts around one symbol, as one finding."""
    places = (fact.place for fact in facts if _is_answer(fact.subject, fact.predicate))
    return StepFinding(lines=list(dict.fromkeys(map(" ".join, places)))[:_AROUND])


def is_knowledge(fact: Triple) -> bool:
    """True unless the agent notes with it something about its own goals."""
    return not fact.is_metadata and not fact.subject.startswith(GOAL)


def _facts(output: str) -> list[str]:
    facts = filter(None, map(_fact, output.splitlines()))
    return [" ".join(place) for place in facts if _is_answer(place[0], place[1])]


def _fact(line: str) -> Place | None:
    """The fact in a line `"S" -> P -> "O"`, unless it goes on with `is not known`."""
    subject, _, rest = line.partition('" -> ')
    predicate, _, rest = rest.partition(' -> "')
    object_, quote, more = rest.rpartition('"')
    if not subject.startswith('"') or not quote or more.startswith(" is not known"):
        return None
    return (subject[1:], predicate, object_)


def _is_answer(subject: str, predicate: str) -> bool:
    is_own = subject.startswith(GOAL) or predicate.startswith("agent:")
    return not is_own and predicate not in _NO_ANSWERS


def _findings_in_memory(line: str) -> Iterator[StepFinding]:
    """The findings in a line of recalled memory; none in its envelope."""
    match = _RECALLED.fullmatch(line)
    if match and match["tool"] is None:
        yield StepFinding(lines=[match["found"]])
    elif match and match["tool"] in FACTUAL:
        # A summary has the lines of the output in one.
        yield from findings_in(match["tool"], match["found"].replace('; "', '\n"'))
    elif match and match["tool"] not in ("memory_recall", "Decide", "Orient"):
        findings = findings_in(match["tool"], match["found"])
        yield from (finding.patched({"is_asked": False}) for finding in findings)


def _without_own_words(text: str) -> str:
    lines, is_heading = [], False
    for line in text.splitlines():
        bare = line.strip().strip("\"'").lower()
        if bare.startswith(_METADATA) or any(mark in bare for mark in _GOAL_MARKS):
            is_heading = bare.endswith(":")
        elif not (is_heading and bare.startswith(BULLETS)):
            lines.append(line)
            is_heading = False
    return "\n".join(lines).strip()


# --- Judging -------------------------------------------------------------------------------------


def judge(goal: Goal, step: ToolStep, config: Config) -> Judgement:
    """Judge a successful step.

    A goal that wants something done is fulfilled by the act. Otherwise each criterion is fulfilled
    by a finding in which enough of its keywords meet (`completion_ratio`, and at least two if it
    has so many). The keywords of the best finding so far count as matched.
    """
    if verb_of(goal):
        if not step.is_act or goal.evidence:
            return Judgement(goal.matched, goal.evidence)
        text = clip(" ".join(step.output.split()), EVIDENCE_CHARS)
        done = GoalEvidence(criterion=goal.criteria, cycle=step.cycle, tool=step.tool, text=text)
        return Judgement(goal.matched, [done])
    if condition_of(goal):
        return _judge_by_condition(goal, step)
    matched, evidence = dict.fromkeys(goal.matched), list(goal.evidence)
    fitting = [
        finding for finding in step.findings if finding.is_asked or _is_about(goal, step, finding)
    ]
    for text in criteria_of(goal):
        criterion = criterion_of(text)
        best = _best(criterion, fitting, step.day)
        if best is None:
            continue
        matched |= dict.fromkeys(word for word in criterion.words if word in best.words)
        is_new = all(item.criterion != text for item in evidence)
        if is_new and _is_enough(criterion, best, config):
            entry = GoalEvidence(
                criterion=text, cycle=step.cycle, tool=step.tool, text=_quote(best.lines)
            )
            evidence.append(entry)
    return Judgement(list(matched), evidence)


def _judge_by_condition(goal: Goal, step: ToolStep) -> Judgement:
    """Judge a goal whose criteria are a condition; what it has read is the evidence."""
    if step.condition is None or not step.condition.holds:
        return Judgement(goal.matched, goal.evidence)
    text = _quote(step.condition.lines)
    entry = GoalEvidence(criterion=goal.criteria, cycle=step.cycle, tool=step.tool, text=text)
    return Judgement(goal.matched, [entry])


def _is_about(goal: Goal, step: ToolStep, finding: StepFinding) -> bool:
    """True if a finding is about what the goal speaks of."""
    if goal.criteria == goal.description:
        return True
    own, subject = words_in(finding.text), criterion_of(goal.description)
    if step.about:
        return any(own.issuperset(group) for group in step.about)
    return not subject.words or not own.isdisjoint(subject.names or subject.words)


def _best(criterion: Criterion, findings: Sequence[StepFinding], day: date) -> Reading | None:
    """The reading of the findings with most words of a criterion, if any has one.

    The lines are those of all such findings. What one finding claims another may contradict.
    """
    readings = [(read(criterion, finding.lines, day), len(finding.lines)) for finding in findings]
    most = max((len(reading.words) for reading, _ in readings), default=0)
    best = [pair for pair in readings if len(pair[0].words) == most]
    # A fact tells more than all the facts around a symbol.
    best = [pair for pair in best if pair[1] == 1] or best
    if not most:
        return None
    counted = readings if criterion.is_strict else best
    return Reading(
        best[0][0].words,
        [line for reading, _ in best for line in reading.lines],
        any(reading.is_met for reading, _ in best),
        any(reading.is_against for reading, _ in counted),
    )


def _is_enough(criterion: Criterion, reading: Reading, config: Config) -> bool:
    """True if a reading fulfils the criterion.

    Of a topic, `completion_ratio` of the keywords must meet, and two if there are so many.
    """
    if reading.is_against or not reading.is_met:
        return False
    count = len(criterion.words)
    specific = len(criterion.subject)
    # Rounded, as 0.7 of ten words are seven.
    least = max(ceil(round(config.completion_ratio * count, 9)), min(2, count))
    matches = len(criterion.subject & reading.words)
    return criterion.is_claim or (len(reading.words) >= least and matches >= min(2, specific))


def _quote(lines: Iterable[str]) -> str:
    """Those lines, up to the limits of evidence."""
    some = list(dict.fromkeys(" ".join(line.split()) for line in lines))[:_QUOTED]
    return clip("\n".join(some), EVIDENCE_CHARS)


def is_met(goal: Goal, evidence: Sequence[GoalEvidence]) -> bool:
    """True if there is evidence for each criterion; a goal without criteria is never met."""
    fulfilled = {item.criterion.casefold() for item in evidence}
    criteria = criteria_of(goal)
    return bool(criteria) and all(criterion.casefold() in fulfilled for criterion in criteria)


def judge_by_parts(goal: Goal, parts: Iterable[Goal], day: date, config: Config) -> Judgement:
    """Judge a goal by the evidence of its parts, on that *day*."""
    parts = list(parts)
    evidence = [item for part in parts for item in part.evidence]
    judged = Judgement(goal.matched, goal.evidence)
    if verb_of(goal):
        return _judge_act_by_parts(goal, parts, evidence)
    if condition_of(goal):
        return judged
    for item in evidence:
        criteria = {criterion.casefold(): criterion for criterion in criteria_of(goal)}
        same = criteria.get(item.criterion.casefold())
        current = goal.patched({"matched": judged.matched, "evidence": judged.evidence})
        if same is None:
            findings = [StepFinding(lines=[item.text], is_asked=True)]
            step = ToolStep(item.cycle, item.tool, "", findings, day)
            judged = judge(current, step, config)
        elif all(entry.criterion != same for entry in judged.evidence):
            adopted = item.patched({"criterion": same})
            judged = Judgement(judged.matched, [*judged.evidence, adopted])
    return judged


def _judge_act_by_parts(
    goal: Goal, parts: Iterable[Goal], evidence: Sequence[GoalEvidence]
) -> Judgement:
    """Judge a goal that wants something done: its parts must all be done."""
    if not evidence or any(part.status != "Completed" for part in parts):
        return Judgement(goal.matched, goal.evidence)
    last = max(evidence, key=lambda item: item.cycle)
    text = clip("\n".join(item.text for item in evidence), EVIDENCE_CHARS)
    return Judgement(goal.matched, [last.patched({"criterion": goal.criteria, "text": text})])


def result_of(evidence: Iterable[GoalEvidence]) -> str:
    """The answer to a goal: the lines of its evidence, each once."""
    lines = (line for item in evidence for line in item.text.splitlines())
    return "\n".join(dict.fromkeys(lines))


def reason_of(evidence: Iterable[GoalEvidence]) -> str:
    """The steps that fulfilled the criteria."""
    steps = (f"{item.criterion} by {item.tool} in cycle {item.cycle}" for item in evidence)
    return f"the criteria are met: {', '.join(steps)}"
