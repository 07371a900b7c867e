"""Structured identifiers: e-mail, phone, payment card, IBAN, US social security number, IP address, national numbers.

Where a number has a check digit it must hold, unless the text says right before it what the number is: a mistyped card
number is a card number. Languages of the words that decide about phones: English, German, Polish, French, Spanish,
Portuguese, Italian, Dutch. Names and places are not looked for.
"""

from __future__ import annotations

import ipaddress
import re
from collections import deque
from collections.abc import Iterator

import phonenumbers
from stdnum import iban, luhn, verhoeff
from stdnum.br import cpf
from stdnum.fr import nir
from stdnum.pl import pesel
from stdnum.us import ssn

from policies.detection.reading import Reading

#: Start, end (in the reading), type, detector.
Raw = tuple[int, int, str, str]

# --- e-mail -------------------------------------------------------------------------------------------------------

_EMAIL = re.compile(
    r"(?<![\w.+%\-])(?=[^\s@]{1,64}@)[\w+%\-](?:[\w.+%'\-]*[\w+%\-])?"
    r"@(?:[^\W_](?:[\w\-]{0,61}[^\W_])?\.){1,8}(?:xn--[a-z0-9\-]{2,50}|[^\W\d_]{2,24})(?![\w\-@]|:[\w/~])"
)
_LOGIN_BEFORE = re.compile(r"://[^\s/@]{0,100}:[^\s/@]{0,64}\Z")
# Written to keep it from programs: mira (at) example (dot) org, mira[at]example.org.
_SPELLED = re.compile(
    r"(?<![\w.])[\w.+\-]{1,64} ?[\[({] ?at ?[\])}] ?"
    r"[\w\-]{1,63}(?:(?:\.| ?[\[({] ?(?:dot|punkt|kropka|point) ?[\])}] ?)[\w\-]{1,63}){1,4}"
)


def emails(reading: Reading) -> Iterator[Raw]:
    """Yield e-mail addresses. An at sign or a bracket must be there for this to cost anything."""
    text = reading.plain
    if "@" in text:
        for found in _EMAIL.finditer(text):
            # A password before the host of a URL is no mailbox.
            if _LOGIN_BEFORE.search(text, max(0, found.start() - 120), found.start()) is None:
                yield found.start(), found.end(), "EMAIL_ADDRESS", "email"
    if _BRACKETED_AT.search(reading.folded) is not None:
        for found in _SPELLED.finditer(reading.folded):
            yield found.start(), found.end(), "EMAIL_ADDRESS", "email"


_BRACKETED_AT = re.compile(r"[\[({] ?at ?[\])}]")

# --- IP addresses -------------------------------------------------------------------------------------------------

_IPV4 = re.compile(r"(?<![\w.\-])(?:\d{1,3}\.){3}\d{1,3}(?![\w\-]|\.\d)", re.ASCII)
_IPV6 = re.compile(
    r"(?<![\w:.])(?=[0-9A-Fa-f]{0,4}:[0-9A-Fa-f]{0,4}:)[0-9A-Fa-f:]{3,39}(?:(?<=:)(?:\d{1,3}\.){3}\d{1,3})?(?![\w:])",
    re.ASCII,
)
_VERSION = re.compile(r"(?:\bv|version|release|build|firmware|section|chapter|abschnitt)[ .:#]*$")


def ip_addresses(reading: Reading) -> Iterator[Raw]:
    """Yield addresses of hosts: not loopback, unspecified or broadcast, not what is called a version."""
    text = reading.plain
    if "." in text:
        for found in _IPV4.finditer(text):
            if _is_host(found.group()) and not _VERSION.search(reading.folded[: found.start()][-16:]):
                yield found.start(), found.end(), "IP_ADDRESS", "ip"
    if text.count(":") >= 2:
        for found in _IPV6.finditer(text):
            parts = [part for part in found.group().split(":") if part]
            if len(parts) >= 3 and _is_host(found.group()):
                yield found.start(), found.end(), "IP_ADDRESS", "ip"


def _is_host(text: str) -> bool:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return False
    if address.is_loopback or address.is_unspecified:
        return False
    # A mask or a broadcast names no host.
    return not (isinstance(address, ipaddress.IPv4Address) and text.startswith(("255.", "0.")))


