"""Signing in by SAML 2.0: a request of ours, and one signed assertion that answers it and nothing else.

python3-saml checks signature, schema, times, issuer and destination. What it lets pass where it is left out (an audience, to
which request and to whom the assertion is an answer) is asked for here. It comes with the extra `sso`, and is imported
when somebody signs in; times it judges by the machine's clock.
"""

import hmac
import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from secrets import token_urlsafe
from typing import Any
from urllib.parse import urlsplit

from tenants.oidc import fetched
from tenants.providers import LEEWAY, PATIENCE, Kept, Saml, Told, Why, as_text

#: Responses are small; what is larger is not parsed.
LARGEST = 200_000
_REMEMBERED = 600.0
_TRANSIENT = "urn:oasis:names:tc:SAML:2.0:nameid-format:transient"
_metadata: dict[str, tuple[float, dict[str, Any]]] = {}


@dataclass(frozen=True, slots=True)
class Asked:
    """A sign-in that was begun: what its answer has to fit."""

    state: str
    request: str
    began: datetime
    fresh: bool


@dataclass(frozen=True, slots=True)
class Ours:
    """As whom a provider knows us, and where it sends its answers."""

    entity: str
    back: str


def begin(provider: Saml, ours: Ours, *, fresh: bool, now: datetime) -> tuple[str, Asked]:
    """Return where to send a person, and what the answer has to fit. `fresh`: they show anew who they are."""
    from onelogin.saml2.auth import OneLogin_Saml2_Auth

    state = token_urlsafe(32)
    auth = OneLogin_Saml2_Auth(_request(ours), old_settings=_settings(provider, ours))
    where = auth.login(return_to=state, force_authn=fresh)
    return where, Asked(state, auth.get_last_request_id(), now, fresh)


def finish(provider: Saml, ours: Ours, asked: Asked, state: str, response: str, *, now: datetime) -> tuple[Told, str]:
    """Return what the provider proved by its response, and the assertion's id. Raises `Kept` for one that does not fit."""
    from onelogin.saml2.errors import OneLogin_Saml2_ValidationError
    from onelogin.saml2.response import OneLogin_Saml2_Response

    if not hmac.compare_digest(state.encode(), asked.state.encode()):
        raise Kept(Why.UNSOLICITED)
    if now - asked.began > PATIENCE:
        raise Kept(Why.EXPIRED)
    settings = _settings(provider, ours)
    if not 0 < len(response) <= LARGEST:
        raise Kept(Why.MALFORMED)
    try:
        read = OneLogin_Saml2_Response(settings, response)
        if read.encrypted:
            raise Kept(Why.MALFORMED)
        read.is_valid(_request(ours), request_id=asked.request, raise_exceptions=True)
        _answers(read, ours, asked)
        return _told(provider, read, asked, now), as_text(read.get_assertion_id())
    except Kept:
        raise
    except OneLogin_Saml2_ValidationError as error:
        raise Kept(_why(error.code)) from None
    except Exception:
        # The parsers below have kinds of their own for what is no response at all.
        raise Kept(Why.MALFORMED) from None


def metadata_of_ours(ours: Ours) -> bytes:
    """Return what a provider is told of us."""
    from onelogin.saml2.metadata import OneLogin_Saml2_Metadata

    sp = _described(ours)
    text = OneLogin_Saml2_Metadata.builder(sp, authnsign=False, wsign=True)
    return text if isinstance(text, bytes) else text.encode()


def described_by(provider: Saml) -> dict[str, Any]:
    """Return what the provider's metadata say of it, at most ten minutes old. Raises `Kept` where they cannot be had."""
    from onelogin.saml2.idp_metadata_parser import OneLogin_Saml2_IdPMetadataParser

    since, found = _metadata.get(provider.metadata, (float("-inf"), {}))
    if time.monotonic() - since < _REMEMBERED:
        return found
    try:
        text = fetched(provider.metadata) if "://" in provider.metadata else Path(provider.metadata).read_bytes()
        said: dict[str, Any] = OneLogin_Saml2_IdPMetadataParser.parse(text, entity_id=provider.entity_id).get("idp", {})
    except Kept:
        raise
    except Exception:
        raise Kept(Why.NO_ANSWER) from None
    if said.get("entityId") != provider.entity_id:
        raise Kept(Why.WRONG_ISSUER)
    if not (said.get("x509cert") or said.get("x509certMulti")):
        raise Kept(Why.NO_ANSWER)
    _metadata[provider.metadata] = time.monotonic(), said
    return said


def forget() -> None:
    """Read providers' metadata anew."""
    _metadata.clear()


