"""Cues: words that tell whether findings near them are absent, uncertain or not stated at all.

A cue is a regular expression for whole words, of any case, in which a blank matches blanks and line ends.
Where several begin at one place, the one that stands first counts; the words of a cue are part of no other.
docs/findings.md says what they do.
"""

import re
from functools import cache
from typing import Final, NamedTuple

from training.clinical.findings.english import ENGLISH, LIMIT, Effect, Side
from training.clinical.findings.german import GERMAN

_TABLES: Final = (*GERMAN, *ENGLISH)


class Cue(NamedTuple):
    """A cue at its place in a sentence."""

    effect: Effect
    side: Side
    start: int
    end: int


# Between findings of a list, such as "effusion and pneumothorax are not seen".
LISTED: Final = re.compile(r"\b(?:and|or|nor|und|oder|noch|sowie|such\s+as|including)\b|/", re.IGNORECASE)
ALTERNATIVE: Final = re.compile(r"\b(?:n?or|oder)\b|/", re.IGNORECASE)
VERB: Final = re.compile(
    r"\b(?:is|are|was|were|has|have|appears?|remains?|shows?|demonstrates?|ist|sind|hat|haben)\b",
    re.IGNORECASE,
)
# "Heart large" is a clause of its own.
HEART_IS: Final = re.compile(
    r"(?:heart|cor|herz(?:schatten|silhouette)?|mediastinum)\s+(?!enlargement)", re.IGNORECASE
)
# An absent finding behind these words may be there in part, or from before.
LIMITED: Final = re.compile(
    rf"\b(?:{LIMIT}|(?:n?or|oder)\s+(?:definite|convincing|conclusive|sichere[rsnm]?|eindeutige[rsnm]?)|"
    r"(?:neu|grö(?:ß|ss)er|gro(?:ß|ss))e[rsnm]?)(?:\s+[\w\-]+)?\s+$",
    re.IGNORECASE,
)
_NO_ALTERNATIVE: Final = r"(?!.*(?:\bn?or\b|\boder\b|\bnoch (?=(?:\w+ )?\ufffc)|/))"
_SIZE: Final = (
    r"(?:an?|small|tiny|trace|minimal|mild|slight|moderate|large|severe|marked|stable|unchanged|persistent|"
    r"new|old|sm|lg|mod|kl|ger|(?:klein|winzig|gro(?:ß|ss)|gering|geringgradig|mäßig|mässig|mäßiggradig|"
    r"deutlich|ausgeprägt|massiv|diskret|minimal|leicht|schmal|neu|alt|stabil|unverändert)(?:e[rsnm]?)?)"
)
_PLACE: Final = (
    r"(?:left|right|bas(?:al|ilar)(?:e[rsnm]?)?|apical|apikal(?:e[rsnm]?)?|bi(?:lateral|basilar|basal|"
    r"apical)(?:ly)?|links|rechts|beidseits|bds|lingula|(?:upper|middle|lower) (?:lobe|zone|field)|(?:ober|"
    r"mittel|unter)(?:lappen|feld)|\d\. rippe|li|re|beidseitig(?:e[rsnm]?)?|(?:links|rechts)(?:seitig|"
    r"basal)(?:e[rsnm]?)?)"
)
_SIDES: Final = re.compile(
    r"\b(?:(?P<left>(?i:left|linke[rsnm]?|li|links\w*)|L|Lt)|(?P<right>(?i:right|rechte[rsnm]?|re|rechts\w*)|"
    r"R|Rt))\b"
)
_BILATERAL: Final = re.compile(
    r"\b(?:bilateral(?:ly)?|both|beid(?:e[rsnm]?|seits|seitige?[rsnm]?)|bds)\b", re.IGNORECASE
)
# Parts of a sentence, each of which may tell of a side of its own.
PARTS: Final = re.compile(
    r"[,;)]|\.(?=\s)|\b(?:but|yet|while|whereas|though|although|however|während|"
    # "Links jedoch gering" is one part.
    r"(?<!,\slinks\s)(?<!,\srechts\s)(?:aber|jedoch|hingegen|dagegen))\b|\b(?:and|und)\b"
    # "On the right and left" is one part.
    r"(?!(?<=left\sand|ight\sand|inks\sund|chts\sund)\s+(?:on\s+)?(?:the\s+)?(?:left|right|links|rechts))",
    re.IGNORECASE,
)
_STILL: Final = (
    r"remain(?:s|ing)?|still|noch|\d+(?:[.,]\d+)?(?:\s?[cm]m)?|persist\w*|unchanged|stable|present|seen|"
    r"noted|visible|small|tiny|trace|minimal|mild|slight|moderate|large|(?:de|in)creas\w+|improv\w+|wors\w+|"
    r"grown|larger|bigger|smaller|zugenommen|größer|kleiner|residual|more|less|dense\w*|pronounced|prominent|"
    r"conspicuous|extensive|same|stationary|similar|idem|stationär|konstant|zunehmend|dichter|ausgeprägt\w*|"
    r"verb(?:leibt|lieben)|geblieben|regredient|new|yes|vorhanden|nachweisbar|sichtbar|besteh\w+|ja|"
    r"(?:gering|klein|schmal|diskret|winzig|mäßig|deutlich|unverändert|rückläufig|persistier|progredien|neu)\w*"
)
_OPEN: Final = (
    r"possibl[ey]|probabl[ey]|likely|fraglich\w*|möglich\w*|unclear|unklar|nicht (?:sicher )?(?:beurteilbar|"
    r"auszuschlie(?:ß|ss)en)|cannot be (?:\w+ )?(?:assessed|evaluated|excluded|ruled out)"
)
# What is left out of "no effusion on the right, small on the left", and of "... the right is not".
_ELLIPSIS: Final = re.compile(
    r"(?:\W*\b(?:the|an?|on|at|in|of|is|are|has|have|contains?|shows?|only|now|two|three|several|zwei|drei|"
    r"mehrere|that|those|it|ones?|there|today|currently|heute|jetzt|nun|aktuell|base|apex|basal|apical|"
    r"apikal|basilar|however|side|sided|left|right|links\w*|rechts\w*|linke[rsnm]?|rechte[rsnm]?|li|re|auf|"
    r"de[rsnm]|die|das|seite|weiter(?:hin)?|fort|er|aber|jedoch|hingegen|dagegen|eine?r?|ist|sind|findet|sich|"
    rf"{_STILL}|{_OPEN})\b)+\W*|.*\b(?:side|lung|ones?|base|"
    r"left|right|seite)\W+(?:with (?:it|one)|(?:is|are|has|have) not|does(?: not)?|has (?:it|one)|nicht|"
    r"schon)\W*",
    re.IGNORECASE | re.DOTALL,
)
_ELLIPTIC: Final = re.compile(
    rf"\b(?:{_STILL}|there (?:is|are)|einer?|but|yet|aber|jedoch|dafür|with (?:it|one)|contains?|shows?|"
    r"(?:is|are|has|have) not|does(?: not)?|has (?:it|one)|nicht|schon)\b",
    re.I,
)
# "No pneumothorax is seen, but one cannot be excluded."
OPEN_ONE: Final = re.compile(
    r"\W*(?:\w+\W+)?\b(?:one|it|this|that|an? \w+ one|einer?|dies\w*)\b[^.;]*\b(?:excluded|ruled out|"
    r"possible|auszuschlie(?:ß|ss)en|ausgeschlossen|möglich)\b",
    re.IGNORECASE,
)
_OPENLY: Final = re.compile(rf"\b(?:{_OPEN})\b", re.IGNORECASE)
BOTH_SIDES: Final = re.compile(r"\b(?:bilaterally|beidseits|bds|beidseitig)\b", re.IGNORECASE)
# Behind a finding they say that it is there.
STAYS: Final = re.compile(
    r"\b(?:unchanged|stable|again (?:seen|noted|demonstrated)|persists?|in (?:place|situ|projektion)|in "
    r"(?:[\w\-]+ ){1,3}position|liegend|unverändert|stabil|rückläufig|progredient|vorbekannt|bekannt)\b",
    re.IGNORECASE,
)
PLURAL: Final = re.compile(r"(?:(?:ü|ue)ssen?|(?<![isu])s|en|ces|infiltrate|rundherde|ödeme)$", re.IGNORECASE)
# A forward scope ends where a new statement begins: after a verb, where a size or an article begins a phrase,
# and at a comma before a phrase with a side, if no "or" of a list follows.
NEW_STATEMENT: Final = re.compile(
    r"\b(?:is|are|was|were|has|have)\b[^,;]*?(?P<after>,|\band\b)|(?P<size>(?:,|\band\b|"
    rf"\bund\b)(?:\s+(?:and|now|today|heute|jetzt|nun))?\s+{_SIZE}\b){_NO_ALTERNATIVE}|(?P<side>,){_NO_ALTERNATIVE}(?:(?!\b(?:and|"
    rf"und)\b)[^,;])*?\b(?:{_PLACE}|{STAYS.pattern})\b|"
    # A list ends with the finding behind its "or", and a line with a finding is no part of the next.
    rf"(?:\b(?:n?or|oder|noch)\b|/)[^,;\ufffc]*\ufffc[^,;]*?(?P<last>,){_NO_ALTERNATIVE}|"
    r"(?P<line>(?<=\ufffc)[^\S\n]*\n)(?!\s*(?:(?:and|n?or|und|oder|noch|sowie)\b|[,/(]))",
    re.IGNORECASE | re.DOTALL,
)
# "Without pneumothorax, effusion present": the second of two is there, as it would not be behind "no".
WITHOUT: Final = re.compile(r"without|ohne", re.IGNORECASE)
SHOWN: Final = re.compile(
    rf"\ufffc[^,;\ufffc]*(?P<after>,){_NO_ALTERNATIVE}(?:(?!\b(?:and|und)\b)[^,;])*\ufffc (?:is |are "
    r")?(?:\w+ly )?(?:present|seen|noted|visible|vorhanden|sichtbar|nachweisbar|erkennbar)\b",
    re.IGNORECASE,
)
_EXCEPT: Final = (
    r"(?:other than|except(?: for)?|apart from|aside from|save(?: for)?|bar|außer|bis auf|abgesehen von)"
)
# "No pneumothorax other than the tiny one at the apex" tells of one.
EXCEPT_ONE: Final = re.compile(
    rf"[^.;,\ufffc]*\b{_EXCEPT} [^.;\ufffc]*\b(?:ones?|that|those|left|right|links|rechts|known|"
    rf"bekannten?)\b[^\ufffc]*\Z|[^.;,\ufffc]*,\s*{_EXCEPT} (?:an? |the |eine?[nm]? "
    rf")?(?:{_STILL})\b[^.;,\ufffc]*\W*\Z",
    re.IGNORECASE,
)
NOW: Final = re.compile(r"\b(?:now|today|currently|jetzt|nun|aktuell|heute)\b", re.IGNORECASE)
NEW_ARTICLE: Final = re.compile(r"(?:,|\bund)\s+eine?[nm]?\s", re.IGNORECASE)
PLUS: Final = re.compile(r"\s*[:=]?\s*\+")
# Words between a finding and what is said of it, where no other finding follows them.
ADJUNCT: Final = re.compile(r"(?:with|after|following|given|post|bei|mit|nach)\b", re.IGNORECASE)
# What is there behind "instead of a mass" comes after a comma or a verb.
INSTEAD: Final = re.compile(
    r"instead|in place|in lieu|what|apparent|seeming|supposed|statt|anstatt|anstelle|an stelle|vermeint|"
    r"vermutet|angeblich|schein",
    re.IGNORECASE,
)
CLAUSE: Final = re.compile(
    r",|\b(?:is|are|there|ist|sind|entspr\w+|liegt|liegen|besteht|bestehen|zeigt|zeigen|findet|finden)\b",
    re.IGNORECASE,
)
# Words of sentences that compare with an earlier examination, or tell of one.
PRIOR: Final = re.compile(
    r"\b(?:compar(?:ed|ison|ing)|prior|previous(?:ly)?|unchanged|interval|again (?:seen|noted|demonstrated)|"
    r"since (?:the )?(?:last|prior|previous|\d)|no longer|former(?:ly)?|im vergleich|verglichen|gegenüber|"
    r"vor(?:untersuchung|aufnahme|befund)\w*|unverändert\w*|vorbekannt\w*|frühere[rsnm]?|seit der letzten|"
    r"(?:rückläufig|progredient|regredient)\w*)\b",
    re.IGNORECASE,
)
_SUSPICION: Final = re.compile(
    r"(?:suspicious|suspicion|concerning|worrisome|suggesti\w+)\s+(?:for|of)", re.IGNORECASE
)
_RATHER: Final = re.compile(r"rather than|instead of|as opposed to|(?:an)?statt|anstelle", re.IGNORECASE)
_EXCLUDED: Final = re.compile(r"excluded|ruled out|ausgeschlossen", re.IGNORECASE)
_BUT_NOT: Final = re.compile(r"not|nicht (?:jedoch|aber|hingegen|dagegen)", re.IGNORECASE)
_DENIAL: Final = re.compile(r"no|keine?r?s?|never", re.IGNORECASE)
_DENIED: Final = re.compile(r"(?:[^;:]*\bor\b)?(?:(?!\band\b)[^,;:])*", re.IGNORECASE)
# A text with one of these has its findings there, and none behind a comparison.
FINDINGS_HEADING: Final = re.compile(
    r"(?:\A|\n|[.;]\s)\s*(?:\w+ )?(?:findings?|report|befunde?|\w*beschreibung)(?: \w+){0,3}\s*:",
    re.IGNORECASE,
)
OF_EARLIER_IMAGE: Final = re.compile(
    r"\b(?:it|which|that|(?:prior|previous|earlier|outside|old) [\w-]+(?: [\w-]+)?) (?:had )?(?:show(?:ed|n)|"
    r"demonstrated|revealed|described|reported)\b",
    re.IGNORECASE,
)
HEADING: Final = re.compile(
    r"\s*(?:[^\W\d_](?:[^\W\d_]|[ /]){1,40}:|[A-ZÄÖÜ]{6,}(?=[^\S\n]+[A-ZÄÖÜ][a-zäöü]))"
)


