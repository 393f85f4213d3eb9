"""Settings of the API for answers from Slack."""

from __future__ import annotations

from typing import Self

from pydantic import BaseModel, ConfigDict, Field, SecretStr, model_validator

from boyd.settings.process_settings import Settings
from boyd.settings.validation import BaseUrl

#: The address of the Web API, but for those who use GovSlack.
WEB_API = "https://slack.com/api"


class SlackSettings(BaseModel):
    """Answers from Slack: see [Chat](../chat.md); the plugin `slack` has its own options.

    Attributes:
        workspace: the id of the workspace whose people may answer, `T…`; absent: nobody may.
        app: the id of the Slack app, `A…`.
        signing_secret: the secret by which requests of Slack are recognized; two, separated by a
            blank, while one replaces the other.
        token: the token of its bot, `xoxb-…`, which opens dialogs.
        url: the address of Slack's Web API.
        login_age: seconds after which a person of an identity provider has to sign in again.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    workspace: str | None = Field(default=None, pattern=r"^T[A-Z0-9]+$")
    app: str | None = Field(default=None, pattern=r"^A[A-Z0-9]+$")
    signing_secret: SecretStr | None = Field(default=None, min_length=16)
    token: SecretStr | None = Field(default=None, min_length=10)
    url: BaseUrl = WEB_API
    login_age: float = Field(default=43_200.0, gt=0, le=604_800.0)

    @model_validator(mode="after")
    def _complete(self) -> Self:
        parts = (self.workspace, self.app, self.signing_secret, self.token)
        if any(parts) and not all(parts):
            raise ValueError("workspace, app, signing_secret and token need each other")
        return self

    @property
    def is_set(self) -> bool:
        """True if people may answer from Slack."""
        return self.workspace is not None

    @property
    def signing_secrets(self) -> list[str]:
        """The secrets, each of which is right."""
        return self.signing_secret.get_secret_value().split() if self.signing_secret else []


def slack_settings(settings: Settings) -> SlackSettings:
    """The group `slack` of the settings of a process."""
    group = getattr(settings, "slack", None)
    return group if isinstance(group, SlackSettings) else SlackSettings()
