"""The plugin `notifier`: groups of recipients, and which approvals each is notified of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from fnmatch import fnmatchcase
from typing import Literal, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SecretStr,
    field_validator,
    model_validator,
)

from boyd import naming
from boyd.models import (
    ASKING,
    FOLLOWING,
    LEVELS,
    OUTCOMES,
    STAGES,
    Actor,
    ApprovalItem,
    ExecutionEntry,
    Hold,
    JsonObject,
    Level,
    Model,
    NotificationRecipient,
    NotificationStage,
    ProcedureRecord,
    TrackRecord,
    describe_outcome,
    start_of_wait,
)
from boyd.plugin import Context, Plugin
from boyd.plugins.approval_policy import Hours
from boyd.plugins.notifier.message import (
    NotificationMessage,
    approval_message,
    check_address,
    kind_of,
    post_webhook,
    procedure_message,
    send_by_apprise,
    suspension_message,
    withdrawal_message,
)
from boyd.plugins.notifier.rota import Rota, RotaError, is_on_call
from boyd.settings.secret_references import reveal

#: The step in which the end of quiet hours is searched; zones are offset by quarters of an hour.
_STEP = timedelta(minutes=15)
#: The furthest end of quiet hours that is searched.
_FURTHEST = timedelta(days=8)


class _Part(BaseModel):
    # Inputs may hold secrets.
    model_config = ConfigDict(
        extra="forbid", frozen=True, populate_by_name=True, hide_input_in_errors=True
    )


class QuietHours(Hours):
    """The hours in which a group gets no messages, except about critical approvals."""

    @model_validator(mode="after")
    def _ending(self) -> QuietHours:
        if (self.start, self.end, len(set(self.weekdays))) == (0, 24, 7):
            raise ValueError("must end at some time; omit the group instead")
        return self

    def until(self, now: datetime) -> datetime | None:
        """The end of the quiet hours at *now*, if there are any."""
        if not self.include(now):
            return None
        quarter = now.replace(minute=now.minute // 15 * 15, second=0, microsecond=0)
        steps = (quarter + _STEP * number for number in range(1, _FURTHEST // _STEP))
        return next(moment for moment in steps if not self.include(moment))


class Recipient(_Part):
    """A place to send messages to, and the principal who reads them there.

    Attributes:
        url: a webhook (`https://…`) or an Apprise URL; a secret.
        style: what a webhook gets: `text` for chats that accept `{"text": …}`, `json` for all that
            the message is about.
        headers: additional headers of a webhook, such as a token.
        as_principal: the principal who may answer by a signed link; none: links need a login.
        person: whether that principal is a person.
        groups: the groups of that principal.
        on_call: the names in the rota of the group, each a name or a mail address; by default that
            of the principal.
    """

    url: SecretStr
    style: Literal["text", "json"] = "text"
    headers: dict[str, SecretStr] = Field(default_factory=dict)
    as_principal: str | None = Field(default=None, alias="as", min_length=1, max_length=200)
    person: bool = False
    groups: list[str] = Field(default_factory=list)
    on_call: list[str] = Field(default_factory=list)

    @field_validator("url")
    @classmethod
    def _usable(cls, url: SecretStr) -> SecretStr:
        check_address(url.get_secret_value())
        return url

    @model_validator(mode="after")
    def _consistent(self) -> Recipient:
        if self.kind != "webhook" and (self.headers or self.style != "text"):
            raise ValueError("style and headers are for webhooks (https://…)")
        if self.as_principal is None and (self.person or self.groups):
            raise ValueError("person and groups describe the principal that `as` names")
        if self.as_principal is not None:
            Actor(principal=self.as_principal)
        return self

    @property
    def kind(self) -> str:
        """The kind of service."""
        return kind_of(self.url.get_secret_value())

    @property
    def rota_names(self) -> list[str]:
        """Its names in a rota."""
        return self.on_call or [(self.as_principal or "").removeprefix("mail:")]

    @property
    def actor(self) -> Actor | None:
        """The principal who may answer by a signed link, if any."""
        if self.as_principal is None:
            return None
        return Actor(principal=self.as_principal, person=self.person, groups=self.groups)


class Audience(_Part):
    """People who get the same messages, wherever they read them.

    Attributes:
        name: the name; an approval goes to the groups that its policy names.
        default: whether it also gets approvals whose policy names no group that is listed here.
        stages: the stages to report.
        actions: patterns of action ids.
        min_risk: the lowest risk to report.
        quiet: hours without messages, except about critical approvals.
    """

    name: str = Field(min_length=1, max_length=100, pattern=r"^[^\s/]+$")
    default: bool = True
    stages: list[NotificationStage] = Field(default=list(STAGES), min_length=1)
    actions: list[str] = ["*"]
    min_risk: Level = "low"
    quiet: QuietHours | None = None

    def wants(self, item: ApprovalItem, stage: NotificationStage) -> bool:
        """Decide whether the group is notified of *item* at *stage*."""
        grave = item.risk is None or LEVELS.index(item.risk) >= LEVELS.index(self.min_risk)
        return stage in self.stages and self.is_for(item.action_id) and grave

    def is_for(self, action: str) -> bool:
        """Decide whether the group is told of what concerns *action*."""
        return any(fnmatchcase(action, pattern) for pattern in self.actions)

    def not_before(self, item: ApprovalItem, now: datetime) -> datetime | None:
        """The time until which a message about *item* is held back, if it is."""
        if self.quiet is None or "critical" in (item.risk, item.decision.risk):
            return None
        return self.quiet.until(now)


_A = TypeVar("_A", bound=Audience)


def audiences_of(approval: ApprovalItem, groups: Sequence[_A]) -> list[_A]:
    """The groups that the policy of *approval* names, else the default ones."""
    chosen = [group for group in groups if group.name in approval.required.groups]
    return chosen or [group for group in groups if group.default]


class RecipientGroup(Audience):
    """Recipients who get the same messages.

    Attributes:
        recipients: a table or just a `url` for each.
        rota: by which only those on call are told, or everybody if it cannot be read.
    """

    recipients: list[Recipient] = Field(min_length=1)
    rota: Rota | None = None

    @field_validator("recipients", mode="before")
    @classmethod
    def _tables(cls, value: object) -> object:
        if not isinstance(value, list):
            return value
        return [{"url": item} if isinstance(item, str) else item for item in value]

    @model_validator(mode="after")
    def _check_names(self) -> RecipientGroup:
        if self.rota is not None:
            for recipient in self.recipients:
                if not any(recipient.rota_names):
                    raise ValueError("with a rota, each recipient needs `on_call` or `as`")
        return self

    def on_call(self, ctx: Context, timeout: float) -> tuple[set[int], str]:
        """The numbers of the recipients on call, and why that is everybody, if so."""
        everybody = set(range(len(self.recipients)))
        if self.rota is None:
            return everybody, ""
        try:
            people = self.rota.people(ctx.now(), ctx.http, timeout)
        except RotaError as error:
            ctx.logger.warning("the rota of group %s cannot be read: %s", self.name, error)
            return everybody, f"the rota of {self.name} cannot be read: {error}"
        chosen = {n for n in everybody if is_on_call(self.recipients[n].rota_names, people)}
        return chosen or everybody, "" if chosen else f"nobody in {self.name} is on call"

    def recipient(self, number: int, not_before: datetime | None) -> NotificationRecipient:
        """The recipient of that number, as the core knows it."""
        kind = self.recipients[number].kind
        return NotificationRecipient(
            id=f"{self.name}/{number}", group=self.name, kind=kind, not_before=not_before
        )


class Escalation(_Part):
    """A group that is told of an approval that nobody has acknowledged or answered.

    Attributes:
        group: the group.
        after: seconds that it has waited for somebody then.
        asked: only of approvals for one of these groups; empty: of all.
    """

    group: str
    after: float = Field(gt=0, le=7 * 86400)
    asked: list[str] = Field(default_factory=list)


class Notifier(Plugin):
    """Notifies groups of people of approvals, and of actions and procedures that need them.

    It does so when an approval waits, at half of its time, when it is answered, and when its
    outcome is there.
    """

    id = "notifier"

    class Options(Plugin.Options):
        """The plugin's options.

        Attributes:
            groups: the groups of recipients.
            escalations: the groups to tell later if nobody acknowledges or answers.
            timeout: seconds for one attempt of a webhook.
        """

        groups: list[RecipientGroup] = Field(min_length=1)
        escalations: list[Escalation] = Field(default_factory=list)
        timeout: float = Field(default=10.0, gt=0, le=25)

        @field_validator("groups")
        @classmethod
        def _distinct(cls, groups: list[RecipientGroup]) -> list[RecipientGroup]:
            if len({group.name for group in groups}) < len(groups):
                raise ValueError("two groups have the same name")
            return groups

        @model_validator(mode="after")
        def _complete(self) -> Notifier.Options:
            names = {group.name for group in self.groups}
            for escalation in self.escalations:
                for name in {escalation.group, *escalation.asked} - names:
                    raise ValueError(f"escalations: there is no group {name!r}")
            return self

    options: Options

    def notification_recipients(
        self, approval: ApprovalItem, stage: NotificationStage, ctx: Context
    ) -> Iterator[NotificationRecipient]:
        """The recipients in the groups that the policy names, else in the default groups.

        Of a group with a rota, those on call are asked. What follows is for all who know of it,
        and the outcome also for those who approved it, in any group.
        """
        audiences = audiences_of(approval, self.options.groups)
        for group in self.options.groups:
            if not group.wants(approval, stage):
                continue
            not_before = group.not_before(approval, ctx.now())
            is_asked = group in audiences and not (group.rota and stage in FOLLOWING)
            on_call = group.on_call(ctx, self.options.timeout)[0] if is_asked else set()
            for number, recipient in enumerate(group.recipients):
                entry = group.recipient(number, not_before)
                follows = stage != "waiting" and _was_told(approval, entry.id)
                has_part = stage in OUTCOMES and _has_approved(approval, recipient)
                if number in on_call or follows or has_part:
                    yield entry

    def escalation_recipients(
        self, approval: ApprovalItem, ctx: Context
    ) -> Iterator[NotificationRecipient]:
        """The recipients of further groups, with the time when each is told.

        Who is on call is known when that time has come; until then it is everybody in the group.
        """
        now = ctx.now()
        audiences = audiences_of(approval, self.options.groups)
        names = {group.name for group in audiences}
        for escalation in sorted(self.options.escalations, key=lambda step: step.after):
            group = self._group(escalation.group)
            concerns = not escalation.asked or not names.isdisjoint(escalation.asked)
            if group in audiences or not concerns or not group.wants(approval, "escalated"):
                continue
            audiences.append(group)
            at = start_of_wait(approval, now) + timedelta(seconds=escalation.after)
            at = group.not_before(approval, at) or at
            if approval.expires_at is not None and at >= approval.expires_at:
                continue
            on_call = group.on_call(ctx, self.options.timeout)[0] if at <= now else None
            for number in range(len(group.recipients)):
                if on_call is None or number in on_call:
                    yield group.recipient(number, at)

    def on_approval(
        self, approval: ApprovalItem, stage: NotificationStage, recipient: str, ctx: Context
    ) -> None:
        """Send one message, once."""
        group, target = self._recipient(recipient)
        waits = stage in ASKING
        to = target.actor if waits else None
        link = ctx.approval_link(approval, to)
        message = approval_message(approval, stage, link, ctx.now())
        if waits:
            message = message.add("rota", group.on_call(ctx, self.options.timeout)[1])
        body: JsonObject = {
            "stage": stage,
            "agent": ctx.agent.id,
            "thread": message.thread,
            "approval": approval.to_wire(),
            **{label: text for label, text in message.lines if label == "incident"},
        }
        outcome = describe_outcome(approval)
        if outcome is not None:
            body["outcome"] = str(outcome)
        # The same for each attempt, so that receivers recognise repetitions.
        id = f"approval_{approval.id}_{stage}"
        if stage in ("acknowledged", "reminder") and approval.acknowledgement is not None:
            id += f"_{approval.acknowledgement.number}"
        self._send(target, message, body, id, ctx, waits=waits)

    def on_suspend(self, hold: Hold, execution: ExecutionEntry, ctx: Context) -> None:
        """Tell those who know of its approval at once, also in quiet hours."""
        to = self._recipients_for(hold.action, execution.approval_id, ctx)
        message = suspension_message(hold, execution, ctx.agent.id)
        about = {"hold": hold, "execution": execution}
        self._tell(to, message, "suspended", about, f"suspended_{execution.id}", ctx)

    def on_withdraw(self, record: TrackRecord, execution: ExecutionEntry, ctx: Context) -> None:
        """Tell everybody in the groups for the action at once, also in quiet hours."""
        to = self._recipients_for(record.action, None, ctx)
        message = withdrawal_message(record, execution, ctx.agent.id)
        about = {"record": record, "execution": execution}
        self._tell(to, message, "withdrawn", about, f"withdrawn_{execution.id}", ctx)

    def on_procedure(self, procedure: ProcedureRecord, ctx: Context) -> None:
        """Tell those who know of its approval at once, also in quiet hours."""
        to = self._recipients_for(procedure.action, naming.approval_in(procedure.id), ctx)
        message = procedure_message(procedure, ctx.agent.id)
        # A procedure may be stopped several times.
        id = f"procedure_{procedure.id}_{procedure.state}_{procedure.at}"
        self._tell(to, message, procedure.state, {"procedure": procedure}, id, ctx)

    def _recipients_for(
        self, action: str, approval_id: str | None, ctx: Context
    ) -> list[Recipient]:
        """Those who were told of the approval or gave it, else all in groups for the action."""
        approval = ctx.approvals.get(approval_id) if approval_id else None
        places = [
            (group, f"{group.name}/{number}", recipient)
            for group in self.options.groups
            for number, recipient in enumerate(group.recipients)
        ]
        readers = [
            to for _, id, to in places if _was_told(approval, id) or _has_approved(approval, to)
        ]
        return readers or [to for group, _, to in places if group.is_for(action)]

    def _tell(
        self,
        recipients: Sequence[Recipient],
        message: NotificationMessage,
        stage: str,
        about: Mapping[str, Model],
        id: str,
        ctx: Context,
    ) -> None:
        """Send one message to all of them, also if some cannot be reached."""
        parts = {name: model.to_wire() for name, model in about.items()}
        body: JsonObject = {"stage": stage, "agent": ctx.agent.id, **parts}
        failed: list[Exception] = []
        for recipient in recipients:
            try:
                self._send(recipient, message, body, id, ctx, waits=True)
            except Exception as error:  # noqa: BLE001 - raised when the others are told
                failed.append(error)
        if failed:
            raise failed[0]

    def _send(
        self,
        to: Recipient,
        message: NotificationMessage,
        body: JsonObject,
        id: str,
        ctx: Context,
        *,
        waits: bool,
    ) -> None:
        url = to.url.get_secret_value()
        if to.kind != "webhook":
            send_by_apprise(url, message, waits=waits)
            return
        if to.style != "json":
            body = {"text": message.chat_text()}
        elif message.link:
            body = {**body, "link": message.link}
        headers = {name: reveal(value) for name, value in to.headers.items()}
        headers["webhook-id"] = id
        post_webhook(ctx.http, url, body, headers, self.options.timeout)

    def _group(self, name: str) -> RecipientGroup:
        return next(group for group in self.options.groups if group.name == name)

    def _recipient(self, id: str) -> tuple[RecipientGroup, Recipient]:
        name, _, number = id.rpartition("/")
        group = self._group(name)
        return group, group.recipients[int(number)]


def _was_told(approval: ApprovalItem | None, recipient: str) -> bool:
    records = approval.notifications if approval else []
    return any(record.attempts and record.recipient == recipient for record in records)


def _has_approved(approval: ApprovalItem | None, recipient: Recipient) -> bool:
    votes = approval.approvals if approval else []
    return any(vote.by == recipient.as_principal for vote in votes)