def sides(part: str) -> set[str]:
    """Return the sides that a part of a sentence names: "left", "right"."""
    named = {str(found.lastgroup) for found in _SIDES.finditer(part)}
    return {"left", "right"} if _BILATERAL.search(part) else named


def left_out(part: str) -> Effect | None:
    """Return what a part without a finding says of the one before: that it is there (`none`), or may be."""
    if _ELLIPSIS.fullmatch(PARTS.sub("", part, 1)) is None:
        return None
    if _OPENLY.search(part):
        return "uncertain"
    return "none" if _ELLIPTIC.search(part) else None


def is_contrast(masked: str, cue: Cue) -> bool:
    """Tell whether a cue sets one side against the other: "right but no left", "links, nicht aber rechts"."""
    return cue.effect == "none" and len(sides(masked[cue.start : cue.end])) > 1


@cache
def _cues() -> tuple[re.Pattern[str], tuple[tuple[Effect, Side], ...]]:
    """Return the pattern of all cues, and effect and side of each of its groups."""
    words, signs, kinds = [], [], []
    for effect, side, patterns in _TABLES:
        if own := [one for one in patterns if not _is_bare(one)]:
            words.append((f"({'|'.join(map(_spaced, own))})", (effect, side)))
        if own := [one for one in patterns if _is_bare(one)]:
            signs.append((f"({'|'.join(map(_spaced, own))})", (effect, side)))
    # Where a word begins is asked once a place, not once a cue.
    every = "|".join(group for group, _ in words)
    bare = "|".join(group for group, _ in signs)
    kinds = [kind for _, kind in (*signs, *words)]
    return re.compile(rf"{bare}|(?<!\w)(?=\w)(?:{every})(?!\w)", re.IGNORECASE), tuple(kinds)