# --- numbers ------------------------------------------------------------------------------------------------------

_ALONE, _END = r"(?<![\w.+\-])", r"(?![\w\-]|[.,]\d)"
_BARE_CARD = re.compile(r"(?<![\w.,+/\-])\d{12,19}" + _END, re.ASCII)
_GROUPED_CARD = re.compile(
    r"(?<![\w.,+/\-])(?:\d{4}([ \-])\d{4}\1\d{4}\1\d{1,7}|\d{4}([ \-])\d{6}\2\d{4,5})(?![\w]|-\d|[.,]\d)", re.ASCII
)
_ISSUERS = re.compile(
    r"4(?:\d{12}|\d{15}|\d{18})"  # Visa
    r"|(?:5[1-5]\d{2}|222[1-9]|22[3-9]\d|2[3-6]\d{2}|27[01]\d|2720)\d{12}"  # Mastercard
    r"|3[47]\d{13}"  # American Express
    r"|(?:6011|65\d{2}|64[4-9]\d)\d{12,15}"  # Discover
    r"|35(?:2[89]|[3-8]\d)\d{12}|(?:2131|1800)\d{11}"  # JCB
    r"|3(?:0[0-5]|[68]\d)\d{11}"  # Diners Club
    r"|62\d{14,17}"  # UnionPay
    r"|(?:5018|5020|5038|5893|6304|6759|676[1-3])\d{8,15}",  # Maestro
    re.ASCII,
)
_SAID_CARD = re.compile(
    r"\b(?:(?:credit|debit|bank|visa|master|payment|kredit|ec-?)[ \-]?(?:card|karte)|card|cc|visa|mastercard|amex"
    r"|kreditkarte\w*|kart[aeyi]\w*|carte|tarjeta|cartao|carta)\b[^\d\n]{0,48}$"
)

_IBAN = re.compile(
    r"(?<![A-Za-z0-9])[A-Za-z]{2}\d{2}(?:[ \-]?[A-Za-z0-9]{4}){2,7}(?:[ \-]?[A-Za-z0-9]{1,3})?(?![A-Za-z0-9])", re.ASCII
)
_SAID_IBAN = re.compile(
    r"\biban\b[ \w]{0,12}[:#=]? ?[\"'(]?"
    # Further groups hold digits: what is a word is text again.
    r"(?=([a-z]{2}\d{2}[a-z0-9]{0,30}(?:[ \-](?=[a-z]{0,4}\d)[a-z0-9]{1,30}){0,8})(?![a-z0-9]))"
)

_SSN = re.compile(_ALONE + r"(?:\d{3}|[Xx*]{3})-(?:\d{2}|[Xx*]{2})-\d{4}" + _END, re.ASCII)
_LOOSE_SSN = re.compile(r"(?<![\w.+\-])\d(?:[ \-.]{0,3}\d){8}(?![\w]|-\d|[.,]\d)", re.ASCII)
_SAID_SSN = re.compile(r"\b(?:ssn|social(?: security)?(?: (?:number|no|num|nr))?)\b[^\d\n]{0,16}$")

# Type NATIONAL_ID: shape, what must stand before it ("": nothing), check.
_CPF = re.compile(_ALONE + r"\d{3}\.\d{3}\.\d{3}-\d{2}" + _END, re.ASCII)
_NIR = re.compile(
    _ALONE + r"[12][ .]?\d{2}[ .]?(?:0[1-9]|1[0-2])[ .]?(?:\d{2}|2[AB])[ .]?\d{3}[ .]?\d{3}[ .\-]?\d{2}" + _END
)
_PESEL = re.compile(r"\bpesel\w*\W{0,4}(\d{11})\b", re.ASCII)
_AADHAAR = re.compile(r"\baadhaa?r\b[^\d\n]{0,16}(\d{4}([ \-]?)\d{4}\2\d{4})\b", re.ASCII)


