"""Senders prove that they know a secret, or that Amazon has signed their message."""

from __future__ import annotations

import base64
import hmac
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.x509.oid import NameOID
from pydantic import TypeAdapter, ValidationError

from boyd.errors import ConfigError
from boyd.intake.sender_checks import SenderRefused, check_sender, read_secrets
from boyd.intake.sns import SnsUnavailable, SnsVerifier
from boyd.settings.intake_settings import IntakeAuth, SnsAuth

NOW = 1_767_614_400
BODY = b'{"a": 1}'
SECRETS = ["an old secret", "a new secret"]


def auth(**fields: Any) -> Any:
    return TypeAdapter(IntakeAuth).validate_python({"secret": "s", **fields})


def sign(text: bytes, secret: str = SECRETS[1], kind: str = "sha256") -> bytes:
    return hmac.new(secret.encode(), text, kind).digest()


def check(rule: Any, **headers: str) -> str | None:
    named_headers = {name.replace("_", "-"): value for name, value in headers.items()}
    return check_sender(rule, SECRETS, named_headers, lambda: BODY, NOW, {})


def check_url(query: dict[str, list[str]], **headers: str) -> str | None:
    return check_sender(auth(method="query", parameter="t"), SECRETS, headers, bytes, NOW, query)


GITHUB = auth(method="hmac", header="X-Hub-Signature-256", prefix="sha256=", once=True)
TIMED = auth(method="hmac", header="X-Sig", timestamp="X-Time", signed="{X-Time}:{body}", window=60)
STANDARD = auth(
    method="hmac",
    header="webhook-signature",
    prefix="v1,",
    encoding="base64",
    timestamp="webhook-timestamp",
    signed="{webhook-id}.{webhook-timestamp}.{body}",
)


def basic(text: str) -> str:
    return f"Basic {base64.b64encode(text.encode()).decode()}"


def test_any_line_of_the_secret_is_right_while_it_is_replaced() -> None:
    for secret in SECRETS:
        check(auth(method="basic"), authorization=basic(f"boyd:{secret}"))
        check(auth(method="header", header="X-Gitlab-Token"), x_gitlab_token=secret)
        check(GITHUB, x_hub_signature_256=f"sha256={sign(BODY, secret).hex()}")
        check_url({"t": [secret], "other": ["x"]})


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ({}, "does not have the parameter t once"),
        ({"T": SECRETS}, "does not have"),
        ({"t": [""]}, "does not have"),
        ({"t": SECRETS}, "does not have"),
        ({"t": ["an old secre"]}, "the parameter t of the URL is wrong"),
        ({"t": ["ü\ud800"]}, "wrong"),
    ],
)
def test_a_secret_in_the_url_is_there_once_and_right(query: Any, reason: str) -> None:
    with pytest.raises(SenderRefused, match=reason) as caught:
        check_url(query, authorization=f"Bearer {SECRETS[0]}")
    assert not any(secret in str(caught.value) for secret in SECRETS)


@pytest.mark.parametrize(
    ("rule", "headers", "reason"),
    [
        (auth(method="basic"), {}, "send user and password"),
        (auth(method="basic"), {"authorization": "Bearer x"}, "send user and password"),
        (auth(method="basic"), {"authorization": "Basic ???"}, "not Basic"),
        (auth(method="basic"), {"authorization": basic("boyd:wrong")}, "wrong"),
        (auth(method="basic"), {"authorization": basic(f"eve:{SECRETS[0]}")}, "wrong"),
        (auth(method="header", header="X-T"), {}, "missing"),
        (auth(method="header", header="X-T"), {"x_t": "an old secre"}, "wrong"),
        (auth(method="header", header="X-T"), {"x_t": "ü"}, "wrong"),
        (GITHUB, {}, "no signature"),
        (GITHUB, {"x_hub_signature_256": sign(BODY).hex()}, "no signature with 'sha256='"),
        (GITHUB, {"x_hub_signature_256": "sha256="}, "no signature"),
        (GITHUB, {"x_hub_signature_256": "sha256=xyz"}, "not hex"),
        (GITHUB, {"x_hub_signature_256": f"sha256={sign(b'other').hex()}"}, "does not fit"),
        (TIMED, {"x_sig": sign(b":" + BODY).hex()}, "no time"),
        (TIMED, {"x_sig": sign(b"x:" + BODY).hex(), "x_time": "x"}, "no time"),
        (
            TIMED,
            {"x_sig": sign(f"{NOW - 61}:".encode() + BODY).hex(), "x_time": str(NOW - 61)},
            "more than 60 seconds",
        ),
        (TIMED, {"x_sig": sign(f"{NOW - 1}:".encode() + BODY).hex(), "x_time": str(NOW)}, "fit"),
    ],
)
def test_a_sender_without_valid_proof_is_refused_without_showing_secrets(
    rule: Any, headers: dict[str, str], reason: str
) -> None:
    with pytest.raises(SenderRefused, match=reason) as raised:
        check(rule, **headers)
    assert not any(secret in str(raised.value) for secret in SECRETS)


