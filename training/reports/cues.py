"""Cues: words that tell whether findings near them are absent, uncertain or not stated at all.

A cue is a regular expression for whole words, of any case, in which a blank matches blanks and line ends.
Where several begin at one place, the one that stands first counts; the words of a cue are part of no other.
docs/findings.md says what they do.
"""

import re
from functools import cache
from typing import Final, Literal, NamedTuple

# Effects of a cue on findings: `unstated` leaves them out, `none` covers words that would be other cues, and
# `end` is where the scope of others ends.
Effect = Literal["none", "unstated", "uncertain", "absent", "end"]
# Places of those findings: behind the cue, before it, or on both sides.
Side = Literal["behind", "before", "both"]


class Cue(NamedTuple):
    """A cue at its place in a sentence."""

    effect: Effect
    side: Side
    start: int
    end: int


_DEGREES: Final = (
    "significant significantly appreciable appreciably interval definite definitely major substantial "
    "substantially acute other further large great greatly much relevant notable overall any the yet "
    "completely fully entirely been"
)
_HOW_MUCH: Final = rf"(?:(?:{'|'.join(_DEGREES.split())}|short term) )*"
_ISNT: Final = r"(?:not|(?:is|are|was|were|does|do|did|has|have)n['’]t)"
_CANNOT: Final = r"(?:cannot|can not|can['’]t)"
_NOT: Final = rf"(?:{_CANNOT}|could not|couldn['’]t|{_ISNT})"
_SEEN: Final = (
    r"(?:seen|identified|visuali[sz]ed|visible|present|evident|noted|detected|demonstrated|appreciated|found|"
    r"apparent|observed|shown|recogni[sz]ed|discernible|in evidence|suspected)"
)
_BE: Final = r"(?:is|are|was|were|has been|have been|remains?|appears?|seems?)"
_LIMIT: Final = (
    r"(?:new|large|larger|sizeable|sizable|increasing|enlarging|worsening|progressive|additional|other)"
)
_AT_END: Final = r"(?= ?(?:[.,;)?]|$|and\b|but\b|at\b|in\b|on\b|present\b))"

