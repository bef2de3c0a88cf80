"""Headings of reports in English and German, by what is under them, and signatures."""

import re
from functools import cache
from typing import Final, Literal, cast

from training.clinical.text.spelling import near_words

Kind = Literal[
    "findings",
    "impression",
    "addendum",
    "provisional",
    "recommendation",
    "examination",
    "indication",
    "comparison",
    "technique",
    "identifying",
]

# Headings in lower case, by the order in which they are tried; a blank matches blanks.
_HEADINGS: Final[dict[Kind, tuple[str, ...]]] = {
    "findings": (
        r"findings? ?(?:and|/|&|,) ?(?:impressions?|conclusions?)",
        r"(?:(?:radiological|radiographic|imaging|chest|x-?ray|ct|image) )?findings?",
        r"(?:report|result|narrative|description|discussion|observations?)(?: text)?",
        r"befunde?(?: ?(?:und|/|&|,) ?beurteilung)?",
        r"(?:röntgen|ct-?|radiologischer )befund",
        r"(?:befund)?beschreibung",
    ),
    "impression": (
        r"impressions?(?: ?(?:and|/|&) ?(?:plan|recommendations?))?",
        r"(?:final )?(?:impressions?|conclusions?|opinion|summary|assessment|interpretation)",
        r"(?:zusammenfassende )?(?:beurteilung|bewertung|zusammenfassung|zusammenfassend|fazit|"
        r"schlussfolgerung|ergebnis)",
    ),
    "addendum": (
        r"(?:\w+ )?(?:addendum|addenda)(?: report)?(?: ?(?:#|no\.?)? ?\d{1,2})?",
        r"(?:nachtrag|ergänzung|nachbefund(?:ung)?|zusatzbefund|korrektur)(?: ?(?:#|nr\.?)? ?\d{1,2})?",
    ),
    "provisional": (
        r"wet read(?:ing)?",
        r"(?:preliminary|provisional)(?: (?:report|read|reading|findings?|impression|interpretation))?(?: "
        r"\(pfi\))?",
        r"(?:vorläufiger|vorab-?) ?befund|vorabbefund",
    ),
    "recommendation": (
        r"recommendations?",
        r"(?:follow-?up )?advice",
        r"empfehlung(?:en)?",
        r"procedere|prozedere",
    ),
    "examination": (
        r"(?:type of )?(?:exam(?:ination)?|study|procedure|modality)(?: (?:performed|type|name|"
        r"description))?",
        r"(?:art der )?untersuchung(?:en|sart)?|(?:untersuchungs)?auftrag|anforderung|überweisung(?:sgrund)?",
    ),
    "indication": (
        r"(?:clinical )?(?:indications?|history|info(?:rmation)?|data|details|context|question|problem|"
        r"statement)(?: ?(?:and|/|&) ?(?:indications?|history|reason(?: for exam(?:ination)?)?))?",
        r"clinical|hx|(?:untersuchungs)?grund(?: der untersuchung)?",
        r"(?:brief |patient )?history(?: of present illness)?",
        r"reasons? for (?:the )?(?:exam(?:ination)?|study|referral|request|visit|test|procedure|this "
        r"exam(?:ination)?)",
        r"(?:pre-?op(?:erative)? )?diagnosis",
        r"(?:rechtfertigende )?indikation(?:en)?(?:sstellung)?",
        r"(?:klinische? )?(?:angaben?|fragestellung|frage|daten|information(?:en)?|diagnosen?)",
        r"klinik(?: ?(?:und|/|,) ?(?:fragestellung|indikation))?",
        r"anamnese|vorgeschichte|überweisungsdiagnose|vordiagnosen?|vorerkrankungen|(?:past )?medical "
        r"history|pmh|(?:chief |presenting )?complaints?|symptome?s?",
    ),
    "comparison": (
        r"(?:comparisons?|prior (?:stud(?:y|ies)|exams?|examinations?|films?)|previous (?:stud(?:y|ies)|"
        r"exams?|examinations?))(?: (?:stud(?:y|ies)|exams?|films?|made))?",
        r"compared (?:to|with)",
        r"(?:zum )?vergleich(?:saufnahmen?|suntersuchung(?:en)?)?|vor(?:aufnahmen?|untersuchung(?:en)?|"
        r"befunde?)",
    ),
    "technique": (
        r"techni(?:que|cal (?:factors|details|information))",
        r"(?:protocol|views?|projections?|contrast)",
        r"(?:untersuchungs)?techni[kc]|methodik|methode|durchführung",
    ),
    # "Note" and the like may hold anything.
    "identifying": (
        r"pat\.?(?:[- ]?(?:id|nr\.?|nummer|name))?",
        r"(?:patient|patienten?)(?:['’]?s)?(?:[- ]?(?:name|id|no\.?|nr\.?|number|nummer|daten|age|sex|dob|"
        r"address|class|location|type|information))?",
        r"(?:last |first |middle |family |given |sur|fore|vor|nach|familien|full )?-?name,?(?: (?:vorname|"
        r"first name))?",
        r"(?:date of birth|birth ?date|dob|d\.o\.b\.|born|geb(?:\.|urtsdatum|oren)?(?: am)?|geb\.-?dat(?:um|"
        r"\.)?)",
        r"(?:mrn|m\.r\.n\.|medical record(?: (?:no\.?|number|#))?|hospital (?:no\.?|number)|nhs(?: (?:no\.?|"
        r"number))?|ssn|visit(?: (?:no\.?|number|id))?|encounter(?: \w+)?|account(?: (?:no\.?|number|#))?|"
        r"chart(?: (?:no\.?|number|#))?)",
        r"(?:acc(?:ession)?|order|request|requisition|case|report|exam|study)(?: ?(?:no\.?|number|nr\.?|id|#|"
        r"uid))",
        r"accession",
        r"(?:fall|auftrags?|untersuchungs|befund|aufnahme|versicherten)-?(?:nr\.?|nummer|id|datum)",
        r"(?:(?:exam(?:ination)?|study|report|service|procedure|order|dictation|dictated|transcription|"
        r"transcribed|signed|received|completed|performed|admission|admit|discharge|collected|verified|"
        r"approved|electronically signed) )?(?:date|time|date ?(?:/|and|&) ?time|on|at)(?: of "
        r"(?:exam(?:ination)?|study|service|report|dictation|procedure))?",
        r"datum|uhrzeit|ort|ort, datum|befunddatum|erstellt(?: am)?|gedruckt(?: am)?|druckdatum",
        r"(?:age|sex|gender|age ?/ ?sex|sex ?/ ?age|alter|geschlecht|race|ethnicity|address|adresse|"
        r"anschrift|phone|tel(?:efon)?|telephone|fax|e-?mail|insurance|kasse|kostenträger|station|ward|room|"
        r"bed|location|site|facility|hospital|clinic|department|dept|abteilung|institut|krankenhaus|"
        r"praxis)\.?",
        r"(?:(?:referring|ordering|attending|requesting|reading|interpreting|reporting|primary(?: care)?|"
        r"consulting|performing|signing|responsible|family|treating) )?(?:physicians?|doctors?|md|providers?|"
        r"radiologists?|clinicians?|practitioners?|consultants?|surgeons?|residents?|fellows?|attendings?|"
        r"technologists?|technicians?|radiographers?|sonographers?|transcriptionists?|authors?|typist|"
        r"referrer|requester|gp)(?:\(s\))?(?:['’]s)?(?: (?:name|signature|of record))?",
        r"(?:(?:electronically|digitally) )?(?:dictated|transcribed|signed|verified|approved|authenticated|"
        r"interpreted|reported|read|reviewed|finali[sz]ed|authori[sz]ed|performed|ordered|requested|referred|"
        r"typed|edited|prepared|released|completed|created|entered|attested)(?: (?:by|and (?:electronically "
        r")?signed(?: by)?))?",
        r"(?:electronic )?signatures?(?: (?:line|on file))?|cc|copy(?: to)?|copies(?: to)?|d|t|dd|dt|job(?: "
        r"(?:no\.?|id|#))?",
        r"notifications?|communication|critical (?:results?|findings?|value)(?: (?:communicated|"
        r"communication|notification))?",
        r"(?:über|zu|ein)weis(?:er|ender arzt|ende ärztin)|einsender(?:in)?|hausarzt|hausärztin|auftraggeber|"
        r"anforderer|anfordernder arzt|(?:ober|chef|assistenz|fach|stations)?(?:arzt|ärztin)|mtra?|mtr|"
        r"schreibkraft|diktat|geschrieben",
        r"(?:befundet|freigegeben|unterschrieben|signiert|vidiert|validiert|erstellt|diktiert|durchgeführt|"
        r"angefordert|"
        r"überwiesen)(?: (?:von|durch|am))?|befunder(?:in)?|unterschrift|verfasser(?:in)?|z\.? ?hd\.?|an",
        r"(?:billing|icd|cpt|procedure)(?:-?10| codes?)+|codes?|status|report status|befundstatus|rvu|page|"
        r"seite|footer|end of report|comment to \w+|notes?|bemerkung|attestation|teaching physician(?: "
        r"statement)?|disclaimer|confidential(?:ity)?(?: notice)?",
    ),
}
# Headings that are also read with one letter wrong, at the beginning of a line.
_MISSPELT: Final[dict[Kind, str]] = {
    "findings": "findings",
    "impression": "impression conclusion beurteilung",
    "addendum": "addendum nachtrag",
    "recommendation": "recommendation empfehlung",
    "examination": "examination untersuchung",
    "indication": "indication clinical history fragestellung indikation anamnese",
    "comparison": "comparison",
    "technique": "technique",
}
# Sections that tell nothing of the image. The first sentence of the brief ones says all that belongs to them.
BRIEF: Final = ("examination", "comparison", "technique")
CONTEXT: Final = ("indication", *BRIEF)
# Sections by suffixes of OBX-3 (HL7 v2.5, 7.2), codes of LOINC and codes of DICOM.
SECTION_CODES: Final = {
    code: heading
    for heading, codes in (
        ("FINDINGS", "GDT 59776-5 18782-3 121070 121071"),
        ("IMPRESSION", "IMP 19005-8 121072 121073"),
        ("CONCLUSION", "55110-1 121076 121077"),
        ("SUMMARY", "121111"),
        ("ADDENDUM", "ADT 55107-7 121078"),
        ("RECOMMENDATION", "REC 18783-1 121074 121075"),
        ("TECHNIQUE", "TCM 55111-9 121064 121065"),
        ("COMPARISON", "18834-2 121068 121069"),
        ("INDICATION", "18785-6 55115-0 121062 121109"),
        ("HISTORY", "11329-0 121060"),
    )
    for code in codes.split()
}
# "It showed a mass" tells of the image that a comparison names.
OF_EARLIER_IMAGE: Final = re.compile(
    r"\b(?:it|which|that|(?:prior|previous|earlier|outside|old) [\w-]+(?: [\w-]+)?) (?:had )?(?:show(?:ed|n)|"
    r"demonstrated|revealed|described|reported)\b",
    re.IGNORECASE,
)
# Ends a section anywhere; what follows signs, addresses or prints.
SIGNATURE: Final = re.compile(
    r"(?:[/\[(]\s*)?\b(?:(?:this (?:report|document|exam\w*) (?:was|has been) )?(?:electronically|digitally) "
    r"(?:signed|approved|verified|authenticated)|(?:dictated|transcribed|signed|verified|approved|"
    r"authenticated|finali[sz]ed|authori[sz]ed|typed|attested|interpreted|reported|read|released) (?:by|and "
    r"(?:electronically )?signed)\b|end of (?:the )?report|report (?:was )?(?:dictated|signed|finali[sz]ed)|"
    r"i(?:,| have| personally)[^.\n]{0,80}(?:reviewed|interpreted|attest|agree)|(?:thank you|thanks) for "
    r"(?:referring|this|your|the)|sincerely|kind regards|mit (?:freundlichen|kollegialen|besten) grüßen|mit "
    r"(?:freundlichen|kollegialen) gruessen|mfg\b|(?:elektronisch|digital) (?:signiert|unterschrieben|"
    r"freigegeben)|dieser befund wurde|(?:befundet|freigegeben|vidiert|validiert|diktiert) (?:von|durch|am)|"
    r"gez\.|i\. ?[av]\.\s+(?=dr|[A-ZÄÖÜ]))|/s/|\bsigned:|\bcc:",
    re.IGNORECASE,
)


