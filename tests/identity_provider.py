"""Identity providers of a test's own: one that speaks OpenID Connect on this machine, one that signs SAML assertions.

Both keep their own keys and their own idea of who is in front of them; `said` and `crooked` are what a test lets them say
wrongly.
"""

import base64
import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlencode, urlsplit
from uuid import uuid4

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID

SECRET = "secret-of-the-client"
CLIENT = "muniment"
ADDRESS = "http://localhost"


@cache
def key(name: str) -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


@dataclass
class OidcProvider:
    """What the provider believes, and how it misbehaves. `person` is who sits in front of it."""

    url: str = ""
    person: dict[str, Any] = field(default_factory=lambda: {"sub": "s-1"})
    #: What an ID token says otherwise than it should; None leaves the claim out.
    said: dict[str, Any] = field(default_factory=dict)
    signed_by: str = "own"
    algorithm: str = "RS256"
    answers: bool = True
    #: Codes that were handed out: the request they belong to.
    codes: dict[str, dict[str, str]] = field(default_factory=dict)
    #: Every request to authorize, and every one for a token.
    asked: list[dict[str, str]] = field(default_factory=list)
    fetched: list[dict[str, str]] = field(default_factory=list)
    #: When the person last showed the provider who they are.
    proved_at: datetime | None = None

    def discovery(self) -> dict[str, Any]:
        return {
            "issuer": self.url,
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token",
            "jwks_uri": f"{self.url}/keys",
            "end_session_endpoint": f"{self.url}/end",
        }

    def keys(self) -> dict[str, Any]:
        from jwt.algorithms import RSAAlgorithm

        public = json.loads(RSAAlgorithm.to_jwk(key("own").public_key()))
        return {"keys": [{**public, "kid": "own", "use": "sig", "alg": "RS256"}]}

    def authorize(self, query: dict[str, str]) -> str:
        """Let the person in at once, and return where the browser goes from here."""
        self.asked.append(query)
        if self.proved_at is None or query.get("prompt") == "login":
            self.proved_at = datetime.now(UTC)
        code = uuid4().hex
        self.codes[code] = query
        return f"{query['redirect_uri']}?{urlencode({'code': code, 'state': query['state']})}"

    def token(self, form: dict[str, str], authorization: str) -> dict[str, Any] | None:
        import jwt

        self.fetched.append(form)
        asked = self.codes.pop(form.get("code", ""), None)
        pair = base64.b64decode(authorization.removeprefix("Basic ")).decode().partition(":")
        challenge = base64.urlsafe_b64encode(hashlib.sha256(form.get("code_verifier", "").encode()).digest())
        if (
            asked is None
            or (unquote(pair[0]), unquote(pair[2])) != (CLIENT, SECRET)
            or challenge.rstrip(b"=").decode() != asked["code_challenge"]
            or form.get("redirect_uri") != asked["redirect_uri"]
        ):
            return None
        now = datetime.now(UTC)
        claims = {
            "iss": self.url,
            "aud": CLIENT,
            "iat": int(now.timestamp()),
            "exp": int((now + timedelta(minutes=5)).timestamp()),
            "nonce": asked["nonce"],
            "auth_time": int((self.proved_at or now).timestamp()),
            **self.person,
            **self.said,
        }
        claims = {name: value for name, value in claims.items() if value is not None}
        secret: Any = key(self.signed_by)
        if self.algorithm == "HS256":
            # What a verifier that trusts the header would take: our public key as if it were a shared secret.
            public = key("own").public_key()
            secret = hashlib.sha256(
                public.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
            ).digest()
        if self.algorithm == "none":
            secret = None
        return {
            "access_token": "unused",
            "token_type": "Bearer",
            "id_token": jwt.encode(claims, secret, self.algorithm, headers={"kid": "own"}),
        }


