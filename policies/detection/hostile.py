"""Text that is not what it looks like, or that speaks to the agent: hidden characters, and instructions in content.

Both are marks for whoever reads or decides; nothing is taken out here. The patterns are few and literal: they know the
well-worn wordings in English, German, Polish, French, Spanish and Portuguese, and the control words of common chat
formats. An instruction in other words, in another language or in look-alike letters is not seen.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

from policies.detection.identifiers import Raw
from policies.detection.reading import HIDDEN, Reading

_BIDI = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_RIGHT_TO_LEFT = re.compile("[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc\U00010800-\U00010fff\U0001e800-\U0001efff]")
# Scripts that need joiners to be spelled.
_JOINS = re.compile("[\u0600-\u08ff\u0900-\u0dff\u0f00-\u109f\u1780-\u18af\ufb50-\ufdff\ufe70-\ufefc]")
_FLAG = "\U0001f3f4"


def hidden(text: str) -> Iterator[tuple[int, int, str, str, str]]:
    """Yield (start, end, type, detector, Unicode name of the first) of runs of characters that a reader does not see.

    Not those that spelling needs: joiners in emoji and in scripts that join, one variation selector after a symbol,
    tags of a flag, direction marks in text that has letters from right to left, a byte order mark at the start.
    """
    if text.isascii():
        return
    right_to_left = None
    for found in HIDDEN.finditer(text):
        start, end = found.span()
        if start == 0 and text[0] == "\ufeff":
            start += 1
        if start == end:
            continue
        before, after = text[start - 1 : start], text[end : end + 1]
        run = text[start:end]
        if right_to_left is None:
            right_to_left = _RIGHT_TO_LEFT.search(text) is not None
        if _spelled(run, before, after, right_to_left):
            continue
        first = run[0]
        if any("\U000e0000" <= each <= "\U000e007f" for each in run):
            detector = "tag_characters"
        elif _BIDI.search(run) is not None:
            detector = "bidi_controls"
        else:
            detector = "invisible_characters"
        yield start, end, "HIDDEN_TEXT", detector, unicodedata.name(first, f"U+{ord(first):04X}")


def _spelled(run: str, before: str, after: str, right_to_left: bool) -> bool:
    if run.strip("\u200e\u200f\u061c") == "" and right_to_left:
        return True
    if before == _FLAG and run[-1] == "\U000e007f" and len(run) <= 8:
        return True
    if not before:
        return False
    symbol = (
        unicodedata.category(before)[0] == "S"
        or before in "0123456789#*\u20e3\U0001f3fb\U0001f3fc\U0001f3fd\U0001f3fe\U0001f3ff"
    )
    if symbol and re.fullmatch("[\ufe0e\ufe0f]?\u200d?", run) is not None:
        return True
    if len(run) == 1 and "\ufe00" <= run <= "\ufe0f" and not before.isascii():
        return True
    return run in ("\u200c", "\u200d") and _JOINS.match(before) is not None


_INSTRUCTIONS = tuple(
    (re.compile(pattern), detector)
    for pattern, detector in (
        # "Ignore all previous instructions"
        (
            r"\b(?:ignore|disregard|forget|override|bypass|do not follow|don't follow|stop following)\b[ ,]+(?:\w+ ){0,4}?"
            r"(?:previous|prior|above|earlier|preceding|foregoing|existing|original|system|your|safety)(?: \w+){0,2}? "
            r"(?:instructions?|prompts?|rules|guidelines|directives?|directions|commands|constraints|training|policies|programming)\b",
            "override",
        ),
        (
            r"\b(?:ignore|disregard|forget|override|bypass)\b (?:any|all)(?: (?:of )?(?:the|these|those))? (?:instructions|prompts|guidelines|directives)\b",
            "override",
        ),
        (
            r"\b(?:ignore|disregard|forget) (?:everything|all|anything) (?:above|before|you (?:were|have been) (?:told|taught)|that came before)\b",
            "override",
        ),
        (
            r"\b(?:ignorier\w*|vergiss|vergessen sie|missachte\w*)\b (?:\w+ ){0,4}?(?:anweisung\w*|instruktion\w*|regeln|vorgaben|befehle?)\b",
            "override",
        ),
        (
            r"\b(?:zignoruj|ignoruj|zapomnij|pomin)\w*\b (?:\w+ ){0,4}?(?:instrukcj\w*|polecen\w*|zasad\w*|regul\w*)",
            "override",
        ),
        (r"\b(?:ignore[zr]?|oublie[zr]?)\b (?:\w+ ){0,4}?(?:instructions?|consignes|regles|directives)\b", "override"),
        (
            r"\b(?:ignor[ae]\w*|olvid[ae]\w*|esque[cç]\w*|desconsidere)\b (?:\w+ ){0,4}?(?:instrucciones|instrucoes|reglas|regras|indicaciones|orientacoes)\b",
            "override",
        ),
        # Who the agent is
        (
            r"\byou are (?:now|no longer) (?:an? |the |in |bound |required |restricted )(?:\w+ ){0,4}?(?:mode|ai|assistant|model|agent|jailbroken|unrestricted|dan|by)\b",
            "persona",
        ),
        (
            r"\b(?:enter|enable|activate|switch to) (?:developer|debug|god|admin|dan|jailbreak|unrestricted) mode\b",
            "persona",
        ),
        (
            r"\bdu bist (?:jetzt|ab sofort|nun) (?:ein|eine|der|die) (?:\w+ ){0,3}?(?:assistent\w*|ki|modell|agent\w*)\b",
            "persona",
        ),
        # What it must show or keep from its user
        (
            r"\b(?:reveal|print|show|repeat|output|leak|disclose|tell me|send me)\b (?:\w+ ){0,3}?(?:system|hidden|initial|developer|secret) (?:prompt|instructions?|message)\b",
            "disclosure",
        ),
        (
            r"\b(?:zeige?|verrate|gib|pokaz|ujawnij|revele|montre|muestra|revela|mostre)\b (?:\w+ ){0,3}?(?:system-?prompt\w*|prompt systeme|prompt del? sistema|prompt do sistema|prompt systemow\w*)",
            "disclosure",
        ),
        (
            r"\b(?:do not|don't|never) (?:tell|inform|mention (?:this )?to|reveal (?:this )?to|alert|notify|warn) the (?:user|human|customer|operator)\b",
            "secrecy",
        ),
        (
            r"\bwithout (?:telling|informing|notifying|asking|alerting) the (?:user|human|customer|operator)\b",
            "secrecy",
        ),
        # Addressed to the machine
        (
            r"\b(?:attention|note to|instructions? (?:for|to)|message (?:for|to)|important[:!,]? ?(?:message|instructions?)? (?:for|to))[:,]? (?:the |any |all |every )?(?:ai|llm|language model|assistant|agent|chatbot)s?\b(?: agents?| assistants?| models?)?[ ]?[:,.!\-]",
            "addressed",
        ),
        (
            r"\b(?:new|updated|real|actual|secret|hidden) (?:system )?(?:instructions?|prompt|directives?) ?:",
            "addressed",
        ),
        # Control words of chat formats
        (
            r"<\|(?:im_start|im_end|system|user|assistant|endoftext|start_header_id|end_header_id|eot_id)\|>|\[/?inst\]|<</?sys>>|</?(?:system|system_prompt|system-reminder|instructions?)>",
            "control_words",
        ),
    )
)
# One of these must be there: the wordings above are tried only then.
_HINT = re.compile(
    r"instru|prompt|rules|guideline|directi|command|constraint|training|polic|programming|ignor|disregard|forget|override|bypass|vergiss|missacht"
    r"|zapomni|pomin|zasad|regul|oublie|consigne|regle|olvid|esque|desconsid|orienta|indicac|you are (?:now|no)| mode\b|du bist|the (?:user|human|customer|operator)"
    r"|<\||<</?sys|system>|\b(?:ai|llm|assistant|agent|chatbot)s?\b"
)


def instructions(reading: Reading) -> Iterator[Raw]:
    """Yield wordings by which content tries to instruct the agent that reads it."""
    folded = reading.folded
    if _HINT.search(folded) is None:
        return
    # Words on two lines are still one sentence.
    flat = folded.replace("\n", " ")
    for pattern, detector in _INSTRUCTIONS:
        for found in pattern.finditer(flat):
            yield found.start(), found.end(), "INSTRUCTION", detector