_CUES: Final[tuple[tuple[Effect, Side, tuple[str, ...]], ...]] = (
    (
        "none",
        "behind",
        (
            r"not only",
            r"(?:ohne|keine?) (?:\w+ )?(?:änderung|veränderung|befundänderung)",
            r"(?:not|never) (?:without|free of|absent)",
            rf"(?:no|not|without) {_HOW_MUCH}(?:changed?|differen(?:t|ce))",
            rf"(?:no|not|without) {_HOW_MUCH}(?:increased?|decreased?|improve(?:d|ment)|"
            r"worse(?:ned|ning)?|larger|progress(?:ed|ion)|enlarge(?:d|ment)|bigger|smaller)",
            rf"not {_SEEN} (?:on|in|at) (?:(?:the|any) )?(?:prior|previous|earlier|old)",
            rf"(?:no|{_ISNT}) {_HOW_MUCH}(?:resolved|resolution|cleared|clearing|removed)",
            r"to (?:suggest|indicate|support)",
            r"without (?:prior|previous|comparison)",
            r"(?:partial|incomplete|near complete|ensure|document|confirm|until) (?:(?:complete|full|the) )*"
            r"(?:resolution|clearing)(?: of)?",
            r"(?:partially|incompletely|nearly|almost) (?:completely )?(?:resolved|cleared)",
            r"(?:consistent|compatible|keeping|associated) with(?! the (?:prior|previous))",
        ),
    ),
    ("uncertain", "behind", (r"\A(?:un|less )likely\b", r"(?:less likely|unlikely)(?= \ufffc)")),
    ("absent", "behind", (rf"no longer {_SEEN} {_BE}", rf"\Anot {_SEEN} {_BE}")),
    (
        "uncertain",
        "before",
        (
            r"nicht (?:\w+ )?(?:auszuschlie(?:ß|ss)en|ausgeschlossen)",
            rf"{_NOT} (?:be |been )?{_HOW_MUCH}(?:excluded|ruled out)",
            rf"{_CANNOT} be (?:definitely|definitively|clearly|well|optimally|reliably) {_SEEN}",
            rf"(?:{_BE} )?not (?:definitely|definitively|clearly|well|optimally|reliably) {_SEEN}",
            rf"(?:{_BE}|(?:may|might|could|would) be) (?:\w+ly )?(?:considered )?(?:a )?(?:possible|"
            rf"suspected|questioned|"
            r"questionable|uncertain|equivocal|unlikely|less likely|doubtful|doubted|a possibility|"
            r"a concern|a consideration|"
            r"in the differential)(?! that\b)",
            rf"{_BE} (?:\w+ )?(?:likely|probable){_AT_END}",
            rf"(?:possible|likely|questioned|suspected|probable){_AT_END}",
            rf"(?:may|might|could) not be {_SEEN}",
            rf"(?:may|might|could) be {_SEEN}",
            # Behind a finding: "effusion, if any", not "small, if any, effusion".
            r"[, ](?<=\ufffc[, ]) ?if (?:any|present)\b",
            r"(?:is )?(?:less likely|unlikely)(?! (?:to|that)\b)",
            r"(?:must|should|needs? to) be (?:excluded|ruled out)",
            r"\? ?$",
        ),
    ),
    (
        "uncertain",
        "both",
        (
            r"(?:difficult|hard|impossible) to (?:\w+ )?(?:exclude|rule out)",
            r"(?:versus|vs\.?)",
            r"if any",
            r"favou?red over",
        ),
    ),
    (
        "uncertain",
        "behind",
        (
            r"kein(?:e|er|en|es|em)? (?:sicher|eindeutig|neu|gro(?:ß|ss))(?:e|er|en|es|em)?",
            r"(?:v\. ?a\.|verdacht auf|dd)",
            r"(?:möglich|fraglich|wahrscheinlich|vermutlich|verdächtig)(?:e|er|en|es|em)?",
            rf"{_NOT} {_HOW_MUCH}(?:exclude|rule out|excluded|excluding)",
            r"(?:no|without|not) (?:any )?(?:definite|definitive|definitely|definitively|convincing|"
            r"conclusive|certain)"
            r"(?: (?:radiographic|sonographic|ct))?(?: (?:evidence|signs?))?(?: of)?",
            r"(?:no|without) (?:(?:evidence|signs?) (?:of|for) )?(?:(?:a|any) )?"
            rf"{_LIMIT}(?! than)",
            r"possib(?:le|ly|ility of)",
            r"probab(?:le|ly)",
            r"low probability (?:of|for)",
            r"(?:un|less )?likely(?: that(?: (?:this|it|there))?)?(?: (?:is|are|represents?))?",
            r"presum(?:ed|ably|ptive)",
            r"(?:perhaps|maybe|potential|potentially)",
            r"suspect(?:ed|s)?",
            r"suspicio(?:us|n) (?:for|of)",
            r"concern(?:ing)? (?:for|of)",
            r"worrisome for",
            r"question(?:able|ed)?(?: of)?",
            r"(?:equivocal|borderline|doubtful|doubt)",
            r"(?:may|might|could)",
            r"whether(?: there (?:is|are))?",
            r"suggest(?:s|ed|ing|ive|ion)?(?: of)?",
            r"differential(?: \w+)?(?: includes?)?",
            r"consider(?:ed|ation of)?",
            r"favou?r(?:s|ed|ing)?",
            r"\?(?=\S)",
            r"\? ",
        ),
    ),
    (
        "unstated",
        "behind",
        (
            r"(?:past |known |clinical |prior )*(?:history|hx) of",
            r"h/o",
            r"(?:z\. ?n\.|zustand nach|anamnestisch)",
            r"in the absence of",
            r"(?:treated|treatment|therapy|surgery|removal|placement|insertion|drainage|thoracentesis|"
            r"pleurodesis|biopsy|resection) for",
            r"(?:s/p|status post) (?:\w+ ){0,3}(?:drainage|evacuation|thoracentesis|biopsy|resection|"
            r"repair) of",
            r"correlat(?:e|ion)(?: \w+)?(?: for| with)",
            r"(?:evaluat|assess|check|look|screen|monitor)(?:e|ing|ion|ment)?(?: (?:for|of))?",
            r"(?:rule|ruling) out",
            r"r/o",
            r"(?:exclude|excluding)",
            r"(?:when |as |in )?compar(?:ed|ison|ing) (?:to|with)",
            r"(?:than|since) (?:on )?(?:the )?(?:prior|previous)",
            r"(?:if(?: there (?:is|are))?|should|in case of|at risk (?:of|for)|risk (?:of|for)|to prevent)",
        ),
    ),
    (
        "absent",
        "before",
        (
            rf"(?:{_BE} )?(?:now )?no longer {_SEEN}",
            rf"(?:can |could )?no longer be {_SEEN}",
            rf"{_CANNOT} be {_HOW_MUCH}{_SEEN}",
            rf"(?:{_BE} )?{_ISNT} {_HOW_MUCH}{_SEEN}",
            r"(?:has|have|had|is|are|was|were) (?:(?!not |never |nearly |almost |partially |incompletely |"
            r"partly |largely )\w+ ){0,3}(?:resolved|cleared|"
            r"disappeared|removed|gone|lacking|absent|"
            r"excluded|ruled out(?! for\b))",
            rf"(?:resolved|removed|absent|excluded|ruled out){_AT_END}",
            rf"{_BE} within (?:the )?(?:normal limits|limits of normal)",
            rf"{_BE} none",
            r"nicht (?:mehr )?(?:\w+ )?(?:nachweisbar|nachgewiesen|abgrenzbar|erkennbar|sichtbar|vorhanden)",
            r"(?:ist |sind )?ausgeschlossen",
            r": ?(?:none|no|absent|negative|nil)(?= ?(?:[.,;)]|$))",
            r"\(-\)",
            r"liegt(?: \w+)? nicht vor",
        ),
    ),
    (
        "absent",
        "behind",
        (
            r"no longer",
            rf"(?:no|nothing|without|kein(?:e|er|en|es|em)?|ohne|neither|nor|never|lacks?|{_ISNT}|absent|resolved|denies)",
            r"(?:free|clear) (?:of|from)",
            r"(?:negative|unremarkable) (?:\w+ )?for",
            r"ruled out for",
            r"(?:absence|lack|disappearance) of",
            r"(?:resolution|clearing|removal) of",
            r"fail(?:s|ed)? to",
            r"rather than",
            r"(?:mimic|simulat)(?:s|es|ing)",
        ),
    ),
    (
        "end",
        "behind",
        (
            r"(?:but|aber|jedoch|allerdings|however|although|though|except|besides|whereas|while|yet|instead|which|with|showing)",
            r"(?:other than|apart from|aside from)",
            r"there (?:is|are|was|were|has been|have been)",
            r"(?:and|,) (?:the|there)",
            r"[;:]",
        ),
    ),
)
# Between findings of a list, such as "effusion and pneumothorax are not seen".
LISTED: Final = re.compile(r"\b(?:and|or|nor|und|oder)\b|/", re.IGNORECASE)
VERB: Final = re.compile(
    r"\b(?:is|are|was|were|has|have|appears?|remains?|shows?|demonstrates?)\b", re.IGNORECASE
)
# An absent finding behind these words may be there in part, or from before.
LIMITED: Final = re.compile(rf"\b{_LIMIT}(?:\s+[\w\-]+)?\s+$", re.IGNORECASE)
_NO_ALTERNATIVE: Final = r"(?!.*(?:\bn?or\b|\boder\b|/))"
_SIZE: Final = (
    r"(?:an?|small|tiny|trace|minimal|mild|slight|moderate|large|severe|marked|stable|unchanged|persistent|new|old"
    r"|(?:klein|winzig|gro(?:ß|ss)|gering|geringgradig|mäßig|mässig|mäßiggradig|deutlich|ausgeprägt|massiv|diskret"
    r"|minimal|leicht|schmal|neu|alt|stabil|unverändert)(?:e[rsnm]?)?)"
)
_PLACE: Final = (
    r"(?:left|right|bilateral(?:ly)?|links|rechts|beidseits|bds|beidseitig(?:e[rsnm]?)?"
    r"|(?:links|rechts)(?:seitig|basal)(?:e[rsnm]?)?)"
)
# A forward scope ends where a new statement begins: after a verb, where a size or an article begins a phrase,
# and at a comma before a phrase with a side, if no "or" of a list follows.
NEW_STATEMENT: Final = re.compile(
    r"\b(?:is|are|was|were|has|have)\b[^,;]*?(?P<after>,|\band\b)"
    rf"|(?P<size>(?:,|\band\b|\bund\b)(?:\s+and)?\s+{_SIZE}\b){_NO_ALTERNATIVE}"
    rf"|(?P<side>,){_NO_ALTERNATIVE}(?:(?!\b(?:and|und)\b)[^,;])*?\b{_PLACE}\b",
    re.IGNORECASE | re.DOTALL,
)
UNSTATED_HEADING: Final = re.compile(
    r"\s*(?:clinical(?: \w+)?|history|indications?|reason(?: for [\w ]+)?|comparisons?|technique|"
    r"exam(?:ination)?|procedure|study|views?)\s*:",
    re.IGNORECASE,
)
HEADING: Final = re.compile(r"\s*[A-Za-z][A-Za-z /]{2,40}:")


@cache
def _cues() -> tuple[re.Pattern[str], tuple[tuple[Effect, Side], ...]]:
    parts = [f"({'|'.join(_whole(one) for one in patterns)})" for _, _, patterns in _CUES]
    return re.compile("|".join(parts), re.IGNORECASE), tuple((effect, side) for effect, side, _ in _CUES)


def _whole(pattern: str) -> str:
    """Bound a pattern of words by the ends of words; one that begins with a sign is taken as it is."""
    spaced = pattern.replace(" ?", r"\s*").replace(" ", r"\s+")
    return spaced if pattern[0] in "\\[:" else rf"(?<!\w)(?:{spaced})(?!\w)"


def find_cues(sentence: str) -> list[Cue]:
    """Return the cues of a sentence, in order."""
    pattern, kinds = _cues()
    found = []
    for match in pattern.finditer(sentence):
        effect, side = kinds[(match.lastindex or 1) - 1]
        found.append(Cue(effect, side, *match.span()))
    return found
