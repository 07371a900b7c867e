"""Signing in by OpenID Connect: the code flow with PKCE, state and nonce, and a signed ID token that is held to all of it.

PyJWT checks the signature; everything the token says is judged here, at an instant that is an argument. It comes with the
extra `sso`, and is imported when somebody signs in.
"""

import base64
import hashlib
import hmac
import json
import secrets
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote, urlencode

import urllib3

from tenants.providers import LEEWAY, PATIENCE, Kept, Oidc, Told, Why, as_text, is_address

_TIMEOUT = urllib3.Timeout(connect=3.0, read=5.0)
_LARGEST = 256 * 1024
#: For how long, in seconds, what a provider says of itself and its keys is remembered.
_REMEMBERED = 600.0
#: How soon keys may be asked for anew where a token names one that is not known.
_ANEW = 10.0
#: A public key verifies, and is no secret: nothing that a shared secret signs is taken, and nothing unsigned.
ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")

_pool = urllib3.PoolManager(num_pools=8, maxsize=4, retries=False, timeout=_TIMEOUT)
_known: dict[str, tuple[float, dict[str, Any]]] = {}
_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class Asked:
    """A sign-in that was begun: what its answer has to fit."""

    state: str
    nonce: str
    verifier: str
    began: datetime
    fresh: bool


def begin(provider: Oidc, back: str, *, fresh: bool, now: datetime) -> tuple[str, Asked]:
    """Return where to send a person, and what the answer has to fit. `fresh`: they show anew who they are.

    Raises `Kept` (`no_answer`) where the provider does not say of itself what is needed.
    """
    state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
    asked = Asked(state, nonce, verifier, began=now, fresh=fresh)
    challenge = base64.urlsafe_b64encode(hashlib.sha256(asked.verifier.encode()).digest()).rstrip(b"=").decode()
    query = {
        "response_type": "code",
        "client_id": provider.client_id,
        "redirect_uri": back,
        "scope": "openid email",
        "state": asked.state,
        "nonce": asked.nonce,
        "code_challenge": challenge,
        "code_challenge_method": "S256",
    }
    if fresh:
        query |= {"prompt": "login", "max_age": "0"}
    if provider.trusted_second_factor is not None and provider.trusted_second_factor.acr:
        query["acr_values"] = " ".join(provider.trusted_second_factor.acr)
    where = _endpoint(discovered(provider), "authorization_endpoint")
    return f"{where}{'&' if '?' in where else '?'}{urlencode(query)}", asked


def finish(provider: Oidc, asked: Asked, answer: Mapping[str, str], back: str, *, now: datetime) -> Told:
    """Return what the provider proved by its answer. Raises `Kept` for one that does not fit in every point."""
    if not hmac.compare_digest(answer.get("state", "").encode(), asked.state.encode()):
        raise Kept(Why.UNSOLICITED)
    if answer.get("iss", provider.issuer) != provider.issuer:
        raise Kept(Why.WRONG_ISSUER)
    if now - asked.began > PATIENCE:
        raise Kept(Why.EXPIRED)
    if "error" in answer:
        raise Kept(Why.PROVIDER_REFUSED)
    said = discovered(provider)
    claims = verified(provider, _token(provider, said, asked, as_text(answer.get("code"), 4000), back), asked, now=now)
    proved_at = _instant(claims.get("auth_time"), now) if "auth_time" in claims else None
    if asked.fresh and (proved_at is None or proved_at < asked.began - LEEWAY):
        raise Kept(Why.NOT_FRESH)
    trusted = provider.trusted_second_factor
    return Told(
        subject=as_text(claims.get("sub"), 255),
        # Nothing but true is true: some providers send the word.
        email=as_text(claims.get("email")) if claims.get("email_verified") is True else None,
        proved_at=proved_at,
        second_factor=trusted is not None and trusted.is_shown(claims.get("amr"), claims.get("acr")),
    )


def verified(provider: Oidc, token: str, asked: Asked, *, now: datetime) -> dict[str, Any]:
    """Return the claims of an ID token that the provider signed, for us, for this sign-in, just now. Raises `Kept`."""
    import jwt

    try:
        header = jwt.get_unverified_header(token)
    except jwt.InvalidTokenError:
        raise Kept(Why.MALFORMED) from None
    if header.get("alg") not in ALGORITHMS:
        raise Kept(Why.WRONG_SIGNATURE)
    # Times, issuer and audience are judged below, each with a code of its own.
    unjudged = {f"verify_{each}": False for each in ("exp", "nbf", "iat", "aud", "iss", "sub", "jti")}
    try:
        key = _key(provider, header.get("kid"), str(header["alg"]))
        claims: dict[str, Any] = jwt.decode(token, key, algorithms=[header["alg"]], options=unjudged)  # type: ignore[arg-type]
    except jwt.PyJWTError:
        raise Kept(Why.WRONG_SIGNATURE) from None
    if claims.get("iss") != provider.issuer:
        raise Kept(Why.WRONG_ISSUER)
    audience = claims.get("aud")
    audiences = audience if isinstance(audience, list) else [audience]
    if provider.client_id not in audiences or claims.get("azp", provider.client_id) != provider.client_id:
        raise Kept(Why.WRONG_AUDIENCE)
    if len(audiences) > 1 and "azp" not in claims:
        raise Kept(Why.WRONG_AUDIENCE)
    if _instant(claims.get("exp"), now) + LEEWAY <= now:
        raise Kept(Why.EXPIRED)
    if max(_instant(claims.get(each, 0), now) for each in ("iat", "nbf")) - LEEWAY > now:
        raise Kept(Why.NOT_YET)
    if _instant(claims.get("iat"), now) < asked.began - LEEWAY:
        raise Kept(Why.EXPIRED)
    if not hmac.compare_digest(str(claims.get("nonce", "")).encode(), asked.nonce.encode()):
        raise Kept(Why.REPLAYED)
    return claims


