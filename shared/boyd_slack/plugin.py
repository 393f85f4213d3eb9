"""The plugin `slack`: a message in a channel for each approval, edited as it goes on."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

from pydantic import Field, field_validator

from boyd.models import ASKING, ApprovalItem, NotificationRecipient, NotificationStage
from boyd.plugin import Context, Plugin, Secret
from boyd.plugins.notifier.message import NotificationMessage, approval_message
from boyd.plugins.notifier.plugin import Audience, audiences_of
from boyd.settings.validation import BaseUrl
from boyd_slack import blocks
from boyd_slack.slack_settings import WEB_API
from boyd_slack.web_api import SlackApi, SlackError

#: Seconds for which another attempt waits for one that is posting, or has died meanwhile.
_POSTING = 60.0
#: The most seconds for which messages are edited; an approval has ended by then.
_KEEP = 30 * 86_400.0
#: Slack's words for a message that cannot be edited any more.
_LOST = ("message_not_found", "edit_window_closed", "cant_update_message")
#: Where the end of a rate limit is kept.
_LIMITED = "limited-until"


class SlackChannel(Audience):
    """A channel, and the approvals that it is notified of.

    Attributes:
        channel: the id of the channel, such as `C0123456789`; the app must be a member.
        buttons: whether its messages have buttons to answer; the API needs the settings `slack`.
    """

    channel: str = Field(pattern=r"^[CDG][A-Z0-9]{5,}$")
    buttons: bool = True


class SlackMessages(Plugin):
    """Posts a message for each approval, with buttons, and edits it to what became of it."""

    id = "slack"

    class Options(Plugin.Options):
        """The plugin's options.

        Attributes:
            token: the token of the bot, `xoxb-…`, as a `file` or `env`.
            groups: the channels.
            url: the address of Slack's Web API.
            timeout: seconds for one call.
        """

        token: Secret
        groups: list[SlackChannel] = Field(min_length=1)
        url: BaseUrl = WEB_API
        timeout: float = Field(default=10.0, gt=0, le=12)

        @field_validator("groups")
        @classmethod
        def _distinct(cls, groups: list[SlackChannel]) -> list[SlackChannel]:
            if len({group.name for group in groups}) < len(groups):
                raise ValueError("two groups have the same name")
            return groups

    options: Options

    def notification_recipients(
        self, approval: ApprovalItem, stage: NotificationStage, ctx: Context
    ) -> Iterator[NotificationRecipient]:
        """The channels of the groups that the policy names, else of the default groups."""
        limit = ctx.state.get(_LIMITED)
        for group in audiences_of(approval, self.options.groups):
            if group.wants(approval, stage):
                times = [group.not_before(approval, ctx.now())]
                times += [datetime.fromisoformat(limit)] if limit else []
                yield NotificationRecipient(
                    id=group.name,
                    group=group.name,
                    kind="slack",
                    not_before=max((time for time in times if time), default=None),
                )

    def on_approval(
        self, approval: ApprovalItem, stage: NotificationStage, recipient: str, ctx: Context
    ) -> None:
        """Post the message, or edit the one that was posted; tell in its thread what is new."""
        group = next(group for group in self.options.groups if group.name == recipient)
        session, token = ctx.http, self.options.token.read()
        api = SlackApi(session, self.options.url, token, self.options.timeout)
        try:
            self._show(api, approval, stage, group, ctx)
        except SlackError as error:
            if error.wait:
                until = ctx.now() + timedelta(seconds=error.wait)
                ctx.state.set(_LIMITED, until.isoformat(), ttl=error.wait)
            raise

    def _show(
        self,
        api: SlackApi,
        approval: ApprovalItem,
        stage: NotificationStage,
        group: SlackChannel,
        ctx: Context,
    ) -> None:
        message = approval_message(approval, stage, ctx.approval_link(approval), ctx.now())
        waits, allowed = approval.status == "pending", approval.required.links != "never"
        content = {
            "channel": group.channel,
            "text": blocks.fallback(message.title),
            "blocks": blocks.approval_blocks(
                message, approval, buttons=waits and allowed and group.buttons
            ),
        }
        key = f"message:{approval.id}:{group.name}"
        posted = ctx.state.get(key)
        if posted and posted["ts"]:
            try:
                # The channel in which it was posted, although the options may name another by now.
                place = {"channel": posted["channel"], "ts": posted["ts"]}
                api.call("chat.update", **{**content, **place})
                self._reply(api, message, stage, posted)
                return
            except SlackError as error:
                if error.code not in _LOST:
                    raise
                ctx.state.delete(key)
        self._post(api, content, key, ctx)

    def _post(self, api: SlackApi, content: dict[str, Any], key: str, ctx: Context) -> None:
        """Post a message, and keep its place: one attempt at a time, so that stages share it."""
        if not ctx.state.compare_and_set(
            key, None, {"channel": content["channel"], "ts": ""}, ttl=_POSTING
        ):
            raise SlackError("another attempt is posting the message")
        try:
            answer = api.call("chat.postMessage", **content)
        except SlackError as error:
            if error.code:
                # Slack has refused it, so the next attempt posts it at once.
                ctx.state.delete(key)
            raise
        place = {"channel": str(answer["channel"]), "ts": str(answer["ts"])}
        ctx.state.set(key, place, ttl=_KEEP)

    def _reply(
        self, api: SlackApi, message: NotificationMessage, stage: NotificationStage, posted: Any
    ) -> None:
        """Say in the thread what an edit would not show: Slack notifies nobody of edits."""
        if stage not in ("waiting", "answered"):
            outcome = dict(message.lines).get("outcome")
            lines = [message.title, *([outcome] if outcome else [])]
            api.call(
                "chat.postMessage",
                channel=posted["channel"],
                thread_ts=posted["ts"],
                text=blocks.fallback(message.title),
                blocks=[blocks.section("\n".join(lines))],
                reply_broadcast=stage in ASKING,
            )