@contextmanager
def oidc_provider() -> Iterator[OidcProvider]:
    """Serve a provider on this machine until the end of the block."""
    provider = OidcProvider()

    class Answer(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:
            pass

        def send(self, body: bytes, status: int = 200, kind: str = "application/json", **headers: str) -> None:
            self.send_response(status)
            for name, value in {"Content-Type": kind, "Content-Length": str(len(body)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self) -> None:
            where = urlsplit(self.path)
            query = {name: values[0] for name, values in parse_qs(where.query).items()}
            if not provider.answers:
                self.send(b"{}", 503)
            elif where.path == "/.well-known/openid-configuration":
                self.send(json.dumps(provider.discovery()).encode())
            elif where.path == "/keys":
                self.send(json.dumps(provider.keys()).encode())
            elif where.path == "/authorize":
                self.send(b"", 302, Location=provider.authorize(query))
            elif where.path == "/end":
                self.send(b"<!doctype html><title>signed out</title>", kind="text/html")
            else:
                self.send(b"", 404)

        def do_POST(self) -> None:
            form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
            plain = {name: values[0] for name, values in form.items()}
            found = provider.token(plain, self.headers.get("Authorization", ""))
            self.send(json.dumps(found or {"error": "invalid_grant"}).encode(), 200 if found else 400)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    provider.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield provider
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@cache
def certificate(name: str) -> str:
    """A certificate that the key signed for itself, as PEM."""
    called = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    made = (
        x509.CertificateBuilder()
        .subject_name(called)
        .issuer_name(called)
        .public_key(key(name).public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime(2020, 1, 1, tzinfo=UTC))
        .not_valid_after(datetime(2050, 1, 1, tzinfo=UTC))
        .sign(key(name), hashes.SHA256())
    )
    return made.public_bytes(serialization.Encoding.PEM).decode()


def private(name: str) -> str:
    return (
        key(name)
        .private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        .decode()
    )


ENTITY = "https://idp.example/saml"


def saml_metadata() -> str:
    """What the SAML provider says of itself."""
    body = "".join(certificate("own").splitlines()[1:-1])
    return (
        f'<EntityDescriptor xmlns="urn:oasis:names:tc:SAML:2.0:metadata" entityID="{ENTITY}">'
        '<IDPSSODescriptor protocolSupportEnumeration="urn:oasis:names:tc:SAML:2.0:protocol"><KeyDescriptor use="signing">'
        f'<KeyInfo xmlns="http://www.w3.org/2000/09/xmldsig#"><X509Data><X509Certificate>{body}</X509Certificate></X509Data>'
        "</KeyInfo></KeyDescriptor><SingleSignOnService Binding="
        '"urn:oasis:names:tc:SAML:2.0:bindings:HTTP-Redirect" Location="https://idp.example/sso"/>'
        "</IDPSSODescriptor></EntityDescriptor>"
    )


@dataclass
class SamlProvider:
    """Signs an assertion for whoever sits in front of it, or a crooked one."""

    name: str = "n-1"
    attributes: dict[str, str] = field(default_factory=dict)
    signed_by: str = "own"
    #: The assertion, the envelope, or nothing.
    signs: str = "assertion"
    audience: str | None = None
    recipient: str | None = None
    answers_to: str | None = None
    envelope_answers_to: str | None = None
    issuer: str = ENTITY
    issued: datetime | None = None
    proved_at: datetime | None = None
    context: str = "urn:oasis:names:tc:SAML:2.0:ac:classes:Password"
    format: str = "urn:oasis:names:tc:SAML:2.0:nameid-format:persistent"

    def response(self, request: str, entity: str, back: str) -> str:
        """Return a response to the request of that id, as a browser posts it."""
        from onelogin.saml2.utils import OneLogin_Saml2_Utils

        now = self.issued or datetime.now(UTC)

        def at(moment: datetime) -> str:
            return moment.strftime("%Y-%m-%dT%H:%M:%SZ")

        answered = request if self.answers_to is None else self.answers_to
        bound = f' InResponseTo="{answered}"' if answered else ""
        audience = entity if self.audience is None else self.audience
        restricted = f"<saml:AudienceRestriction><saml:Audience>{audience}</saml:Audience></saml:AudienceRestriction>"
        told = "".join(
            f'<saml:Attribute Name="{name}"><saml:AttributeValue>{value}</saml:AttributeValue></saml:Attribute>'
            for name, value in self.attributes.items()
        )
        assertion = (
            f'<saml:Assertion xmlns:saml="urn:oasis:names:tc:SAML:2.0:assertion" ID="_{uuid4().hex}" Version="2.0"'
            f' IssueInstant="{at(now)}"><saml:Issuer>{self.issuer}</saml:Issuer><saml:Subject>'
            f'<saml:NameID Format="{self.format}">{self.name}</saml:NameID>'
            '<saml:SubjectConfirmation Method="urn:oasis:names:tc:SAML:2.0:cm:bearer"><saml:SubjectConfirmationData'
            f'{bound} NotOnOrAfter="{at(now + timedelta(minutes=5))}" Recipient="{self.recipient or back}"/>'
            "</saml:SubjectConfirmation></saml:Subject>"
            f'<saml:Conditions NotBefore="{at(now)}" NotOnOrAfter="{at(now + timedelta(minutes=5))}">'
            f"{restricted if audience else ''}</saml:Conditions>"
            f'<saml:AuthnStatement AuthnInstant="{at(self.proved_at or now)}"><saml:AuthnContext>'
            f"<saml:AuthnContextClassRef>{self.context}</saml:AuthnContextClassRef></saml:AuthnContext>"
            f"</saml:AuthnStatement>{f'<saml:AttributeStatement>{told}</saml:AttributeStatement>' if told else ''}"
            "</saml:Assertion>"
        )

        def signed(text: str) -> str:
            made: Any = OneLogin_Saml2_Utils.add_sign(text, private(self.signed_by), certificate(self.signed_by))
            return made.decode() if isinstance(made, bytes) else str(made)

        if self.signs == "assertion":
            assertion = signed(assertion)
        envelope = request if self.envelope_answers_to is None else self.envelope_answers_to
        response = (
            '<samlp:Response xmlns:samlp="urn:oasis:names:tc:SAML:2.0:protocol"'
            f' xmlns:saml="urn:oasis:names:tc:SAML:2.0:assertion" ID="_{uuid4().hex}" Version="2.0"'
            f' IssueInstant="{at(now)}" Destination="{back}" InResponseTo="{envelope}"><saml:Issuer>{self.issuer}'
            '</saml:Issuer><samlp:Status><samlp:StatusCode Value="urn:oasis:names:tc:SAML:2.0:status:Success"/>'
            f"</samlp:Status>{assertion}</samlp:Response>"
        )
        if self.signs == "envelope":
            response = signed(response)
        return base64.b64encode(response.encode()).decode()
