"""Findings of a report by stated rules, and the labels of CheXpert that follow from them.

Findings are mentions of a vocabulary; cues before and behind them tell their state.

A cue tells whether findings near it are absent, uncertain or not stated: a regular expression for whole
words, of any case, in which a blank matches blanks and line ends. Of several at one position the
first counts.

The ideas are those of Chapman et al., "A simple algorithm for identifying negated findings and diseases in
discharge summaries", J. Biomed. Inform. 2001, and of Irvin et al., "CheXpert", AAAI 2019, which looks for
uncertainty before it looks for negation. docs/research/findings.md states the rules.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache, lru_cache
from itertools import pairwise, takewhile
from typing import Final, Literal, NamedTuple

from training.clinical.text.english_cues import ENGLISH, LIMIT, Effect, Side
from training.clinical.text.german_cues import GERMAN
from training.clinical.text.headings import CONTEXT, heading_line, kind_of_match
from training.clinical.text.language import is_read
from training.clinical.text.sections import section_spans
from training.clinical.text.spelling import written_out
from training.clinical.text.vocabulary import (
    DEVICE,
    compounds,
    forms,
    has_forms,
    has_written_forms,
    other_forms,
)
from training.clinical.text.words import EARLIER, LACKING, RESTRICTED, ill, says_normal, unknown_words

State = Literal["present", "uncertain", "absent"]
# The first of these that one of several mentions of a finding has counts.
STATES: Final[tuple[State, ...]] = ("present", "uncertain", "absent")

# Between findings of a list, such as "effusion and pneumothorax are not seen".
_LISTED: Final = re.compile(r"\b(?:and|or|nor|und|oder|noch|sowie|such\s+as|including)\b|/", re.IGNORECASE)
_ALTERNATIVE: Final = re.compile(r"\b(?:n?or|oder)\b|/", re.IGNORECASE)
_VERB: Final = re.compile(
    r"\b(?:is|are|was|were|has|have|appears?|remains?|shows?|demonstrates?|ist|sind|hat|haben)\b",
    re.IGNORECASE,
)
# "Heart large" is a clause of its own.
_HEART_IS: Final = re.compile(
    r"(?:heart|cor|herz(?:schatten|silhouette)?|mediastinum)\s+(?!enlargement)", re.IGNORECASE
)
# An absent finding behind these words may be there in part, or from before.
_LIMITED: Final = re.compile(
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
_PARTS: Final = re.compile(
    r"[,;)]|(?<=\s)[–-](?=\s)|\.(?=\s)|\b(?:but|yet|while|whereas|though|although|however|während|"
    # "Links jedoch gering" is one part.
    r"(?<!,\slinks\s)(?<!,\srechts\s)(?:aber|jedoch|hingegen|dagegen))\b|\b(?:and|und)\b"
    # "On the right and left" is one part.
    r"(?!(?<=left\sand|ight\sand|inks\sund|chts\sund)\s+(?:on\s+)?(?:the\s+)?(?:left|right|links|rechts))",
    re.IGNORECASE,
)
_STILL: Final = (
    r"remain(?:s|ing)?|still|noch|\d+(?:[.,]\d+)?(?:\s?[cm]m)?|persist\w*|unchanged|stable|present|seen|"
    r"noted|visible|small|tiny|trace|minimal|mild|slight|moderate|large|(?:de|in)creas\w+|improv\w+|wors\w+|"
    r"grown|larger|bigger|smaller|zugenommen|größer|residual|more|less|dense\w*|pronounced|prominent|same|yes|"
    r"conspicuous|extensive|stationary|similar|idem|stationär|konstant|zunehmend|dichter|ausgeprägt\w*|marked|"
    r"verb(?:leibt|lieben)|geblieben|regredient|new|vorhanden|nachweisbar|sichtbar|besteh\w+|ja|severe|"
    r"(?:gering|klein|schmal|diskret|winzig|mäßig|deutlich|unverändert|rückläufig|progredien|neu)\w*"
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
    r"de[rsnm]|die|das|seite|weiter(?:hin)?|fort|er|aber|jedoch|hingegen|dagegen|eine?[rs]?|ist|sind|findet|"
    rf"sich|{_STILL}|{_OPEN})\b)+\W*|.*\b(?:side|lung|ones?|base|left|right|seite)\W+(?:with (?:it|one)|"
    r"(?:is|are|has|have) not|does(?: not)?|has (?:it|one)|nicht|schon)\W*",
    re.IGNORECASE | re.DOTALL,
)
_ELLIPTIC: Final = re.compile(
    rf"\b(?:{_STILL}|there (?:is|are)|eine[rs]?|but|yet|aber|jedoch|dafür|with (?:it|one)|contains?|shows?|"
    r"(?:is|are|has|have) not|does(?: not)?|has (?:it|one)|nicht|schon)\b",
    re.I,
)
# "No pneumothorax is seen, but one cannot be excluded."
_OPEN_ONE: Final = re.compile(
    r"\W*(?:\w+\W+)?\b(?:one|it|this|that|an? \w+ one|einer?|dies\w*)\b[^.;]*\b(?:excluded|ruled out|"
    r"possible|auszuschlie(?:ß|ss)en|ausgeschlossen|möglich)\b",
    re.IGNORECASE,
)
_OPENLY: Final = re.compile(rf"\b(?:{_OPEN})\b", re.IGNORECASE)
_BOTH_SIDES: Final = re.compile(r"\b(?:bilaterally|beidseits|bds|beidseitig)\b", re.IGNORECASE)
# Behind a finding they say that it is there.
_STAYS: Final = re.compile(
    r"\b(?:unchanged|stable|again (?:seen|noted|demonstrated)|persists?|in (?:place|situ|projektion)|in "
    r"(?:[\w\-]+ ){1,3}position|liegend|unverändert|stabil|rückläufig|progredient|vorbekannt|bekannt)\b",
    re.IGNORECASE,
)
_PLURAL: Final = re.compile(
    r"(?:(?:ü|ue)ssen?|(?<![isu])s|en|ces|infiltrate|rundherde|ödeme)$", re.IGNORECASE
)
# A forward scope ends where a new statement begins: after a verb, where a size or an article begins a phrase,
# and at a comma before a phrase with a side, if no "or" of a list follows.
_NEW_STATEMENT: Final = re.compile(
    r"\b(?:is|are|was|were|has|have)\b[^,;]*?(?P<after>,|\band\b)|(?P<size>(?:,|\band\b|"
    rf"\bund\b)(?:\s+(?:and|now|today|heute|jetzt|nun))?\s+{_SIZE}\b){_NO_ALTERNATIVE}|(?P<side>,){_NO_ALTERNATIVE}(?:(?!\b(?:and|"
    rf"und)\b)[^,;])*?\b(?:{_PLACE}|{_STAYS.pattern})\b|"
    # A list ends with the finding behind its "or", and a line with a finding is no part of the next.
    rf"(?:\b(?:n?or|oder|noch)\b|/)[^,;\ufffc]*\ufffc[^,;]*?(?P<last>,){_NO_ALTERNATIVE}|"
    r"(?P<line>(?<=\ufffc)[^\S\n]*\n)(?!\s*(?:(?:and|n?or|und|oder|noch|sowie)\b|[,/(]))",
    re.IGNORECASE | re.DOTALL,
)
# "Without pneumothorax, effusion present": the second of two is there, as it would not be behind "no".
_WITHOUT: Final = re.compile(r"without|ohne", re.IGNORECASE)
_SHOWN: Final = re.compile(
    rf"\ufffc[^,;\ufffc]*(?P<after>,){_NO_ALTERNATIVE}(?:(?!\b(?:and|und)\b)[^,;])*\ufffc (?:is |are "
    r")?(?:\w+ly )?(?:present|seen|noted|visible|vorhanden|sichtbar|nachweisbar|erkennbar)\b",
    re.IGNORECASE,
)
_EXCEPT: Final = (
    r"(?:other than|except(?: for)?|apart from|aside from|save(?: for)?|bar|außer|bis auf|abgesehen von)"
)
# "No pneumothorax other than the tiny one at the apex" tells of one.
_EXCEPT_ONE: Final = re.compile(
    rf"[^.;,\ufffc]*\b{_EXCEPT} [^.;\ufffc]*\b(?:ones?|that|those|left|right|links|rechts|known|"
    rf"bekannten?)\b[^\ufffc]*\Z|[^.;,\ufffc]*,\s*{_EXCEPT} (?:an? |the |eine?[nm]? "
    rf")?(?:{_STILL})\b[^.;,\ufffc]*\W*\Z",
    re.IGNORECASE,
)
_NOW: Final = re.compile(r"\b(?:now|today|currently|jetzt|nun|aktuell|heute)\b", re.IGNORECASE)
_NEW_ARTICLE: Final = re.compile(
    r"(?:,|\b(?:and|und))\s+(?:eine?[nm]?|zwei|mehrere|einzelne|two|several|multiple)\s", re.IGNORECASE
)
_PLUS: Final = re.compile(
    rf"\s*[:=]?\s*(?:\+|(?:yes|ja|positive?|{_SIZE}(?= ?(?:[.,;]|$)))\b)", re.IGNORECASE
)
# Words between a finding and what is said of it, where no other finding follows them.
_ADJUNCT: Final = re.compile(r"(?:with|after|following|given|post|bei|mit|nach)\b", re.IGNORECASE)
# What is there behind "instead of a mass" comes after a comma or a verb.
_INSTEAD: Final = re.compile(
    r"instead|in place|in lieu|what|apparent|seeming|supposed|statt|anstatt|anstelle|an stelle|vermeint|"
    r"vermutet|angeblich|schein",
    re.IGNORECASE,
)
_CLAUSE: Final = re.compile(
    r",|\b(?:is|are|there|ist|sind|entspr\w+|liegt|liegen|besteht|bestehen|zeigt|zeigen|findet|finden)\b",
    re.IGNORECASE,
)
# Words of sentences that compare with an earlier examination, or tell of one.
_PRIOR: Final = re.compile(
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
_HEADING: Final = re.compile(
    r"\s*(?:[^\W\d_](?:[^\W\d_]|[ /]){1,40}:|[A-ZÄÖÜ]{6,}(?=[^\S\n]+[A-ZÄÖÜ][a-zäöü]))"
)
# The answer to "Effusion? No." belongs to the question.
_SENTENCE_END: Final = re.compile(
    # "Vs.", "V.a.", "Anh. f." and "02.05." end nothing; a period before a capital does without a blank.
    r"\b(?:[Vv][Ss]|[VZ](?:[an]|\.\s?[aAnN])?|St(?:\.\sn)?|a\.\s?e|[kKouO]|kl|ca|N(?=\.\s?B\.)|"
    r"v(?=\.\s[A-ZÄÖÜ])|(?i:ev|anh(?:\.\sf|alt\sf)?|(?:hinw|verd)(?:\.\sa)?|evtl|ggf|mögl|fragl|wahrsch))\.|"
    r"(?:\b(?:bzw|sog|max|rel|insb|inkl|resp|re|li|bds|ger|[Ee]rg|[Nn]achw|[Mm]ediast|[mnv])|grenzw|uraerg|\d\.\d\d)"
    r"\.(?=\s[a-zäöü])|(?P<end>[.!](?=\s|$|[A-Z])"
    # "Fraktur der 6. und 7. Rippe".
    r"(?!(?<=\d\.)\s+(?i:rippen?|icr|[bhl]wk|\w*wirbel\w*|interkostal\w*|segment\w*|(?:und|bis)\s+\d)\b)|"
    r"\?(?=\s*$)|(?:(?<=[\w)])|(?<=[\w)]\s))\?(?=\s+[A-Z])(?!\s+(?i:(?:yes|no|none|not|nein|ja|keine?[rs]?|"
    rf"nicht|absent|present|negative|{_SIZE}|{_PLACE})(?: (?:seen|noted|identified|visible|nachweisbar|"
    r"sichtbar))?)\s*(?:[.,;\n]|$))|\n\s*\n|\n(?=\s*(?:[-*•\[(☐☒☑]|\d+[.)]|[A-Z][A-Z /]+:))|"
    rf"\n(?=[^\n:]{{3,40}}\s[-–=]\s)|\n(?={_HEADING.pattern}))"
)
# Its items are what it denies.
_DENIED_LIST: Final = re.compile(
    r"\b(?:no|without|negative|keine?|ohne)\b[^.:\n]{0,30}:(?=\n[ \t]*[-*•])", re.IGNORECASE
)
_BULLET: Final = re.compile(r"\n?[ \t]*[-*•]")
# Marks of keys and values: "Effusion ...... none", cells of a table, "Heart: enlarged / Effusion: no".
_LEADER: Final = re.compile(r"(?<=[^\W\d_])(?:[^\S\n]*(?:(?:[.…_] ?){4,}|…{2,}|-{3,}|[-=]+>)|[^\S\n]+\.{2,})")
_CELL: Final = re.compile(
    r"\|(?P<value>(?=\s*(?:[-–+]|(?:none|no|nil|0|absent|negative|yes|present|positive|normal|enlarged|ja|nein|"
    rf"vergrößert|keine?r?|ohne|(?:not|none|nicht) \w+|{_SIZE}|{_PLACE})\b)[^\w|]*(?:\||$)))?|"
    r"(?<=\s)[/•](?=\s[^\W\d_][\w ]{2,30}(?::|\s[-–=]\s))",
    re.IGNORECASE | re.MULTILINE,
)
_IS_KEY: Final = re.compile(r"\s?:|\s[-–]\s")
_BLANK_LINE: Final = re.compile(r"\n\s*\n")
# Limit of a text, as of its words in the full-text index, and of a sentence: work grows with its square.
MAX_CHARACTERS: Final = 200_000
_MAX_SENTENCE: Final = 1000
_MASK: Final = "\ufffc"
_WITH_NEXT: Final = re.compile(r"(?s)(\W*\w+(?:\W+\w+)?).*")
# A German noun with a comma.
_NOUN: Final = re.compile(r"\b[A-ZÄÖÜ][a-zäöüß]{3,}(?: \w+){0,2},")
_BARE: Final = re.compile(
    rf"\s*(?:(?:focal|acute|overt|frank|displaced|significant|fokale?[rsn]?|akute?[rsn]?)\s+)?{_MASK}+",
    re.IGNORECASE,
)
# Words of what was there once; of other findings that are left out, nobody says that they are not there.
_ONCE: Final = re.compile(
    r"\b(?:history|hx|h/o|prior|previous(?:ly)?|former(?:ly)?|earlier|s/p|status post|after|following|post|"
    r"compar\w+|ago|was|were|anamnes\w*|vorgeschichte|z\. ?n|zn|zustand|st\. ?n|nach|früher\w*|ehemalig\w*|"
    r"vor\w*|im vergleich)\b",
    re.IGNORECASE,
)
_HISTORY: Final = re.compile(
    r"\b(?:history of|hx of|h/o|request|requisition|referr\w+|anamnes\w*|vorgeschichte)\b", re.IGNORECASE
)
_COMMA_OR_NOW: Final = re.compile(rf",|{_NOW.pattern}", re.IGNORECASE)
# Sentences whose findings are kept: reports repeat each other, and the texts of an image its report.
_CACHE: Final = 1 << 14
# Beginnings of cues that are no words.
_SIGNS: Final = ("\\", "[", ":", r"(?<=\ufffc)", r"(?<=\s)")
_NO_FINDING: Final = "No Finding"
# Labels of Irvin et al. 2019; docs/research/findings.md explains them.
_CHEXPERT: Final[dict[str, tuple[str, ...]]] = {
    "Enlarged Cardiomediastinum": ("enlarged cardiomediastinum",),
    "Cardiomegaly": ("cardiomegaly",),
    "Lung Lesion": ("cavitation", "lesion", "mass", "nodule"),
    "Lung Opacity": ("lung opacity",),
    "Edema": ("pulmonary edema", "vascular congestion"),
    "Consolidation": ("consolidation",),
    "Pneumonia": ("pneumonia",),
    "Atelectasis": ("atelectasis",),
    "Pneumothorax": ("pneumothorax",),
    "Pleural Effusion": ("pleural effusion",),
    "Pleural Other": ("pleural thickening",),
    "Fracture": ("fracture",),
    "Support Devices": (DEVICE,),
}
CHEXPERT_LABELS: Final = (_NO_FINDING, *_CHEXPERT)


class Finding(NamedTuple):
    """A mention of a finding of the vocabulary: its state, and its offsets in the text."""

    name: str
    state: State
    start: int
    end: int


class _Cue(NamedTuple):
    """A cue with its offsets in a sentence."""

    effect: Effect
    side: Side
    start: int
    end: int


class _Mention(NamedTuple):
    """A mention in a sentence; `state` is what its form says by itself, if it does."""

    name: str
    state: State | None
    start: int
    end: int


def find_findings(text: str) -> tuple[Finding, ...]:
    """Return the findings that a report or a sentence of one mentions, in order of their offsets.

    Mentions of the patient's history, of an indication, a comparison or a condition are left out. Of a text
    with more than `MAX_CHARACTERS`, its beginning is read.
    """
    text = text[:MAX_CHARACTERS]
    if not has_forms(text) or not is_read(text, by_script=False):
        return ()
    return tuple(
        one._replace(start=offset + one.start, end=offset + one.end)
        for offset, sentence in _stated_sentences(text)
        for one in _in_sentence(sentence)
    )


def image_states(findings: Iterable[Finding]) -> dict[str, State]:
    """Return the state of each finding over all of its mentions: present before uncertain before absent."""
    states: dict[str, State] = {}
    for finding in findings:
        states[finding.name] = min(finding.state, states.get(finding.name, finding.state), key=STATES.index)
    return states


def chexpert_labels(text: str) -> dict[str, State]:
    """Return the labels that a report mentions, with their states, in the order of `CHEXPERT_LABELS`.

    "No Finding" is present where the text calls something normal or denies something, every word of it is
    understood, and no finding of the vocabulary is present or uncertain; otherwise it is left out. Support
    devices count as findings here, unlike in the labeler of CheXpert. A text that is not in English or German
    has no labels.
    """
    if not is_read(text, by_script=False):
        return {}
    stated = image_states(find_findings(text))
    labels: dict[str, State] = {}
    for label, findings in _CHEXPERT.items():
        if states := [stated[name] for name in findings if name in stated]:
            labels[label] = min(states, key=STATES.index)
    if any(state != "absent" for state in stated.values()):
        return labels
    read = [_understood(sentence) for _, sentence in _stated_sentences(text)]
    is_normal = any(denies for _, denies in read) and not any(unread for unread, _ in read)
    return {_NO_FINDING: "present", **labels} if is_normal else labels


def unread_words(text: str) -> tuple[str, ...]:
    """Return the words and phrases that keep `chexpert_labels` from understanding a text, each once."""
    read = (_understood(sentence) for _, sentence in _stated_sentences(text))
    return tuple(dict.fromkeys(word for unread, _ in read for word in unread))


def prior_sentences(text: str) -> tuple[tuple[int, int], ...]:
    """Return the offsets of sentences that compare the image with an earlier examination, or tell of one."""
    return tuple(
        (offset, offset + len(sentence))
        for offset, sentence in _stated_sentences(text)
        if _PRIOR.search(sentence)
    )


def are_prior(text: str, offsets: Sequence[int]) -> list[bool]:
    """Tell which offsets of a text are in a sentence of `prior_sentences`."""
    spans = prior_sentences(text) if offsets else ()
    return [any(start <= offset < end for start, end in spans) for offset in offsets]


def _stated_sentences(text: str) -> Iterator[tuple[int, str]]:
    """Give the sentences in which a report describes the image, each with its offset.

    Sections such as INDICATION, HISTORY or COMPARISON and sentences in other languages are left out.
    """
    # Marks for the leaders and bars between keys and values; here and below, all offsets stay.
    text = _LEADER.sub(lambda dots: f":{' ' * (len(dots[0]) - 1)}", text[:MAX_CHARACTERS])
    text = _CELL.sub(lambda bar: ";" if bar["value"] is None else ":", text)
    for begin, stop in _stated_parts(text):
        part = text[begin:stop]
        for start, end in _sentences(part):
            sentence = part[start:end].strip()
            if not sentence or not is_read(sentence):
                continue
            offset = begin + part.index(sentence, start)
            if _DENIED_LIST.search(sentence):
                sentence = _BULLET.sub(lambda bullet: f",{' ' * (len(bullet[0]) - 1)}", sentence)
                sentence = sentence.replace("\n", ";")
            yield offset, sentence


def _stated_parts(text: str) -> Iterator[tuple[int, int]]:
    """Give where parts begin and end that may describe the image.

    Sections of history and technique end at any "Word:" and, in a text without a section of findings, at a
    blank line as well.
    """
    start = heading = 0
    sections = section_spans(text)
    has_findings = any(section.kind == "findings" and section.heading for section in sections)
    for section in sections:
        # "Correction to prior exam: effusion" is a sentence.
        begins = start == heading or text[:heading].rstrip(" \t")[-1:] in "\n.!?"
        if begins and section.kind in CONTEXT:
            yield start, heading
            part = text[heading : section.end]
            ends = [at for at, end in _sentences(part) if _is_other_heading(part[at:end].strip())][:1]
            if not has_findings:
                blanks = _BLANK_LINE.finditer(part.rstrip())
                ends += [blank.end() for blank in blanks if part[blank.start() - 1] != ":"][:1]
            start = heading + min(ends, default=len(part))
        heading = section.end
    yield start, len(text)


def _is_other_heading(sentence: str) -> bool:
    listed = heading_line().match(sentence)
    return _HEADING.match(sentence) is not None and (listed is None or kind_of_match(listed) not in CONTEXT)


def _sentences(text: str) -> Iterator[tuple[int, int]]:
    """Give where sentences begin and end, with the marks at their ends."""
    start = 0
    for end in (*(match.end() for match in _SENTENCE_END.finditer(text) if match["end"]), len(text)):
        if _BULLET.match(text, end) and _DENIED_LIST.search(text, start, end + 9):
            continue
        while end - start > _MAX_SENTENCE:
            cut = text.rfind(" ", start + 1, start + _MAX_SENTENCE)
            cut = start + _MAX_SENTENCE if cut < 0 else cut
            yield start, cut
            start = cut
        if start < end:
            yield start, end
        start = end


@lru_cache(_CACHE)
def _in_sentence(sentence: str) -> tuple[Finding, ...]:
    written = written_out(sentence)
    mentions = _mentions(written.text)
    if not mentions:
        return ()
    return tuple(
        Finding(one.name, one.state or _state(effects), *written.span(one.start, one.end))
        for one, _, effects in _Reading(written.text, mentions).effects
        if one.name and "unstated" not in effects and not ("past" in effects and one.name != DEVICE)
    )


@lru_cache(_CACHE)
def _understood(sentence: str) -> tuple[tuple[str, ...], bool]:
    """Return the words of a sentence that are not understood, and whether it denies anything."""
    plain = written_out(sentence).text
    read = _Reading(plain, _mentions(plain))
    masked = read.masked
    # What is left out by "evaluate for" or "if" may be there; what was there once is known.
    unread = [
        plain[one.start : one.end]
        for one, _, effects in read.effects
        if (effects & {"unstated", "past"} and one.name != DEVICE and not _ONCE.search(plain))
        or (not one.name and "past" not in effects and _state(effects) != "absent")
    ]
    # "No normal lung", "the right side was not imaged", "normal?": what is said of no finding is said of what
    # should be there. Of several denials in front of a finding, the nearest is about it.
    about: set[_Cue] = set()
    for one, own, _ in read.effects:
        if one.state != "absent":
            before = [cue for cue in own if cue.effect == "absent" and cue.end <= one.start]
            about.update(before[-1:] + [cue for cue in own if cue.start == one.end] or own)
    unread += (
        _WITH_NEXT.sub(r"\1", plain[cue.start :])
        for cue in read.cues
        if (cue.effect not in ("none", "end", "past") or read.is_contrast(cue))
        and cue not in about
        and LACKING.match(plain, cue.start) is None
    )
    is_normal = says_normal(plain)
    rest = _masked(plain, [*read.mentions, *read.cues], " ")
    heading = _HEADING.match(sentence)
    if heading is not None and not any(one.start < heading.end() for one in read.mentions):
        # "Image quality: normal."
        unnamed = heading_line().match(plain) is None
        is_normal &= not (unnamed and any(unknown_words(rest[: heading.end()], describes=False)))
        rest = " " * heading.end() + rest[heading.end() :]
    denied = any((one.state or _state(own)) == "absent" and "past" not in own for one, _, own in read.effects)
    denies = (denied or is_normal) and EARLIER.search(plain) is None
    # "Small" tells of a finding, and of none in "no effusion, the lungs are small".
    unknown = (
        word
        for start, end in _parts(masked)
        for word in unknown_words(
            rest[start:end],
            describes=bool(read.mentions)
            and (_MASK in masked[start:end] or not _VERB.search(masked, start, end)),
        )
    )
    return (*unread, *RESTRICTED.findall(plain), *unknown), denies


def _state(effects: set[Effect]) -> State:
    return "uncertain" if "uncertain" in effects else "absent" if "absent" in effects else "present"


def _mentions(sentence: str) -> list[_Mention]:
    """Return all mentions in order; those within a longer one of another form are left out."""
    if not has_written_forms(sentence):
        return []
    matches = [
        _Mention(name, state, *match.span())
        for state, name, pattern in forms()
        for match in pattern.finditer(sentence)
    ]
    matches += [_Mention(name, None, start, end) for name, start, end in compounds(sentence)]
    matches += [_Mention("", None, *match.span()) for match in other_forms().finditer(sentence)]
    kept: list[_Mention] = []
    for mention in sorted(matches, key=lambda mention: (mention.start, -mention.end)):
        longest = kept[-1] if kept else None
        same = longest is not None and mention[2:] == longest[2:] and mention.name != longest.name
        if longest is None or mention.end > longest.end or same:
            kept.append(mention)
    # "Effusion: no effusion" says one thing of it.
    keys = [
        one for one, after in pairwise(kept) if one.name == after.name and _IS_KEY.match(sentence, one.end)
    ]
    return [mention for mention in kept if mention.name and mention not in keys]


def _masked(sentence: str, spans: Iterable[_Mention | _Cue], mask: str) -> str:
    for span in spans:
        sentence = sentence[: span.start] + mask * (span.end - span.start) + sentence[span.end :]
    return sentence


class _Reading:
    """What the cues of a sentence say of its mentions.

    Attributes:
        mentions: The mentions, and those of what is ill without a name, which may be what a cue is about.
        masked: The sentence with a mask for each letter of a mention.
        effects: Each mention with the cues whose scope it is in, and their effects.
    """

    def __init__(self, sentence: str, mentions: Sequence[_Mention]) -> None:
        self.sentence = sentence
        named = (_Mention("", None, *one.span()) for one in ill().finditer(sentence))
        others = [
            ill for ill in named if all(ill.end <= one.start or one.end <= ill.start for one in mentions)
        ]
        self.mentions = sorted((*mentions, *others), key=lambda one: one.start)
        self.masked = _masked(sentence, self.mentions, _MASK)
        self.cues = _find_cues(self.masked)
        self.scopes: list[list[_Cue]] = [[] for _ in self.mentions]
        for side, in_scope in (("behind", self._behind), ("before", self._before)):
            for number, cue in enumerate(self.cues):
                if cue.effect not in ("none", "end") and cue.side in (side, "both"):
                    for at in in_scope(number):
                        self.scopes[at].append(cue)
        self.effects = [
            (mention, own, self._effects(mention, own))
            for mention, own in zip(self.mentions, self.scopes, strict=True)
        ]

    def _effects(self, mention: _Mention, own: Sequence[_Cue]) -> set[Effect]:
        effects: set[Effect] = {cue.effect for cue in own}
        if "absent" in effects:
            effects |= self._on_other_sides(mention, own)
            if "none" in effects:
                effects -= {"absent", "past"}
            elif _LIMITED.search(self.masked, 0, mention.start):
                effects.add("uncertain")
        return effects

    def is_contrast(self, cue: _Cue) -> bool:
        """Tell whether a cue sets one side against the other: "right but no left", "nicht aber rechts"."""
        return cue.effect == "none" and len(_sides(self.masked[cue.start : cue.end])) > 1

    def _on_other_sides(self, mention: _Mention, own: Sequence[_Cue]) -> set[Effect]:
        """Return what else a sentence says of an absent finding: `none` where it is there on another side.

        "Effusion on the right, resolved on the left", "no effusion on the right, small on the left".
        """
        masked = self.masked
        contrasts = [cue for cue in self.cues if cue.end <= mention.start and self.is_contrast(cue)]
        if _EXCEPT_ONE.match(masked, mention.end) or any(
            _MASK not in masked[cue.end : mention.start] for cue in contrasts
        ):
            return {"none"}
        parts = _parts(masked)
        home = next(part for part in parts if part[0] <= mention.start < part[1])
        after = (masked[slice(*part)] for part in parts[parts.index(home) + 1 :])
        later = list(takewhile(lambda text: _MASK not in text, after))
        # "No pneumothorax on the prior; today there is a small one."
        said = {_left_out(one) for one in later if _NOW.search(one) and not _STAYS.search(one)}
        if any(_OPEN_ONE.match(text) for text in later):
            said.add("uncertain")
        absent = [cue.start for cue in own if cue.effect == "absent"]
        denied_in = {part for part in parts if any(part[0] <= start < part[1] for start in absent)}
        # "Effusion, absent on the left, is small on the right."
        named = _sides(masked[slice(*home)]) or _sides("".join(masked[slice(*part)] for part in denied_in))
        if named:
            said |= {_left_out(text) for text in later if _differ(named, text)}
            if all(
                part != home and _MASK not in masked[slice(*part)] and _differ(named, masked[slice(*part)])
                for part in denied_in
            ):
                said.add("none")
        return {effect for effect in said if effect is not None}

    def _behind(self, number: int) -> Iterator[int]:
        """Give the mentions behind a cue that are in its scope."""
        masked, mentions = self.masked, self.mentions
        cue, end = self.cues[number], len(masked)
        for other in self.cues[number + 1 :]:
            between = any(cue.end <= mention.start < other.start for mention in mentions)
            ends = between or cue.effect == "past"
            if other.effect == "end" or (other.side != "before" and other.effect != "none" and ends):
                end = other.start
                break
        first = min((mention.start for mention in mentions if mention.start >= cue.end), default=end)
        instead = _INSTEAD.match(masked, cue.start, cue.end)
        if instead and (verb := _CLAUSE.search(masked, first, end)):
            end = verb.start()
        # "No cyanosis, heart enlarged", "keine Zyanose, Erguss links".
        apart = "," in masked[cue.end : first]
        first = cue.end if apart and _NOUN.search(masked, cue.end, first) else first
        new = self._new_statement(first, end)
        if (
            new is None
            and (shown := _SHOWN.search(masked, first, end))
            and (cue.effect == "uncertain" or _WITHOUT.fullmatch(masked, cue.start, cue.end))
        ):
            new = shown.start("after")
        # "Possible edema and small effusion" leaves both uncertain.
        if new is not None and (cue.effect == "absent" or not masked[new].isalpha()):
            end = new
        if cue.effect in ("unstated", "past"):
            is_history = _HISTORY.search(masked, cue.start, cue.end)
            stop = (_NOW if is_history else _COMMA_OR_NOW).search(masked, cue.end, end)
            end = end if stop is None else stop.start()
        for at, mention in enumerate(mentions):
            if cue.end <= mention.start < end:
                gap = masked[mentions[at - 1].end : mention.start]
                if (mention.start > first or apart) and (
                    # "Instead of a nodule a scar."
                    (instead and at and not _LISTED.search(gap))
                    or _PLUS.match(masked, mention.end)
                    # A clause of its own, such as "the heart is enlarged".
                    or _VERB.search(self.sentence, mention.start, mention.end)
                    or _HEART_IS.match(self.sentence, mention.start, mention.end)
                    or (at and self._begins_list(mention, mentions[at - 1], cue, end))
                ):
                    return
                yield at

    def _begins_list(self, mention: _Mention, before: _Mention, cue: _Cue, end: int) -> bool:
        """Tell whether a mention behind a comma or an article is not of the list before it.

        "No pneumothorax, pacemaker" and "keine Pneu, eine Fraktur" end the list, "no effusion, catheter or
        nodule" and "kein Anhalt für Erguss, eine Fraktur" do not.
        """
        gap = self.masked[before.end : mention.start]
        is_device = mention.name == DEVICE != before.name and "," in gap
        is_new = _NEW_ARTICLE.search(gap) and " " not in self.masked[cue.start : cue.end]
        return bool(is_device or is_new) and not _ALTERNATIVE.search(self.masked, before.end, end)

    def _new_statement(self, first: int, end: int) -> int | None:
        """Return where a new statement begins between a first finding and an end, or None."""
        match = _NEW_STATEMENT.search(self.masked, first, end)
        if match is None:
            return None
        start = match.start(match.lastgroup or 0)
        return None if match.lastgroup == "side" and self._ends_list(first, start, end) else start

    def _ends_list(self, first: int, comma: int, end: int) -> bool:
        """Tell whether a phrase with a side behind a comma is the last of a list, whose side is that of all.

        "No effusion, infiltrate, pneumothorax on the left" is a list of bare findings. Of two, the second is
        one of its own, but on both sides and with the number of the first: "no infiltrate, effusion
        bilaterally".
        """
        masked = self.masked
        last = _BARE.match(masked, comma + 1, end)
        if last is None or _STAYS.search(masked, last.end(), end):
            return False
        if "," in masked[first:comma]:
            return True
        head = _BARE.match(masked, first, comma)
        if head is None or _BOTH_SIDES.search(masked, last.end(), end) is None:
            return False
        is_plural = [_PLURAL.search(self.sentence, *one.span()) is not None for one in (head, last)]
        return is_plural[0] == is_plural[1]

    def _before(self, number: int) -> Iterator[int]:
        """Give the mentions before a cue that are in its scope: the nearest, and the list that it ends."""
        masked, mentions = self.masked, self.mentions
        cue, start = self.cues[number], 0
        for other in reversed(self.cues[:number]):
            value = masked[other.start : other.end] == ":" and masked[: other.start].rstrip().endswith(_MASK)
            # "Edema in a film with low volumes cannot be excluded."
            adds = (
                _ADJUNCT.match(masked, other.start, other.end) and _MASK not in masked[other.end : cue.start]
            )
            if (other.effect == "end" and not value and not adds) or (
                other.side == "before" and other.effect != "none"
            ):
                start = other.end
                break
        own = [at for at, one in enumerate(mentions) if start <= one.start and one.end <= cue.start]
        if not own:
            return
        # "Cardiomegaly, and nodule versus scar" is uncertain of the nodule alone.
        if cue.side != "both" or "," not in masked[mentions[own[-1]].end : cue.start]:
            yield own[-1]
        if cue.side == "both":
            return
        # "Erguss, Stauung, Infiltrat: keine."
        listed = masked[cue.start] in ":="
        for after, at in pairwise(reversed(own)):
            gap = masked[mentions[at].end : mentions[after].start]
            is_listed = _LISTED.search(gap) is not None
            listed = listed or is_listed
            joined = is_listed or ("," in gap and ":" not in gap)
            if not listed or not joined or _VERB.search(gap) or self.scopes[at]:
                return
            yield at


def _parts(masked: str) -> list[tuple[int, int]]:
    """Return where the parts of a sentence begin and end, each of which may tell of a side of its own."""
    bounds = (0, *(match.start() for match in _PARTS.finditer(masked)), len(masked))
    return [(start, end) for start, end in pairwise(bounds) if start < end]


def _sides(part: str) -> set[str]:
    """Return the sides that a part of a sentence names: "left", "right"."""
    named = {str(match.lastgroup) for match in _SIDES.finditer(part)}
    return {"left", "right"} if _BILATERAL.search(part) else named


def _differ(named: set[str], part: str) -> bool:
    return bool(other := _sides(part)) and not named <= other


def _left_out(part: str) -> Effect | None:
    """Return what a part without a finding says of the one before: that it is there (`none`), or may be."""
    if _ELLIPSIS.fullmatch(_PARTS.sub("", part, 1)) is None:
        return None
    if _OPENLY.search(part):
        return "uncertain"
    return "none" if _ELLIPTIC.search(part) else None


@cache
def _cues() -> tuple[re.Pattern[str], tuple[tuple[Effect, Side], ...]]:
    """Return the pattern of all cues, and effect and side of each of its groups."""
    words: dict[str, tuple[Effect, Side]] = {}
    signs: dict[str, tuple[Effect, Side]] = {}
    for kind, *patterns in (*GERMAN, *ENGLISH):
        for is_sign, groups in ((False, words), (True, signs)):
            # A pattern that begins with a sign, or behind a finding or a blank, is taken as it is.
            own = [one for one in patterns if one.startswith(_SIGNS) == is_sign]
            if own:
                groups[f"({'|'.join(own)})".replace(" ?", r"\s*").replace(" ", r"\s+")] = kind
    # Where a word begins is tested once an offset, not once a cue.
    pattern = rf"{'|'.join(signs)}|(?<!\w)(?=\w)(?:{'|'.join(words)})(?!\w)"
    return re.compile(pattern, re.IGNORECASE), (*signs.values(), *words.values())


def _find_cues(sentence: str) -> list[_Cue]:
    """Return the cues of a sentence, in order."""
    pattern, kinds = _cues()
    cues: list[_Cue] = []
    for match in pattern.finditer(sentence):
        effect, side = kinds[(match.lastindex or 1) - 1]
        # "No opacity suspicious for pneumonia."
        if (
            cues
            and _SUSPICION.fullmatch(match.group())
            and _DENIAL.fullmatch(sentence, cues[-1].start, cues[-1].end)
            and _DENIED.fullmatch(sentence, cues[-1].end, match.start())
        ):
            effect = "none"
        before = next((cue.effect for cue in reversed(cues) if cue.effect in ("uncertain", "end")), "end")
        if before == "uncertain" and _RATHER.match(match.group()):
            effect = "uncertain"
        if _BUT_NOT.fullmatch(match.group()) and any(
            cue.effect == "absent" and _EXCLUDED.search(sentence, cue.start, cue.end) for cue in cues
        ):
            effect = "uncertain"
        cues.append(_Cue(effect, side, *match.span()))
    return cues
