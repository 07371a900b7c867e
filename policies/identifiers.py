"""Whether an id that an agent chose (turn, session, tool call, consent) is somebody's e-mail, phone or the like.

Such ids are stored in clear and listed, so they must not identify a person. Pure: no Django, no clock, no network.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable

import phonenumbers
from stdnum import iban, luhn
from stdnum.br import cpf
from stdnum.us import ssn

MAX_LENGTH = 1000

# Something is looked for only in text with an at sign, a plus before a digit, or nine digits and more.
_SUSPECT = re.compile(r"@|\+[(\d]|\d(?:\D*\d){8}", re.ASCII)

# A number is looked at only where it stands alone: not inside a word, a longer number, or an id joined by - _ .
_START, _END = r"(?<![\w.\-+])", r"(?![\w\-+]|\.\w)"

_EMAIL = re.compile(r"[^\s@]{1,64}@(?:[\w\-]{1,63}\.){1,8}[^\W\d_]{2,24}(?![\w\-])")
_INTERNATIONAL = re.compile(r"(?<![\w+])\+[(\d][\d ().\-/]{6,24}\d(?![\w:])", re.ASCII)
_LOCAL = re.compile(
    _START
    + r"(?:"
    + r"\(\d{2,5}\) ?\d{2,5}(?:[ \-.]\d{2,5}){1,3}"  # (555) 123-4567, (0)30 is international
    + r"|\d{3}([ .\-])\d{3}\1\d{4}"  # 555-123-4567
    + r"|0\d{1,4}[ /]\d{2,4}(?:[ \-]\d{2,4}){1,4}"  # 06 12 34 56 78, 030/1234 5678
    + r"|\d{3} \d{3} \d{3}"  # 601 234 567
    + r")"
    + _END,
    re.ASCII,
)
_CARD = re.compile(
    _START + r"(?:\d{13,19}|\d{4}([ \-])\d{4}\1\d{4}\1\d{1,7}|\d{4}([ \-])\d{6}\2\d{5})" + _END, re.ASCII
)
_ISSUERS = re.compile(
    r"4(?:\d{12}|\d{15}|\d{18})"  # Visa
    r"|(?:5[1-5]\d{2}|222[1-9]|22[3-9]\d|2[3-6]\d{2}|27[01]\d|2720)\d{12}"  # Mastercard
    r"|3[47]\d{13}"  # American Express
    r"|(?:6011|65\d{2}|64[4-9]\d)\d{12}"  # Discover
    r"|35(?:2[89]|[3-8]\d)\d{12}"  # JCB
    r"|3(?:0[0-5]|[68]\d)\d{11}"  # Diners Club
    r"|62\d{14,17}",  # UnionPay
    re.ASCII,
)
_IBAN = re.compile(
    _START + r"[A-Za-z]{2}\d{2}(?: ?[A-Za-z0-9]{4}){2,7}(?: ?[A-Za-z0-9]{1,3})?" + _END,
    re.ASCII,
)
_SSN = re.compile(_START + r"\d{3}-\d{2}-\d{4}" + _END, re.ASCII)
_CPF = re.compile(_START + r"\d{3}\.\d{3}\.\d{3}-\d{2}" + _END, re.ASCII)


def _is_phone(text: str) -> bool:
    if not 8 <= sum(character.isdigit() for character in text) <= 15:
        return False
    try:
        return phonenumbers.is_possible_number(phonenumbers.parse(text, None))
    except phonenumbers.NumberParseException:
        return False


def _is_local_phone(text: str) -> bool:
    return 8 <= sum(character.isdigit() for character in text) <= 13


def _is_card(text: str) -> bool:
    digits = re.sub(r"[ \-]", "", text)
    return _ISSUERS.fullmatch(digits) is not None and bool(luhn.is_valid(digits))


# Most telling first: an e-mail may contain a number, a Brazilian tax number has the shape of a phone.
_KINDS: tuple[tuple[str, re.Pattern[str], Callable[[str], bool]], ...] = (
    ("email", _EMAIL, lambda _: True),
    ("iban", _IBAN, iban.is_valid),
    ("card", _CARD, _is_card),
    ("ssn", _SSN, ssn.is_valid),
    ("cpf", _CPF, cpf.is_valid),
    ("phone", _INTERNATIONAL, _is_phone),
    ("phone", _LOCAL, _is_local_phone),
)


def looks_like_identifier(text: str) -> str | None:
    """Return what kind of personal identifier `text` is or contains, or None.

    The kinds are `email`, `phone`, `card`, `iban`, `ssn` and `cpf`. Rather misses one than refuses an ordinary id:
    a phone needs a plus or the separators of a phone, a card a known issuer and its check digit, the others their
    own checks; bare numbers, hashes, UUIDs, dates and version numbers are ordinary. Text beyond the first 1,000
    characters is not looked at.
    """
    text = text[:MAX_LENGTH]
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text)
    if _SUSPECT.search(text) is None:
        return None
    for kind, pattern, holds in _KINDS:
        for found in pattern.finditer(text):
            if holds(found.group()):
                return kind
    return None
