"""Interactions: what Slack sends when somebody clicks a button or submits a dialog.

A request changes something only if it is signed, recent, new, and of the workspace and the app that
the settings name. A button only opens a dialog; what answers is its submission, with the rights
that the principal has by then.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from typing import Literal
from urllib.parse import parse_qs, quote

from flask import Response, g, request
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from boyd.errors import UnknownAgent
from boyd.intake.sender_checks import SenderRefused, check_sender
from boyd.models import ApiKey, ApprovalItem, ApprovalOutcome
from boyd.settings.intake_settings import HmacAuth
from boyd.store import DEPLOYMENT, Resolution, Verdict
from boyd.store.login_sessions import digest
from boyd_api.console.declared_pages import PageResult
from boyd_api.console.page_request import PageRequest
from boyd_api.http.auth import Caller
from boyd_api.http.problems import HttpProblem
from boyd_api.http.request_context import RequestContext
from boyd_api.http.services import Services
from boyd_api.routes import approval_routes
from boyd_api.routes.acknowledgement_routes import AcknowledgeRequest, acknowledge_approval
from boyd_slack import blocks
from boyd_slack.accounts_page import pages
from boyd_slack.blocks import ApprovalReference, Block
from boyd_slack.slack_accounts import SlackAccount, SlackAccounts
from boyd_slack.slack_settings import SlackSettings, slack_settings

log = logging.getLogger("boyd.slack")

#: Slack waits three seconds for an answer, and as long for a dialog.
_DIALOG = 2.0
_FORM = "application/x-www-form-urlencoded"
#: The name under which refused requests are logged and counted.
_SOURCE = "slack-interactions"
_VERDICTS: dict[str, Verdict] = {"approve": "approved", "deny": "denied"}
_ACKNOWLEDGED = "You have it: nobody else is asked meanwhile. It still needs an answer."
#: Slack's scheme of signatures.
_SIGNED = HmacAuth(
    method="hmac",
    header="X-Slack-Signature",
    prefix="v0=",
    signed="v0:{X-Slack-Request-Timestamp}:{body}",
    timestamp="X-Slack-Request-Timestamp",
    secret="slack",  # noqa: S106 - a name, which nothing looks up
)


class _Part(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class _Workspace(_Part):
    id: str


class _User(_Part):
    id: str = Field(pattern=r"^[UW][A-Z0-9]{1,40}$")
    name: str = Field(default="", max_length=200)
    team_id: str | None = None


class _Click(_Part):
    action_id: str = ""
    value: str = ""


class _Text(_Part):
    value: str | None = None


class _State(_Part):
    values: dict[str, dict[str, _Text]] = Field(default_factory=dict)


class _View(_Part):
    id: str
    callback_id: str = ""
    private_metadata: str = ""
    state: _State = _State()

    def text(self, block: str) -> str:
        """The text in a field of the dialog."""
        return (self.state.values.get(block, {}).get(blocks.FIELD, _Text()).value or "").strip()


class Interaction(_Part):
    """The payload of an interaction, as far as it is used."""

    type: Literal["block_actions", "view_submission", "view_closed"]
    api_app_id: str
    team: _Workspace
    user: _User
    trigger_id: str = ""
    actions: list[_Click] = Field(default_factory=list)
    view: _View | None = None

    @property
    def account(self) -> SlackAccount:
        """The Slack account that sent it."""
        return SlackAccount(workspace=self.team.id, user=self.user.id, name=self.user.name)


@pages.post("/slack/interactions", scope=None, signed=True)
def receive(page: PageRequest) -> PageResult:
    """Answer an interaction; a sender that Slack is not learns nothing."""
    services = page.services
    try:
        interaction = read_interaction(services, slack_settings(services.settings))
    except SenderRefused as error:
        services.refusals.know([_SOURCE])
        services.refusals.report(_SOURCE, "unauthenticated", f"{request.remote_addr}: {error}")
        return Response(status=401)
    desk = _Desk(services, interaction)
    if interaction.type == "block_actions":
        desk.open_dialog()
    elif interaction.type == "view_submission" and interaction.view is not None:
        return Response(desk.submit(interaction.view), mimetype="application/json")
    return Response()


def read_interaction(services: Services, settings: SlackSettings) -> Interaction:
    """The interaction in the request.

    Raises:
        SenderRefused: it is not signed by Slack, was sent before, or is not for this deployment.
    """
    if not settings.is_set:
        raise SenderRefused("the settings slack are not set")
    if request.mimetype != _FORM:
        raise SenderRefused(f"it is no form but {request.mimetype[:50]!r}")
    headers = {name.lower(): value for name, value in request.headers.items()}
    body, now = request.get_data(), services.store.clock.seconds()
    message = check_sender(_SIGNED, settings.signing_secrets, headers, lambda: body, now, {})
    try:
        [text] = parse_qs(body.decode(), strict_parsing=True)["payload"]
        interaction = Interaction.model_validate(json.loads(text))
    except (ValidationError, ValueError, KeyError, RecursionError):
        raise SenderRefused("it is no interaction that is known here") from None
    workspaces = {interaction.team.id, interaction.user.team_id or interaction.team.id}
    if (workspaces, interaction.api_app_id) != ({settings.workspace}, settings.app):
        whose = f"{interaction.user.id} of {', '.join(sorted(workspaces))}"
        raise SenderRefused(f"it is of {whose} with the app {interaction.api_app_id}")
    if not SlackAccounts(services.store).is_first(message or ""):
        raise SenderRefused(f"it was sent before, by {interaction.account.id}")
    return interaction


class _Refused(Exception):
    """An answer that is not possible from Slack; *link* is where it may be."""

    def __init__(self, reason: str, link: str = "") -> None:
        super().__init__(reason)
        self.link = link


@dataclass(frozen=True)
class _Desk:
    """Serves one interaction."""

    services: Services
    interaction: Interaction

    def open_dialog(self) -> None:
        """Open the dialog of the button that was clicked."""
        click = next(iter(self.interaction.actions), _Click())
        if click.action_id not in blocks.BUTTONS:
            return
        view = self._confirmation(click)
        settings = slack_settings(self.services.settings)
        token = settings.token.get_secret_value() if settings.token else ""
        # With their HTTP client, which an API process without Slack has no use for.
        from boyd.plugin.http_session import Session
        from boyd_slack.web_api import SlackApi, SlackError

        try:
            with Session() as session:
                slack = SlackApi(session, settings.url, token, _DIALOG)
                slack.call("views.open", trigger_id=self.interaction.trigger_id, view=view)
        except SlackError as error:
            log.warning("no dialog for %s: %s", self.interaction.account.id, error)

    def submit(self, view: _View) -> str:
        """Do what a dialog was submitted for; the JSON that replaces it."""
        if view.callback_id == blocks.LINK:
            return self._link(view)
        if view.callback_id != blocks.ANSWER:
            return ""
        try:
            return self._answer(view, _reference(view.private_metadata))
        except _Refused as error:
            return blocks.replacement(blocks.notice(str(error), error.link))

    def _confirmation(self, click: _Click) -> Block:
        key = self._key()
        if key is None:
            return self._invitation()
        verb = blocks.BUTTONS[click.action_id]
        try:
            item = self._item(key, _reference(click.value).patched({"verb": verb}))
        except _Refused as error:
            return blocks.notice(str(error), error.link)
        frozen = self.services.store.freezes.all().keys() & {DEPLOYMENT, item.agent_id}
        from boyd.plugins.notifier.message import approval_message  # it loads the HTTP client, too

        message = approval_message(item, "waiting", "", self.services.store.clock.now())
        return blocks.confirmation(message, item, verb, key.principal, is_frozen=bool(frozen))

    def _answer(self, view: _View, reference: ApprovalReference) -> str:
        """Answer or acknowledge as the principal, by the same path as console and API."""
        key = self._key()
        if key is None:
            raise _Refused("Your Slack account is no longer linked: click the button again.")
        item = self._item(key, reference)
        actor = key.actor(f"slack:{self.interaction.account.id}")
        g.caller = Caller(actor, key)
        ctx = RequestContext(
            *(self.services, actor, key, self.services.agent(item.agent_id, key)),
            # A dialog that is submitted twice answers once.
            *(f"slack:{view.id}", None, lambda: False),
        )
        note = view.text(blocks.NOTE)
        try:
            if reference.verb == "acknowledge":
                acknowledge_approval(ctx, item.id, AcknowledgeRequest(note=note))
                return blocks.replacement(blocks.notice(_ACKNOWLEDGED))
            resolution = approval_routes.answer(
                ctx, item.id, _VERDICTS[reference.verb], note or None, reference.version
            )
        except HttpProblem as problem:
            raise _Refused(str(problem)) from None
        if resolution.outcome == ApprovalOutcome.NOTE_REQUIRED:
            return blocks.errors(blocks.NOTE, "The policy requires a note with the reason.")
        return blocks.replacement(blocks.notice(_outcome(resolution)))

    def _item(self, key: ApiKey, reference: ApprovalReference) -> ApprovalItem:
        """The approval, if *key* may do with it from Slack what *reference* says.

        Raises:
            _Refused: it may not, and why.
        """
        try:
            item = self.services.agent(reference.agent, key).approval(reference.id)
        except UnknownAgent:
            item = None
        if item is None:
            raise _Refused("This approval is no longer kept, or is not yours to see.")
        if not key.allows("approvals"):
            raise _Refused(f"{key.principal} lacks the scope 'approvals'.")
        if item.status == "pending" and item.required.links == "never":
            raise _Refused("Its policy allows no answers from messages.")
        if item.status == "pending" and reference.verb == "approve":
            self._check_console(item)
        refusal = item.refusal(key.actor()) if reference.verb == "approve" else None
        if refusal is None and item.status != "pending":
            refusal = ApprovalOutcome.NOT_PENDING
        if refusal is not None:
            raise _Refused(_sentence(approval_routes.refusal_text(refusal, item)))
        if reference.verb != "acknowledge":
            actor, rights = key.actor(), self.services.rights
            permission = rights.judge(actor, "approve", item.action_id, item.target)
            if not permission.allowed:
                raise _Refused(_sentence(permission.reason))
        return item

    def _check_console(self, item: ApprovalItem) -> None:
        """Raise `_Refused` if *item* is approved in the console only."""
        reason = ""
        if item.is_risky:
            reason = (
                "Its risk is high, critical or unknown: approve it in the console, with a login"
            )
            reason += " within the last five minutes."
        elif len(blocks.params_text(item)) > blocks.MAX_PARAMS:
            reason = "Its parameters are too long for Slack: approve it in the console."
        if reason:
            public = self.services.settings.api.url
            where = f"/console/agents/{quote(item.agent_id)}/approvals/{quote(item.id)}"
            raise _Refused(reason, f"{public}{where}" if public else "")

    def _key(self) -> ApiKey | None:
        """The identity of the Slack account with its rights of now, if it is linked."""
        accounts = SlackAccounts(self.services.store)
        account = accounts.get(self.interaction.account.id)
        return accounts.identity(account, self.services.settings) if account else None

    def _invitation(self) -> Block:
        """The dialog to link an account, or to sign in again."""
        public = self.services.settings.api.url
        if public is None:
            return blocks.notice("Accounts cannot be linked: the setting api.url is missing.")
        accounts = SlackAccounts(self.services.store)
        account = accounts.get(self.interaction.account.id)
        if account is not None and account.identity is not None:
            text = f"Your login as {account.principal} no longer counts: renew it on the page."
            return blocks.notice(text, f"{public}/console/slack")
        token = accounts.offer(self.interaction.account)
        return blocks.linking(f"{public}/console/slack/link/{token}", digest(token))

    def _link(self, view: _View) -> str:
        accounts = SlackAccounts(self.services.store)
        account = accounts.complete(
            view.private_metadata, self.interaction.account, view.text(blocks.CODE)
        )
        if account is None:
            text = "This is not the code, or it is too old. Click a button again for a new one."
        else:
            text = f"You are {account.principal} in Boyd from now on. Click the button again."
        return blocks.replacement(blocks.notice(text))


def _reference(text: str) -> ApprovalReference:
    try:
        return ApprovalReference.from_json(text)
    except ValidationError:
        raise _Refused("This button is of another version of Boyd: open the approval.") from None


def _outcome(resolution: Resolution) -> str:
    outcome, item = resolution.outcome, resolution.item
    if item is None:
        return "This approval is no longer kept."
    if not outcome.counts:
        return f"Your answer does not count: {approval_routes.refusal_of(resolution)}."
    if outcome == ApprovalOutcome.COUNTED:
        missing = item.required.min_approvals - len(item.counting)
        return f"Your approval counts. It needs {missing} more."
    if outcome == ApprovalOutcome.APPROVED:
        return "Approved. The message shows what becomes of it."
    return "Denied. Nothing is executed."


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."
