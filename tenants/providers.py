"""Which identity providers people may sign in by, as an operator describes them in a file. Pure: reads it, asks nobody.

The file says everything but secrets. What a provider proved of a person is a `Told`; what keeps a person out is a `Kept`
with a code, and never says what was sent.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit
from uuid import UUID

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, ValidationError, model_validator

#: By how much our clock and a provider's may differ.
LEEWAY = timedelta(seconds=60)
#: How long a person may take at the provider.
PATIENCE = timedelta(minutes=15)
_WELL_KNOWN = "/.well-known/openid-configuration"
_LIBRARIES = {"oidc": "jwt", "saml": "onelogin"}


class Why(StrEnum):
    """Why a sign-in by a provider is refused; the audit entry's reason, after the kind of provider."""

    UNSOLICITED = "unsolicited"
    REPLAYED = "replayed"
    PROVIDER_REFUSED = "provider_refused"
    NO_ANSWER = "no_answer"
    MALFORMED = "malformed"
    WRONG_SIGNATURE = "wrong_signature"
    WRONG_ISSUER = "wrong_issuer"
    WRONG_AUDIENCE = "wrong_audience"
    EXPIRED = "expired"
    NOT_YET = "not_yet"
    NOT_FRESH = "not_fresh"
    UNKNOWN_PERSON = "unknown_person"
    OTHER_PERSON = "other_person"
    PERSON_ENDED = "person_ended"


class Kept(Exception):
    """A person was kept out, by code; `person` is who, where that is known."""

    def __init__(self, why: Why, person: UUID | None = None) -> None:
        self.why, self.person = why, person
        super().__init__(why.value)


@dataclass(frozen=True, slots=True)
class Told:
    """What a provider proved of a person. `email` is None unless the provider says that it is verified.

    `proved_at` is when the person showed the provider who they are, where it said.
    """

    subject: str = field(repr=False)
    email: str | None = field(repr=False)
    proved_at: datetime | None
    second_factor: bool


def _address(text: str) -> str:
    parts = urlsplit(text)
    local = parts.hostname in ("127.0.0.1", "localhost", "::1")
    if parts.scheme != "https" and not (parts.scheme == "http" and local):
        raise ValueError("https is needed")
    if not parts.hostname or parts.username is not None or parts.fragment:
        raise ValueError("not an address")
    return text


Address = Annotated[str, Field(max_length=500), AfterValidator(_address)]
Word = Annotated[str, Field(min_length=1, max_length=200)]


def is_address(text: object) -> bool:
    """Whether `text` is an address that may be asked: by https, or on this machine."""
    try:
        return isinstance(text, str) and bool(_address(text))
    except ValueError:
        return False


class _Described(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class TrustedFactor(_Described):
    """By which of a provider's words its own second factor stands for ours: any of them is enough."""

    amr: tuple[Word, ...] = ()
    acr: tuple[Word, ...] = ()

    @model_validator(mode="after")
    def _says_something(self) -> "TrustedFactor":
        if not (self.amr or self.acr):
            raise ValueError("name an amr or an acr")
        return self

    def is_shown(self, amr: object, acr: object) -> bool:
        """Whether a provider's word about how somebody signed in is one of these."""
        said = amr if isinstance(amr, list) else []
        return any(each in self.amr for each in said) or (isinstance(acr, str) and acr in self.acr)


class _Provider(_Described):
    name: str = Field(pattern=r"^[a-z][a-z0-9-]{0,39}$")
    title: str = Field(min_length=1, max_length=60)
    #: Whether a person whom no admin named gets an account, which has no role.
    creates_accounts: bool = False
    trusted_second_factor: TrustedFactor | None = None


class Oidc(_Provider):
    """A provider that speaks OpenID Connect."""

    kind: Literal["oidc"]
    discovery: Address
    client_id: Word
    client_secret_file: Path | None = None
    secret: SecretStr | None = Field(default=None, exclude=True)

    @model_validator(mode="after")
    def _is_discovery(self) -> "Oidc":
        if not self.discovery.endswith(_WELL_KNOWN):
            raise ValueError("discovery ends with /.well-known/openid-configuration")
        return self

    @property
    def issuer(self) -> str:
        """As whom the provider signs: the specification ties it to the address of discovery."""
        return self.discovery.removesuffix(_WELL_KNOWN)


class Saml(_Provider):
    """A provider that speaks SAML 2.0."""

    kind: Literal["saml"]
    entity_id: Word
    metadata: str = Field(min_length=1, max_length=500)
    #: The attribute that names a person; without one it is the NameID, which has to last.
    subject_attribute: Word | None = None
    email_attribute: Word | None = None
    #: SAML has no word for it: the operator vouches that the provider lets nobody choose their own address.
    email_is_verified: bool = False

    @model_validator(mode="after")
    def _may_be_asked(self) -> "Saml":
        if "://" in self.metadata:
            _address(self.metadata)
        return self

    @property
    def issuer(self) -> str:
        """As whom the provider signs."""
        return self.entity_id


Provider = Oidc | Saml


class SingleSignOn(_Described):
    """All providers, and at which address people and providers reach this installation."""

    address: Address
    providers: tuple[Annotated[Provider, Field(discriminator="kind")], ...] = Field(min_length=1, max_length=8)

    @model_validator(mode="after")
    def _names_differ(self) -> "SingleSignOn":
        if len({each.name for each in self.providers}) != len(self.providers):
            raise ValueError("two providers of one name")
        return self

    def named(self, name: str) -> Provider | None:
        """Return the provider of that name."""
        return next((each for each in self.providers if each.name == name), None)

    def at(self, path: str) -> str:
        """Return a path of ours as an address from outside; never made of what a request says its host is."""
        return self.address.rstrip("/") + path


def described(text: str, *, secret_of: Callable[[str], str | None]) -> SingleSignOn:
    """Return what a file describes. Raises ValueError with a line that names the field and quotes nothing.

    A client's secret is read from its file; without one, `secret_of` is asked by the provider's name.
    """
    try:
        found = SingleSignOn.model_validate(json.loads(text))
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False, include_context=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "the whole"
        # Our own words, or the kind of error: the library's words may quote.
        words = first["msg"].removeprefix("Value error, ") if first["type"] == "value_error" else first["type"]
        raise ValueError(f"{where}: {words.replace('_', ' ')}") from None
    except ValueError:
        raise ValueError("not JSON") from None
    return found.model_copy(update={"providers": tuple(_with_secret(each, secret_of) for each in found.providers)})


def _with_secret(provider: Provider, secret_of: Callable[[str], str | None]) -> Provider:
    if not isinstance(provider, Oidc):
        return provider
    if provider.client_secret_file is not None:
        try:
            secret: str | None = provider.client_secret_file.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError):
            raise ValueError(f"{provider.name}: the file of its secret cannot be read") from None
    else:
        secret = secret_of(provider.name)
    return provider.model_copy(update={"secret": SecretStr(secret) if secret else None})


def missing_libraries(found: SingleSignOn | None) -> str:
    """Return what to say where providers are configured and what speaks to them is not installed, or nothing."""
    kinds = {each.kind for each in found.providers} if found is not None else set()
    if all(find_spec(_LIBRARIES[kind]) is not None for kind in kinds):
        return ""
    return "MUNIMENT_SSO_FILE names providers, and their libraries are not installed: make run EXTRAS=sso"


def as_text(value: Any, most: int = 500) -> str:
    """Return a claim that has to be text of some length. Raises `Kept` for anything else."""
    if not isinstance(value, str) or not 0 < len(value) <= most or "\0" in value:
        raise Kept(Why.MALFORMED)
    return value