def _is_bare(pattern: str) -> bool:
    """Tell whether a pattern begins with a sign, or behind a finding or a blank: it is taken as it is."""
    return pattern[0] in "\\[:" or pattern.startswith((r"(?<=\ufffc)", r"(?<=\s)"))


def _spaced(pattern: str) -> str:
    return pattern.replace(" ?", r"\s*").replace(" ", r"\s+")


def find_cues(sentence: str) -> list[Cue]:
    """Return the cues of a sentence, in order."""
    pattern, kinds = _cues()
    found: list[Cue] = []
    for match in pattern.finditer(sentence):
        effect, side = kinds[(match.lastindex or 1) - 1]
        if _SUSPICION.fullmatch(match.group()) and _is_denied(sentence, found, match.start()):
            effect = "none"
        before = next((cue.effect for cue in reversed(found) if cue.effect in ("uncertain", "end")), "end")
        if before == "uncertain" and _RATHER.match(match.group()):
            effect = "uncertain"
        if _BUT_NOT.fullmatch(match.group()) and any(
            cue.effect == "absent" and _EXCLUDED.search(sentence, cue.start, cue.end) for cue in found
        ):
            effect = "uncertain"
        found.append(Cue(effect, side, *match.span()))
    return found


def _is_denied(sentence: str, before: list[Cue], place: int) -> bool:
    """Tell whether a suspicion belongs to what "no" denies: "no opacity suspicious for pneumonia"."""
    last = before[-1] if before else None
    return (
        last is not None
        and _DENIAL.fullmatch(sentence, last.start, last.end) is not None
        and _DENIED.fullmatch(sentence, last.end, place) is not None
    )