def kind_of(heading: str) -> Kind | None:
    """Return the kind of a heading of a form or a code, such as "Findings"; None for one not in the list."""
    match = _whole().fullmatch(heading.strip().rstrip(":").strip())
    return None if match is None else cast(Kind, match.lastgroup)


def kind_of_match(match: re.Match[str]) -> Kind:
    """Return the kind of a heading by its match."""
    return next(kind for kind in _HEADINGS if match[kind] is not None)


@cache
def _whole() -> re.Pattern[str]:
    return re.compile(_alternatives(), re.IGNORECASE)


@cache
def heading_line() -> re.Pattern[str]:
    """Return the pattern of a heading at the beginning of a line, with a colon or alone in it."""
    return re.compile(
        rf"^[ \t>*#]*(?:(?:final|interim|radiology|the) )?(?:{_alternatives(misspelt=True)})[*]*\s*"
        r"(?P<colon>:(?!\d)[*]*|-(?=\s)|$|(?-i:(?<=[A-ZÄÖÜ]{6})(?=[ \t]+[A-ZÄÖÜ][a-zäöü])))",
        re.IGNORECASE | re.MULTILINE,
    )


@cache
def heading_within() -> re.Pattern[str]:
    """Return the pattern of a heading within a line, with a capital and a colon."""
    return re.compile(rf"(?<=[.!?;)\]\w])(?:\s+|(?<=\.))(?=[A-ZÄÖÜ])(?i:{_alternatives()})\s?:(?!\d)")


def _alternatives(*, misspelt: bool = False) -> str:
    groups = []
    for kind, forms in _HEADINGS.items():
        if misspelt and (near := near_words(_MISSPELT.get(kind, ""))):
            forms = (*forms, rf"(?:{near})(?: (?:{near}))?")
        groups.append(rf"(?P<{kind}>{'|'.join(forms)})")
    return "|".join(groups).replace(" ?", r"\s?").replace(" ", r"[ \t]+")
