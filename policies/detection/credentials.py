"""Credentials: keys by their issuers' shapes, private keys, tokens, passwords that are assigned or told.

A shape that an issuer gave its keys is enough. Everything else needs a word that says what it is, and a value that looks
like a secret: placeholders, names of variables and ordinary words are none.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator

from policies.detection.identifiers import Raw
from policies.detection.reading import Reading

_START, _END = r"(?<![A-Za-z0-9_\-])", r"(?![A-Za-z0-9_\-])"

#: What must be in the text before a pattern is tried, the detector, the pattern.
_SHAPES: tuple[tuple[str, str, re.Pattern[str]], ...] = tuple(
    (hint, detector, re.compile(pattern, re.ASCII))
    for hint, detector, pattern in (
        ("AKIA", "aws_key", rf"{_START}AKIA[A-Z2-7]{{16}}{_END}"),
        ("ASIA", "aws_key", rf"{_START}ASIA[A-Z2-7]{{16}}{_END}"),
        ("gh", "github_token", rf"{_START}gh[pousr]_[A-Za-z0-9]{{36,255}}{_END}"),
        ("github_pat_", "github_token", rf"{_START}github_pat_[A-Za-z0-9_]{{22,255}}{_END}"),
        ("glpat-", "gitlab_token", rf"{_START}glpat-[A-Za-z0-9_\-.]{{20,300}}"),
        ("xox", "slack_token", rf"{_START}xox[abeoprs]-[A-Za-z0-9\-]{{10,250}}"),
        ("xapp-", "slack_token", rf"{_START}xapp-\d-[A-Za-z0-9\-]{{10,250}}"),
        ("hooks.slack.com/", "slack_token", r"hooks\.slack\.com/(?:services|workflows)/[A-Za-z0-9/_\-]{20,200}"),
        ("k_live_", "stripe_key", rf"{_START}[rs]k_live_[A-Za-z0-9]{{16,250}}{_END}"),
        ("k_test_", "stripe_key", rf"{_START}[rs]k_test_[A-Za-z0-9]{{16,250}}{_END}"),
        ("whsec_", "stripe_key", rf"{_START}whsec_[A-Za-z0-9+/=]{{24,250}}"),
        (
            "sk-",
            "model_key",
            rf"{_START}sk-(?:(?:proj|svcacct|admin|ant|or|lf)-)?(?=[A-Za-z_\-]{{0,60}}\d)[A-Za-z0-9_\-]{{20,250}}",
        ),
        ("AIza", "google_key", rf"{_START}AIza[A-Za-z0-9_\-]{{35}}{_END}"),
        ("GOCSPX-", "google_key", rf"{_START}GOCSPX-[A-Za-z0-9_\-]{{28}}{_END}"),
        ("ya29.", "google_key", rf"{_START}ya29\.[A-Za-z0-9_\-]{{20,400}}"),
        ("npm_", "package_token", rf"{_START}npm_[A-Za-z0-9]{{36}}{_END}"),
        ("pypi-", "package_token", rf"{_START}pypi-AgE[A-Za-z0-9_\-]{{40,400}}"),
        ("hf_", "model_key", rf"{_START}hf_[A-Za-z0-9]{{30,60}}{_END}"),
        ("SG.", "sendgrid_key", rf"{_START}SG\.[A-Za-z0-9_\-]{{16,32}}\.[A-Za-z0-9_\-]{{32,64}}{_END}"),
        ("eyJ", "jwt", rf"{_START}eyJ[A-Za-z0-9_\-]{{8,4000}}\.[A-Za-z0-9_\-]{{8,8000}}\.[A-Za-z0-9_\-]{{0,2000}}"),
        ("AGE-SECRET-KEY-1", "private_key", rf"{_START}AGE-SECRET-KEY-1[A-Z0-9]{{58}}{_END}"),
    )
)

_PEM = re.compile(r"-----BEGIN (?:[A-Z0-9]+ ){0,3}PRIVATE KEY(?: BLOCK)?-----")
_PEM_END = re.compile(r"-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_PEM_BODY = re.compile(r"(?:[A-Za-z0-9+/=\s:,]|\\[nr])*")

_URL = re.compile(
    r"(?<![A-Za-z0-9])[A-Za-z][A-Za-z0-9+.\-]{1,20}://[^\s/:@\"'<>?#]{0,100}:([^\s/@\"'<>?#]{1,200})@(?=[\w\[])"
)
_HEADER = re.compile(
    r"\bauthorization\b[\"']? ?[:=,] ?[\"']?(?:(?:bearer|basic|token|api-key|digest) ?)([a-z0-9+/=_.~\-]{12,4000})"
)
# What a header holds, where its name stands elsewhere: in a pair of texts, or in a field of another name.
_HEADER_ALONE = re.compile(r"(?:bearer|basic|token|api-key) ([a-z0-9+/=_.~\-]{16,4000})")

# Words of a password, then what joins it to its value. German, Polish, French, Portuguese and Spanish words too.
_LOGIN_WORDS = (
    r"(?:(?:pass(?:word|wort|code|phrase|wd)?|pwd|kennwort|hasl(?:o|em)|mot de passe|senha|palavra-passe|contrasena)s?)"
)
# A key alone opens nothing: it is primary, foreign, of a cache. A token or secret alone does.
_KINDS = (
    r"(?:(?:api|app|access|secret|private|auth|signing|encryption|account|service|master|session|refresh|bearer|client"
    r"|bot|deploy|webhook|shared|admin|root)[ _\-]?)"
)
_KEY_NAMES = (
    rf"(?:{_KINDS}{{0,4}}(?:token|secret|apikey|credentials?)|{_KINDS}{{1,4}}key"
    r"|(?!primary|foreign|public|sort|partition|cache|idempotency|translation|object|row|unique|group|hash)[a-z0-9]{2,30}_key)"
)
_NAMED = r"(?<![a-z0-9])(?:[a-z0-9]+[_\-.]){0,4}"
_JOINED = r"[\"']?\]? ?(?:(?P<equals>:=|=>|[:=])|(?P<tells>is|are|was|ist|lautet|to|jest|to jest|est|e|es|as|of)) ?"
_VALUE = r"(?:(?P<quote>[\"'`])(?P<quoted>[^\"'`\n]{4,200})(?P=quote)|(?P<bare>[^\s\"'`,;<>(){}\[\]]{4,400}))"
_PASSWORD = re.compile(rf"{_NAMED}{_LOGIN_WORDS}(?:[_\-][a-z0-9]+)?{_JOINED}{_VALUE}")
# Told, not assigned: at most four words lie between the word and the quotes.
_TOLD = re.compile(
    rf"{_NAMED}{_LOGIN_WORDS}(?: [a-z]+){{0,4}}[ :]{{1,2}}(?P<quote>[\"'])(?P<quoted>[^\"'\s]{{4,200}})(?P=quote)"
)
_SECRET = re.compile(rf"{_NAMED}{_KEY_NAMES}(?:[_\-](?:id|base64|hex|value))?{_JOINED}{_VALUE}")
_LOGIN = re.compile(r"(?:[\w.+\-]{1,64}@[\w.\-]{3,190}) ?[/|:] ?(?P<bare>[^\s\"'`,;<>(){}\[\]@/]{6,100})")
_PIN = re.compile(
    r"(?<![a-z0-9])(?:pin(?:[ \-]?(?:code|number|nummer))?|cvv2?|cvc2?|security code|otp|one-time (?:code|password))"
    r"[\"']? ?(?:[:=#]|is|ist|to|jest|:? )? ?(\d{3,8})(?![\w]|[.,\-]\d)"
)

_PLACEHOLDER = re.compile(
    r"[*x.\-_#•?]+|[<{$%\[‹].*|.*(?:\$\{|\{\{).*|(?:os|process|env|self|settings|config|secrets|request|args|vars|var|local|data)[.\[].*"
    r"|your[ _\-].*|(?:my|the|some|new|old|a)[ _\-]?(?:password|secret|token|key)|(?:change|replace)[ _\-]?me.*|example.*|redacted.*|masked.*|hidden.*"
    r"|null|none|nil|undefined|true|false|str|string|required|optional|bool|int|text|password|passwort|secret|token|senha|haslo",
    re.IGNORECASE,
)
_CALL = re.compile(r"[a-z_][\w.]*\(", re.IGNORECASE)


def _chaos(text: str) -> float:
    """Return Shannon's entropy of the text's characters, in bits a character."""
    size = len(text)
    return -sum(count / size * math.log2(count / size) for count in Counter(text).values())


def _is_password(value: str, *, quoted: bool, assigned: bool) -> bool:
    bare = value if quoted else value.rstrip(".:")
    if len(bare) < 4 or _PLACEHOLDER.fullmatch(bare) is not None:
        return False
    if quoted:
        # Words in quotes are a label or a sentence.
        return " " not in bare and not (bare.isalpha() and (bare.istitle() or (bare.islower() and len(bare) < 8)))
    if bare.isdigit():
        return assigned and len(bare) >= 6
    return any(character.isdigit() for character in bare) or _INNER_SIGN.search(bare) is not None


# A sign within a word, other than those of paths, dates and hyphens.
_INNER_SIGN = re.compile(r"\w[^\w.\-/:]+\w")


def _is_token(value: str) -> bool:
    bare = value.rstrip(".:")
    if len(bare) < 16 or _PLACEHOLDER.fullmatch(bare) is not None or _TOKEN.fullmatch(bare) is None or "://" in bare:
        return False
    # Letters and digits mixed within a part: `report_2024_final` is a name.
    mixed = sum(
        len(part)
        for part in _PARTS.split(bare)
        if any(character.isdigit() for character in part) and any(character.isalpha() for character in part)
    )
    return mixed >= 8 and _chaos(bare) >= 3.0


_TOKEN = re.compile(r"[A-Za-z0-9+/=_.~\-:]+")
_PARTS = re.compile(r"[_.~\-:/]")


def secrets(reading: Reading) -> Iterator[Raw]:
    """Yield credentials. The span is the secret itself, not the word that names it."""
    plain, folded = reading.plain, reading.folded
    for hint, detector, pattern in _SHAPES:
        if hint in plain:
            for found in pattern.finditer(plain):
                yield found.start(), found.end(), "CREDENTIAL", detector
    if "PRIVATE KEY" in plain:
        yield from _private_keys(plain)
    if "://" in plain:
        for found in _URL.finditer(plain):
            if _PLACEHOLDER.fullmatch(found.group(1)) is None:
                yield found.start(1), found.end(1), "CREDENTIAL", "url_password"
    if "authorization" in folded:
        for found in _HEADER.finditer(folded):
            if _PLACEHOLDER.fullmatch(found.group(1)) is None:
                yield found.start(1), found.end(1), "CREDENTIAL", "authorization"
    alone = _HEADER_ALONE.fullmatch(folded)
    if alone is not None and _is_token(plain[slice(*alone.span(1))]):
        yield alone.start(1), alone.end(1), "CREDENTIAL", "authorization"
    if _PASSWORD_HINT.search(folded) is not None:
        for pattern in (_PASSWORD, _TOLD):
            for found in pattern.finditer(folded):
                span = _value_span(found)
                quoted, equals = found["quote"] is not None, pattern is _PASSWORD and found["equals"] is not None
                if _is_password(plain[slice(*span)], quoted=quoted, assigned=equals) and not _is_call(plain, span):
                    yield *span, "CREDENTIAL", "password"
        for found in _LOGIN.finditer(folded) if "@" in folded else ():
            start, end = found.span("bare")
            value = plain[start:end].rstrip(".:")
            if re.search(r"\d", value) and re.search(r"[A-Za-z]", value):
                yield start, start + len(value), "CREDENTIAL", "password"
    if _SECRET_HINT.search(folded) is not None:
        for found in _SECRET.finditer(folded):
            start, end = _value_span(found)
            if _is_token(plain[start:end]):
                yield start, end, "CREDENTIAL", "secret"
    if any(hint in folded for hint in _PIN_HINTS):
        for found in _PIN.finditer(folded):
            yield found.start(1), found.end(1), "CREDENTIAL", "pin"


def _private_keys(plain: str) -> Iterator[Raw]:
    begin = _PEM.search(plain)
    while begin is not None:
        following = _PEM.search(plain, begin.end())
        ending = _PEM_END.search(plain, begin.end(), following.start() if following is not None else len(plain))
        if ending is not None:
            end = ending.end()
        else:
            # Cut off: as far as its base64 goes.
            body = _PEM_BODY.match(plain, begin.end())
            end = body.end() if body is not None else begin.end()
        yield begin.start(), end, "CREDENTIAL", "private_key"
        begin = following


_PASSWORD_HINT = re.compile(r"pass|pwd|kennwort|hasl|senha|contrasena|credential|login")
_SECRET_HINT = re.compile(r"key|token|secret|credential")
_PIN_HINTS = ("pin", "cvv", "cvc", "security code", "otp", "one-time")


def _value_span(found: re.Match[str]) -> tuple[int, int]:
    if found["quote"] is not None:
        return found.span("quoted")
    start = found.start("bare")
    return start, start + len(found["bare"].rstrip(".:"))


def _is_call(plain: str, span: tuple[int, int]) -> bool:
    return _CALL.match(plain, span[0]) is not None and plain[span[0] : span[1] + 1].endswith("(")


_KEY_WORDS = re.compile(rf"{_NAMED}(?:{_LOGIN_WORDS}|{_KEY_NAMES})")


def assigned(name: str, text: str) -> Iterator[Raw]:
    """Yield all of `text` where its `name` says that it is a password or token and it looks like one."""
    called = name.lower()
    if _KEY_WORDS.fullmatch(called) is None:
        return
    if _ANY_PASSWORD_WORD.search(called) is not None:
        if " " not in text and _is_password(text, quoted=True, assigned=True):
            yield 0, len(text), "CREDENTIAL", "password"
    elif _is_token(text):
        yield 0, len(text), "CREDENTIAL", "secret"


_ANY_PASSWORD_WORD = re.compile(_LOGIN_WORDS)