def sign_out_address(provider: Oidc, back: str) -> str | None:
    """Return where a person ends their session with the provider itself, where it has such a page. Raises `Kept`."""
    where = discovered(provider).get("end_session_endpoint")
    if not is_address(where):
        return None
    query = urlencode({"client_id": provider.client_id, "post_logout_redirect_uri": back})
    return f"{where}{'&' if '?' in str(where) else '?'}{query}"


def discovered(provider: Oidc) -> dict[str, Any]:
    """Return what a provider says of itself, at most ten minutes old. Raises `Kept` where it does not answer as itself."""
    found = _remembered(provider.discovery, _REMEMBERED)
    if found.get("issuer") != provider.issuer:
        raise Kept(Why.WRONG_ISSUER)
    return found


def forget() -> None:
    """Ask providers anew for everything."""
    with _lock:
        _known.clear()


def fetched(url: str) -> bytes:
    """Return what stands at an address of a provider. Raises `Kept` (`no_answer`)."""
    return _sent("GET", url)


def _token(provider: Oidc, said: dict[str, Any], asked: Asked, code: str, back: str) -> str:
    form = {"grant_type": "authorization_code", "code": code, "redirect_uri": back, "code_verifier": asked.verifier}
    headers = {}
    if provider.secret is None:
        form["client_id"] = provider.client_id
    elif "client_secret_basic" in (said.get("token_endpoint_auth_methods_supported") or ["client_secret_basic"]):
        pair = f"{quote(provider.client_id, safe='')}:{quote(provider.secret.get_secret_value(), safe='')}"
        headers["Authorization"] = "Basic " + base64.b64encode(pair.encode()).decode()
    else:
        form |= {"client_id": provider.client_id, "client_secret": provider.secret.get_secret_value()}
    answered = _sent("POST", _endpoint(said, "token_endpoint"), form, headers)
    return as_text(_object(answered).get("id_token"), 16_000)


def _key(provider: Oidc, kid: object, algorithm: str) -> Any:
    """Return the key by which a token is verified. Raises jwt's errors where there is none, or none that suits."""
    import jwt

    where = _endpoint(discovered(provider), "jwks_uri")
    for age in (_REMEMBERED, _ANEW):
        keys = [
            each
            for each in jwt.PyJWKSet.from_dict(_remembered(where, age)).keys
            if each.public_key_use in (None, "sig") and (kid is None or each.key_id == kid)
        ]
        # Without a name there must be nothing to choose.
        if len(keys) == 1:
            if keys[0].algorithm_name not in (None, algorithm):
                break
            return keys[0].key
    raise jwt.InvalidKeyError


def _remembered(url: str, age: float) -> dict[str, Any]:
    with _lock:
        since, found = _known.get(url, (float("-inf"), {}))
    if time.monotonic() - since < age:
        return found
    found = _object(_sent("GET", url))
    with _lock:
        _known[url] = time.monotonic(), found
    return found


def _endpoint(said: dict[str, Any], name: str) -> str:
    where = said.get(name)
    if not is_address(where):
        raise Kept(Why.NO_ANSWER)
    return str(where)


def _sent(method: str, url: str, form: dict[str, str] | None = None, headers: dict[str, str] | None = None) -> bytes:
    try:
        answer = _pool.request(
            method,
            url,
            body=None if form is None else urlencode(form),
            headers={
                "Accept": "*/*",
                **({"Content-Type": "application/x-www-form-urlencoded"} if form is not None else {}),
                **(headers or {}),
            },
            redirect=False,
            preload_content=False,
        )
        try:
            read: bytes = answer.read(_LARGEST + 1, decode_content=True)
        finally:
            answer.release_conn()
    except (urllib3.exceptions.HTTPError, OSError):
        raise Kept(Why.NO_ANSWER) from None
    if answer.status != 200 or len(read) > _LARGEST:
        raise Kept(Why.NO_ANSWER if method == "GET" else Why.PROVIDER_REFUSED)
    return read


def _object(text: bytes) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        raise Kept(Why.NO_ANSWER) from None
    if not isinstance(found, dict):
        raise Kept(Why.NO_ANSWER)
    return found


def _instant(value: object, now: datetime) -> datetime:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < now.timestamp() + 10**9:
        raise Kept(Why.MALFORMED)
    return datetime.fromtimestamp(value, UTC)