def _answers(read: Any, ours: Ours, asked: Asked) -> None:
    """Hold the signed assertion to be for us, and an answer to this request."""
    if ours.entity not in read.get_audiences():
        raise Kept(Why.WRONG_AUDIENCE)
    # The envelope need not be signed: what it says of the request binds nothing.
    bound = [
        each
        for each in read._query_assertion("/saml:Subject/saml:SubjectConfirmation/saml:SubjectConfirmationData")
        if each.get("InResponseTo") == asked.request and each.get("Recipient") == ours.back and each.get("NotOnOrAfter")
    ]
    if not bound:
        raise Kept(Why.UNSOLICITED)


def _told(provider: Saml, read: Any, asked: Asked, now: datetime) -> Told:
    attributes = read.get_attributes()

    def only(name: str | None) -> str | None:
        found = attributes.get(name, []) if name else []
        return found[0] if len(found) == 1 and isinstance(found[0], str) else None

    if provider.subject_attribute is not None:
        subject = only(provider.subject_attribute)
    else:
        # A transient one is another at each sign-in.
        subject = None if read.get_nameid_format() == _TRANSIENT else read.get_nameid()
    proved_at = _proved(read)
    if proved_at is not None and proved_at > now + LEEWAY:
        raise Kept(Why.NOT_YET)
    if asked.fresh and (proved_at is None or proved_at < asked.began - LEEWAY):
        raise Kept(Why.NOT_FRESH)
    contexts = read.get_authn_contexts()
    trusted = provider.trusted_second_factor
    return Told(
        subject=as_text(subject, 255),
        email=only(provider.email_attribute) if provider.email_is_verified else None,
        proved_at=proved_at,
        second_factor=trusted is not None and len(contexts) == 1 and trusted.is_shown(None, contexts[0]),
    )


def _proved(read: Any) -> datetime | None:
    found = read._query_assertion("/saml:AuthnStatement")
    with suppress(ValueError, IndexError, TypeError):
        said = datetime.fromisoformat(found[0].get("AuthnInstant"))
        return said.astimezone(UTC) if said.tzinfo is not None else None
    return None


def _request(ours: Ours) -> dict[str, Any]:
    """A request as the library wants one: of our configured address, not of what a client says its host is."""
    parts = urlsplit(ours.back)
    return {
        "https": "on" if parts.scheme == "https" else "off",
        "http_host": parts.netloc,
        "script_name": parts.path,
        "get_data": {},
        "post_data": {},
    }


def _described(ours: Ours) -> dict[str, Any]:
    return {
        "entityId": ours.entity,
        "assertionConsumerService": {
            "url": ours.back,
            "binding": "urn:oasis:names:tc:SAML:2.0:bindings:HTTP-POST",
        },
        "NameIDFormat": "urn:oasis:names:tc:SAML:1.1:nameid-format:unspecified",
    }


def _settings(provider: Saml, ours: Ours) -> Any:
    from onelogin.saml2.errors import OneLogin_Saml2_Error
    from onelogin.saml2.settings import OneLogin_Saml2_Settings

    try:
        return OneLogin_Saml2_Settings(
            {
                "strict": True,
                "debug": False,
                "sp": _described(ours),
                "idp": described_by(provider),
                "security": {
                    "wantAssertionsSigned": True,
                    "wantAttributeStatement": False,
                    "requestedAuthnContext": False,
                    "rejectDeprecatedAlgorithm": True,
                    "allowRepeatAttributeName": False,
                },
            }
        )
    except OneLogin_Saml2_Error:
        raise Kept(Why.NO_ANSWER) from None


def _why(code: int) -> Why:
    from onelogin.saml2.errors import OneLogin_Saml2_ValidationError as E

    known = {
        E.STATUS_CODE_IS_NOT_SUCCESS: Why.PROVIDER_REFUSED,
        E.WRONG_INRESPONSETO: Why.UNSOLICITED,
        E.WRONG_SUBJECTCONFIRMATION: Why.UNSOLICITED,
        E.ASSERTION_TOO_EARLY: Why.NOT_YET,
        E.ASSERTION_EXPIRED: Why.EXPIRED,
        E.SESSION_EXPIRED: Why.EXPIRED,
        E.WRONG_DESTINATION: Why.WRONG_AUDIENCE,
        E.WRONG_AUDIENCE: Why.WRONG_AUDIENCE,
        E.WRONG_ISSUER: Why.WRONG_ISSUER,
        E.NO_SIGNED_ASSERTION: Why.WRONG_SIGNATURE,
        E.NO_SIGNATURE_FOUND: Why.WRONG_SIGNATURE,
        E.INVALID_SIGNATURE: Why.WRONG_SIGNATURE,
        E.DEPRECATED_SIGNATURE_METHOD: Why.WRONG_SIGNATURE,
        E.DEPRECATED_DIGEST_METHOD: Why.WRONG_SIGNATURE,
    }
    return known.get(code, Why.MALFORMED)