def cards(reading: Reading) -> Iterator[Raw]:
    """Yield payment card numbers: a known issuer and the check digit; where "card" is said, one of the two is enough."""
    for pattern in (_BARE_CARD, _GROUPED_CARD):
        for found in pattern.finditer(reading.plain):
            digits = re.sub(r"[ \-]", "", found.group())
            issued = _ISSUERS.fullmatch(digits) is not None
            checked = bool(luhn.is_valid(digits)) and len(set(digits)) > 1
            if not (issued and checked):
                if not issued and not checked:
                    continue
                if _SAID_CARD.search(reading.folded[max(0, found.start() - 72) : found.start()]) is None:
                    continue
            yield found.start(), found.end(), "CREDIT_CARD", "card"


def ibans(reading: Reading) -> Iterator[Raw]:
    """Yield IBANs with their check digits; right after the word "IBAN" also what only has the shape of one."""
    valid = set()
    for found in _IBAN.finditer(reading.plain):
        # The last group may have swallowed a word of the text: the shape is tried from the longest on.
        whole = found.group()
        ends = [len(whole), *[at.start() for at in re.finditer(r"[ \-]", whole)][::-1]]
        for end in ends:
            if end < 15:
                break
            if iban.is_valid(whole[:end], check_country=False):
                valid.add(found.start())
                yield found.start(), found.start() + end, "IBAN_CODE", "iban"
                break
    if "iban" in reading.folded:
        for found in _SAID_IBAN.finditer(reading.folded):
            size = sum(character.isalnum() for character in found.group(1))
            if found.start(1) not in valid and 14 <= size <= 34:
                yield found.start(1), found.end(1), "IBAN_CODE", "iban"


def social_security_numbers(reading: Reading) -> Iterator[Raw]:
    """Yield US social security numbers: one that may have been issued, hidden digits included; any where it is said."""
    for found in _SSN.finditer(reading.plain):
        text = found.group()
        if not text[0].isdigit() or ssn.is_valid(text) or _said_ssn(reading, found.start()):
            yield found.start(), found.end(), "US_SSN", "us_ssn"
    if "ss" in reading.folded or "social" in reading.folded:
        for found in _LOOSE_SSN.finditer(reading.plain):
            if _said_ssn(reading, found.start()):
                yield found.start(), found.end(), "US_SSN", "us_ssn"


def _said_ssn(reading: Reading, start: int) -> bool:
    return _SAID_SSN.search(reading.folded[max(0, start - 48) : start]) is not None


def national_numbers(reading: Reading) -> Iterator[Raw]:
    """Yield CPF and NIR by shape and check digits, PESEL and Aadhaar also by their name right before."""
    for found in _CPF.finditer(reading.plain):
        if cpf.is_valid(found.group()):
            yield found.start(), found.end(), "NATIONAL_ID", "national_id"
    for found in _NIR.finditer(reading.plain):
        if nir.is_valid(re.sub(r"[ .\-]", "", found.group())):
            yield found.start(), found.end(), "NATIONAL_ID", "national_id"
    if "pesel" in reading.folded:
        for found in _PESEL.finditer(reading.folded):
            if pesel.is_valid(found.group(1)):
                yield found.start(1), found.end(1), "NATIONAL_ID", "national_id"
    if "aadha" in reading.folded:
        for found in _AADHAAR.finditer(reading.folded):
            if verhoeff.is_valid(re.sub(r"[ \-]", "", found.group(1))):
                yield found.start(1), found.end(1), "NATIONAL_ID", "national_id"


# --- phones -------------------------------------------------------------------------------------------------------