def test_a_message_that_signs_a_time_or_is_declared_unique_has_an_id_from_its_signature() -> None:
    def check_at(at: str) -> str | None:
        return check(TIMED, x_time=at, x_sig=sign(f"{at}:".encode() + BODY).hex())

    assert check_at(str(NOW)) == check_at(str(NOW)) != check_at(str(NOW * 1000))
    signature = sign(BODY).hex()
    assert check(GITHUB, x_hub_signature_256=f"sha256={signature}")
    assert check(auth(method="hmac", header="X-Sig"), x_sig=signature) is None


def test_one_of_several_signatures_is_enough() -> None:
    pagerduty = auth(method="hmac", header="X-PagerDuty-Signature", prefix="v1=")
    header = f"v1={sign(BODY, 'of another').hex()}, v1={sign(BODY).hex()}"
    check(pagerduty, x_pagerduty_signature=header)
    signed = f"msg_1.{NOW}.".encode() + BODY
    ids = {"webhook_id": "msg_1", "webhook_timestamp": str(NOW)}
    text = f"v1,{base64.b64encode(sign(signed)).decode()}"
    check(STANDARD, webhook_signature=f"v1a,c2ln {text}", **ids)


def test_the_body_is_not_read_for_headers_that_cannot_be_right() -> None:
    def never() -> bytes:
        raise AssertionError("the body was read")

    for headers in ({}, {"x-sig": "00"}, {"x-sig": "00", "x-time": str(NOW - 999)}):
        with pytest.raises(SenderRefused):
            check_sender(TIMED, SECRETS, headers, never, NOW, {})


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"signed": "constant"}, "must contain {body}"),
        ({"timestamp": "X-Time"}, "anybody could change it"),
        ({"secret": "../etc/passwd"}, "match"),
        ({"secret": ".hidden"}, "match"),
        ({"algorithm": "md5"}, "sha1"),
    ],
)
def test_a_check_that_would_protect_nothing_is_refused(fields: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        auth(method="hmac", header="X-Sig", **fields)


def test_a_secret_that_is_not_there_is_named_without_its_path(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("\n")
    for folder, name in ((None, "s"), (tmp_path, "missing"), (tmp_path, "empty")):
        with pytest.raises(ConfigError, match="has no secret") as raised:
            read_secrets(folder, name)
        assert str(tmp_path) not in str(raised.value)
    (tmp_path / "two").write_text(" first secret \nsecond secret\n")
    assert read_secrets(tmp_path, "two") == ["first secret", "second secret"]


# SNS

TOPIC = "arn:aws:sns:eu-west-1:000000000000:alarms"
URL = "https://sns.eu-west-1.amazonaws.com/SimpleNotificationService-0123.pem"
TOPICS = SnsAuth(method="sns", topics=[TOPIC])
KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)


def certificate(until: float = NOW + 1000) -> bytes:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "sns.amazonaws.com")])
    x509_certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(KEY.public_key())
        .serial_number(1)
        .not_valid_before(datetime.fromtimestamp(NOW, UTC) - timedelta(days=1))
        .not_valid_after(datetime.fromtimestamp(until, UTC))
        .sign(KEY, hashes.SHA256())
    )
    return x509_certificate.public_bytes(serialization.Encoding.PEM)


