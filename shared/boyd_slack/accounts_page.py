"""The console pages of Slack accounts: linked once to a principal, listed, renewed and removed."""

from __future__ import annotations

from flask import redirect

from boyd.models import Actor, ApiKey
from boyd_api.console.declared_pages import NavigationLink, PageResult, Pages
from boyd_api.console.page_request import PageRequest
from boyd_api.console.rendering import render_page
from boyd_api.http.problems import HttpProblem, not_found
from boyd_api.http.services import Services
from boyd_slack.slack_accounts import LINK, SlackAccount, SlackAccounts
from boyd_slack.slack_settings import slack_settings

_HERE = "/console/slack"

pages = Pages(
    "boyd_slack",
    NavigationLink("Slack accounts", "slack", "/slack", "deployment", needs="slack.workspace"),
    section="slack",
)


@pages.get("/slack")
def accounts(page: PageRequest) -> PageResult:
    """Show the linked accounts that the reader may see."""
    all_accounts, settings = SlackAccounts(page.services.store), page.services.settings
    rows = [
        (account, all_accounts.identity(account, settings) is not None)
        for account in all_accounts.all()
        if _is_own(page, account) or not _refusal(page)
    ]
    return render_page(
        page,
        "slack/accounts.html",
        rows=rows,
        is_admin=not _refusal(page),
        is_set=slack_settings(settings).is_set,
        own=page.key.principal if page.key else "",
    )


@pages.get("/slack/link/<token>", scope="approvals")
def show_link(page: PageRequest, token: str) -> PageResult:
    """Ask whether the Slack account is the reader's."""
    return _show_link(page, _read_offer(page, token))


@pages.post("/slack/link/<token>", scope="approvals", fresh=True)
def confirm_link(page: PageRequest, token: str) -> PageResult:
    """Show the code that completes the link in Slack."""
    account = _read_offer(page, token)
    code = SlackAccounts(page.services.store).confirm(token, _key(page))
    if code is None:
        raise _no_offer()
    return _show_link(page, account, f"{code[:4]}-{code[4:]}")


@pages.post("/slack/<workspace>/<user>/renew", scope="approvals", fresh=True)
def renew(page: PageRequest, workspace: str, user: str) -> PageResult:
    """Give an account the rights of this login."""
    account = _account(page, workspace, user)
    if not _is_own(page, account):
        raise HttpProblem("forbidden", f"only {account.principal} can renew it")
    SlackAccounts(page.services.store).renew(account, _key(page))
    return redirect(_HERE, 303)


@pages.post("/slack/<workspace>/<user>/unlink", scope="read")
def unlink(page: PageRequest, workspace: str, user: str) -> PageResult:
    """Remove an account: one's own, or, with the scope `admin`, any."""
    account = _account(page, workspace, user)
    SlackAccounts(page.services.store).unlink(account, page.ctx.actor)
    return redirect(_HERE, 303)


@pages.on_logout
def unlink_identity(services: Services, by: Actor) -> None:
    """Remove the accounts of a person whom the identity provider has signed out."""
    accounts = SlackAccounts(services.store)
    for account in accounts.all():
        if account.identity is not None and account.principal == by.principal:
            accounts.unlink(account, by)


def _show_link(page: PageRequest, account: SlackAccount, code: str = "") -> PageResult:
    before = SlackAccounts(page.services.store).get(account.id)
    return render_page(
        page,
        "slack/link.html",
        account=account,
        before=before.principal if before else "",
        key=_key(page),
        code=code,
        minutes=int(LINK / 60),
    )


def _read_offer(page: PageRequest, token: str) -> SlackAccount:
    account = SlackAccounts(page.services.store).find_offer(token)
    if account is None:
        raise _no_offer()
    return account


def _no_offer() -> HttpProblem:
    return not_found("the link was used before, or is too old: click a button in Slack again")


def _account(page: PageRequest, workspace: str, user: str) -> SlackAccount:
    account = SlackAccounts(page.services.store).get(f"{workspace}/{user}")
    if account is None or not (_is_own(page, account) or not _refusal(page)):
        raise not_found("no such account is linked, or it is not yours")
    return account


def _is_own(page: PageRequest, account: SlackAccount) -> bool:
    return page.key is not None and page.key.principal == account.principal


def _refusal(page: PageRequest) -> str:
    return page.lacks("admin", everywhere=True)


def _key(page: PageRequest) -> ApiKey:
    if page.key is None:
        raise HttpProblem("forbidden", "it needs a login: this console is open to everybody")
    return page.key