# A run of digits as phones are written. What stands around it must not make it part of something else.
_RUN = re.compile(
    r"(?<![\w.,/$€£#@=&%+\-])(?<![$€£] )"
    # One way only to read any run: two would double with every digit.
    r"\+?(?:\(\+?\d{1,5}\)|\d)(?:[ .\-/]?(?:\(\d{1,5}\)|\d)|  \d){5,17}"
    r"(?P<extension> ?(?:x|ext\.?|extension|durchwahl|wew\.?|poste) ?\d{1,6})?"
    r"(?![\w%€£$]|[.,:/\-]\d| ?(?:%|€|£|\$))",
    re.ASCII | re.IGNORECASE,
)
_NANP = re.compile(r"(?:(?:\+|00)?1[ .\-]?)?(?:\(\d{3}\)[ .\-]?\d{3}[ .\-]\d{4}|\d{3}([ .\-])\d{3}\1\d{4})", re.ASCII)
_DATE = re.compile(
    r"(?:19|20)\d{2}([ .\-/])(?:0?[1-9]|1[0-2])\1(?:0?[1-9]|[12]\d|3[01])(?: \d{1,2})?"
    r"|(?:0?[1-9]|[12]\d|3[01])([ .\-/])(?:0?[1-9]|[12]\d|3[01])\2(?:19|20)\d{2}(?: \d{1,2})?"
    r"|(?:0?[1-9]|[12]\d|3[01])([.\-/])(?:0?[1-9]|[12]\d|3[01])\3\d{2}(?: \d{1,2})?"
    r"|(?:19|20)\d{2}(?:[ \-/]{1,3}(?:19|20)\d{2})+"
    r"|(?:19|20)\d{2}(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01])(?:\d{4}|\d{6})?",
    re.ASCII,
)
_DECIMAL = re.compile(r"[1-9]\d*\.\d+|0\.\d+", re.ASCII)
_THOUSANDS = re.compile(r"\d{1,3}(?:[ .]\d{3})+", re.ASCII)

#: Words after which digits are a phone number.
_PHONE_WORDS = (
    r"(?:tele|cell|mobile |work |home )?(?:phones?|fax|fon)(?:e|number|nummer)?|tel|cell(?:ular)?|mobiles?|call(?:ing|ed)?|dial(?:ing)?|ring"
    r"|reach(?:able|ed)?|contac\w*|text(?:ing)?|sms|whats ?app|signal|viber|desk|hotline|helpline|toll[ \-]free|line|landline"
    r"|answering|messages to|handy|mobil\w*|telefon\w*|telefax|rufnummer|durchwahl|anrufen|erreich\w*|ruf(?:en|t)?"
    r"|kom(?:orka|orkowy)?|numer(?:em|u)? telefonu|dzwon\w*|zadzwon\w*|portable|appel\w*|joindre|telephone|rappel\w*"
    r"|telefone|telemovel|celular|ligue|ligar|movil|llam\w+|cellulare|chiam\w+|bel(?:len)?|telefoonnummer|pager"
)
#: Words after which they are something else; they win where they stand nearer.
_OTHER_WORDS = (
    r"orders?|invoice|account|acct|acc|card|npi|mrn|dea|policy|member(?:ship)?|claims? (?:no|number|id)|id|ids|ref|reference|tracking"
    r"|ticket|case|zip|ssn|social|passport|licen[cs]e|serial|vin|iban|bic|isbn|issn|ean|upc|sku|asin|gtin|balance|amount|total|price|cost|sum"
    r"|usd|eur|gbp|pln|chart|patient|record|routing|booking|reservation|confirmation|flight|version|build|commit|date|year|born|dob"
    r"|code|pin|otp|model|part|item|seal|rechnung\w*|bestell\w*|kunden\w*|konto\w*|auftrag\w*|vertrag\w*|artikel\w*|aktenzeichen"
    r"|zamowieni\w*|faktur\w*|nip|regon|pesel|krs|commande|facture|compte|dossier|pedido|fatura|conta|nif|cnpj|cpf|siret|siren"
    r"|port|pid|timestamp|epoch|bytes|rows|lines|error|issue|pr|bug|pull"
)
_SAYS = re.compile(rf"\b(?:(?P<phone>{_PHONE_WORDS})|(?P<other>{_OTHER_WORDS}))\b|(?P<hash>#|\bn[or]\. ?$)")
_NUMBER_IS = re.compile(
    r"(?:\b(?:number|nummer|numer|numero|it|its|it's|numbers)\b(?: is| are|'s| ist| to| e| es| est)?|:) ?$"
)
_SAYS_AFTER = re.compile(
    r"^[\"')\], ]{0,3}(?:is|are|ist|to)? ?(?:my|the|her|his|our|their|your|meine?|moj)? ?(?:new |work |home |office )?"
    r"(?:cell|mobile|phone|number|tel(?:ephone)?|fax|handy|telefon|\((?:cell|mobile|home|work|office|fax)\))\b"
)
_BEFORE = 64
_REGIONS = ("US", "GB", "DE", "FR", "PL", "ES", "IT", "PT", "NL", "BR", "IN", "AU", "CH")