class Amazon:
    """Documents fetched from Amazon."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.pem: bytes | None = certificate()

    def __call__(self, url: str) -> bytes:
        self.asked.append(url)
        if self.pem is None:
            raise ConnectionError
        return self.pem


def message(version: str = "2", **changes: Any) -> bytes:
    """A signed message; *changes* are made before it is signed."""
    at = datetime.fromtimestamp(NOW, UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")
    sent = {"Type": "Notification", "MessageId": "m1", "TopicArn": TOPIC, "Message": "hello"}
    sent |= {"Timestamp": at, "SignatureVersion": version, "SigningCertURL": URL, **changes}
    names = ["Message", "MessageId", "Subject", "SubscribeURL", "Timestamp", "Token", "TopicArn"]
    text = "".join(f"{name}\n{sent[name]}\n" for name in [*names, "Type"] if name in sent)
    kind = hashes.SHA256() if version == "2" else hashes.SHA1()
    signature = KEY.sign(text.encode(), padding.PKCS1v15(), kind)
    return json.dumps(sent | {"Signature": base64.b64encode(signature).decode()}).encode()


def verifier(amazon: Amazon, now: float = NOW) -> SnsVerifier:
    return SnsVerifier(amazon, lambda: now)


@pytest.mark.parametrize("version", ["1", "2"])
def test_a_message_that_amazon_has_signed_is_taken_and_its_certificate_kept(version: str) -> None:
    amazon = Amazon()
    checks = verifier(amazon)
    assert checks.check(TOPICS, message(version)) == f"{TOPIC} m1"
    assert checks.check(TOPICS, message(version, Subject="hi", MessageId="m2")) == f"{TOPIC} m2"
    assert amazon.asked == [URL]


def subscription(url: str) -> bytes:
    return message(Type="SubscriptionConfirmation", Token="t", SubscribeURL=url)


def test_a_subscription_to_a_listed_topic_is_confirmed() -> None:
    amazon = Amazon()
    host = "https://sns.eu-west-1.amazonaws.com"
    url = f"{host}/?Action=ConfirmSubscription&TopicArn={TOPIC}&Token=t"
    verifier(amazon).check(TOPICS, subscription(url))
    assert amazon.asked == [URL, url]

    for wrong in (
        f"{host}/?Action=DeleteTopic&TopicArn={TOPIC}",
        f"{host}/?Action=ConfirmSubscription&TopicArn=arn:of:another&Token=t",
        f"https://evil.example/?Action=ConfirmSubscription&TopicArn={TOPIC}",
    ):
        with pytest.raises(SenderRefused):
            verifier(amazon).check(TOPICS, subscription(wrong))
        assert wrong not in amazon.asked


@pytest.mark.parametrize(
    "url",
    [
        "http://sns.eu-west-1.amazonaws.com/SimpleNotificationService-0123.pem",
        "https://sns.eu-west-1.amazonaws.com.evil.example/SimpleNotificationService-0123.pem",
        "https://sns.eu-west-1.amazonaws.com@evil.example/SimpleNotificationService-0123.pem",
        "https://sns.eu-west-1.amazonaws.com:8443/SimpleNotificationService-0123.pem",
        "https://sns.us-east-1.amazonaws.com/SimpleNotificationService-0123.pem",
        "https://evil.s3.amazonaws.com/SimpleNotificationService-0123.pem",
        "https://sns.eu-west-1.amazonaws.com/?Action=GetTopicAttributes",
        f"{URL}?another",
        f"{URL}#another",
        "https://sns.eu-west-1.amazonaws.com/x/../SimpleNotificationService-0123.pem",
        "https://[/",
        "",
    ],
)
def test_certificates_come_from_amazon_sns_only(url: str) -> None:
    amazon = Amazon()
    with pytest.raises(SenderRefused, match="not a URL of SNS"):
        verifier(amazon).check(TOPICS, message(SigningCertURL=url))
    assert amazon.asked == []


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"[]", "not a message"),
        (b"{", "not a message"),
        (b'{"Type": ["Notification"]}', "not a message"),
        (b'"' + b"x" * 1_100_000 + b'"', "longer than"),
        (b'{"Type": "Notification"}', "not a message"),
        (message(TopicArn="arn:aws:sns:eu-west-1:666:alarms"), "topic"),
        (message(Timestamp="yesterday"), "no time"),
        (message(Timestamp="2020-01-01T00:00:00Z"), "seconds away"),
        (message(version="3"), "neither 1 nor 2"),
        (message().replace(b"hello", b"hullo"), "does not fit"),
    ],
)
def test_a_message_not_signed_by_amazon_is_refused(body: bytes, reason: str) -> None:
    with pytest.raises(SenderRefused, match=reason):
        verifier(Amazon()).check(TOPICS, body)


def test_an_amazon_that_does_not_answer_is_asked_again_only_after_a_while() -> None:
    amazon = Amazon()
    amazon.pem = None
    times = iter([NOW, NOW, NOW + 1, NOW + 1, NOW + 20, NOW + 20])
    checks = SnsVerifier(amazon, lambda: next(times))
    for _ in range(2):
        with pytest.raises(SnsUnavailable):
            checks.check(TOPICS, message())
    assert len(amazon.asked) == 1
    amazon.pem = certificate()
    checks.check(TOPICS, message())
    assert len(amazon.asked) == 2


def test_certificates_that_are_not_there_do_not_replace_those_that_are() -> None:
    amazon = Amazon()
    checks = verifier(amazon)
    checks.check(TOPICS, message())
    amazon.pem = None
    for number in range(50):
        with pytest.raises(SnsUnavailable):
            checks.check(TOPICS, message(SigningCertURL=f"{URL[:-4]}{number}.pem"))
    assert checks.check(TOPICS, message())


@pytest.mark.parametrize("pem", [certificate(until=NOW - 1), b"not a certificate"])
def test_a_certificate_that_is_not_valid_is_refused(pem: bytes) -> None:
    amazon = Amazon()
    amazon.pem = pem
    with pytest.raises(SenderRefused, match="certificate"):
        verifier(amazon).check(TOPICS, message())


def test_few_requests_to_amazon_are_made_at_a_time() -> None:
    refused: list[str] = []

    def fetch(url: str) -> bytes:
        """Ask for other certificates while this one is on its way."""
        depth = int(url[-5])
        try:
            checks.check(TOPICS, message(SigningCertURL=f"{URL[:-5]}{depth + 1}.pem"))
        except SnsUnavailable as error:
            refused.append(str(error))
        return certificate()

    checks = SnsVerifier(fetch, lambda: NOW)
    checks.check(TOPICS, message(SigningCertURL=f"{URL[:-5]}0.pem"))
    assert refused == ["too many requests to Amazon at once"]