def phones(reading: Reading) -> Iterator[Raw]:
    """Yield phone numbers.

    1. With a plus or 00: any that phonenumbers holds possible, or that is called a phone.
    2. In the shape of North America (3-3-4 with separators): any, unless the nearest word says it is something else.
    3. In groups, valid in one of thirteen countries with its leading zero: as 2.
    4. Anything else of 7 to 15 digits: only where the nearest word within 64 characters says phone, call, reach …

    Dates, prices, ranges of years, numbers after a hash and digits inside longer ids are none.
    """
    for found in _RUN.finditer(reading.plain):
        start, end = found.span()
        text = found.group()
        number = text if found["extension"] is None else text[: found.start("extension") - start]
        digits = sum(character.isdigit() for character in number)
        if digits > 15 or digits < 7:
            continue
        if number[0] == "+" or number.startswith(("(+", "00")):
            if digits >= 8 and (_possible(number) or _said(reading.folded, start, end) == "phone"):
                yield start, end, "PHONE_NUMBER", "phone"
            continue
        if _DATE.fullmatch(number) is not None or _DECIMAL.fullmatch(number) is not None:
            continue
        says = _said(reading.folded, start, end)
        if says == "other":
            continue
        if says == "phone" or _NANP.fullmatch(number) is not None or (found["extension"] and digits >= 9):
            yield start, end, "PHONE_NUMBER", "phone"
            continue
        grouped = any(mark in number for mark in " -/.(")
        local = number[0] in "0(" and digits >= 9
        told = says == "number" and digits >= 8 and _THOUSANDS.fullmatch(number) is None
        if grouped and (local or told) and _valid_somewhere(number):
            yield start, end, "PHONE_NUMBER", "phone"


def _said(folded: str, start: int, end: int) -> str | None:
    """Return what the text says the number is: phone, other, number (of what is open), or None."""
    before = folded[max(0, start - _BEFORE) : start]
    # What another line or number is about does not speak about this one.
    line = before.rfind("\n")
    if line >= 0 and before[line:].strip():
        before = before[line + 1 :]
    nearest = deque(_SAYS.finditer(before), maxlen=1)
    if _SAYS_AFTER.match(folded[end : end + 40]) is not None:
        return "phone"
    if nearest:
        return "phone" if nearest[0]["phone"] is not None else "other"
    return "number" if _NUMBER_IS.search(before) is not None else None


def _possible(text: str) -> bool:
    try:
        return phonenumbers.is_possible_number(phonenumbers.parse(re.sub("^00", "+", text), None))
    except phonenumbers.NumberParseException:
        return False


def _valid_somewhere(text: str) -> bool:
    for region in _REGIONS:
        try:
            if phonenumbers.is_valid_number_for_region(phonenumbers.parse(text, region), region):
                return True
        except phonenumbers.NumberParseException:
            return False
    return False


_DIGITS = re.compile(r"\d(?:\D{0,4}\d){6}", re.ASCII)
_NINE = re.compile(r"\d(?:\D{0,3}\d){8}", re.ASCII)
_IBAN_HEAD = re.compile(r"(?<![a-z0-9])[a-z]{2}\d{2}", re.ASCII)
_DOTTED_OR_COLON = re.compile(r"\d\.\d|:[0-9A-Fa-f:]", re.ASCII)


def structured(reading: Reading) -> Iterator[Raw]:
    """Yield every structured identifier, after cheap tests of what may be there at all."""
    yield from emails(reading)
    plain = reading.plain
    if _DOTTED_OR_COLON.search(plain) is not None:
        yield from ip_addresses(reading)
    if _IBAN_HEAD.search(reading.folded) is not None or "iban" in reading.folded:
        yield from ibans(reading)
    if _NINE.search(plain) is not None:
        yield from cards(reading)
        yield from social_security_numbers(reading)
        yield from national_numbers(reading)
        yield from phones(reading)
    elif _DIGITS.search(plain) is not None:
        yield from phones(reading)
    if "-" in plain and ("x-" in reading.folded or "*-" in plain):
        yield from social_security_numbers(reading)
