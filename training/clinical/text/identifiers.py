"""Names, numbers and days taken out of running text by known values and by their forms.

It doesn't find names without a title or a role that nothing else in the report gives.
"""

import re
from collections.abc import Iterable
from typing import Final

from training.clinical.text.vocabulary import has_forms
from training.clinical.text.words import ill, unknown_words

MARK: Final = "___"
_MONTH: Final = (
    r"(?:jan(?:uary|uar)?|feb(?:ruary|ruar)?|mar(?:ch)?|märz?|apr(?:il)?|may|mai|june?|juni|july?|juli"
    r"|aug(?:ust)?|sept?(?:ember)?|o[ck]t(?:ober)?|nov(?:ember)?|de[cz](?:ember)?)\.?"
)
_DAY_OF_MONTH: Final = r"\d{1,2}(?:st|nd|rd|th)?"
_DATES: Final = (
    r"\b(?:19|20)\d{2}[-./](?:0?[1-9]|1[0-2])[-./](?:0?[1-9]|[12]\d|3[01])(?:T[\d:.]+Z?)?\b",
    r"\b\d{1,2}\s?[-./]\s?\d{1,2}\s?[-./]\s?(?:(?:19|20)\d{2}|\d{2})\b(?![.,]?\d)",
    r"\b(?:0?[1-9]|1[0-2])[/.](?:19|20)\d{2}\b",
    rf"\b{_DAY_OF_MONTH}[\s.-]{{1,2}}(?:of )?{_MONTH}[\s,-]{{1,2}}(?:(?:19|20)\d{{2}}|\d{{2}})\b",
    rf"\b{_MONTH}\s{_DAY_OF_MONTH},?\s(?:19|20)\d{{2}}\b",
    # "Segment 5 may represent" names no day.
    rf"\b{_MONTH}\s{_DAY_OF_MONTH}\b(?!\s?(?:mm|cm|x|weeks?|months?|days?)\b)",
    rf"\b{_DAY_OF_MONTH}\.?\s(?:of )?{_MONTH}(?!\w)(?!\s+(?:be|represent|reflect|have|indicate|suggest|also|"
    r"not|correspond|relate|well|include|contain|show|still|just|simply|in\s+part)\b)",
    rf"\b{_MONTH}\s(?:19|20)\d{{2}}\b",
    r"(?<=\bvom\x20)\d{1,2}\.\s?\d{1,2}\.|(?<=\bam\x20)\d{1,2}\.\s?\d{1,2}\.",
    r"\b(?:[01]?\d|2[0-3]):[0-5]\d(?::[0-5]\d)?(?:\s?[ap]\.?m\b\.?|\s?(?:uhr|hrs?|hours)\b)?",
)
_LABELLED: Final = (
    r"\b(?:MRN|M\.R\.N\.|medical record(?: (?:no|number))?|patient(?:en)?[- ]?(?:id|nr|nummer|no)|"
    r"acc(?:ession)?(?: ?(?:no|nr|number|#))|fall[- ]?(?:nr|nummer)|auftrags?[- ]?(?:nr|nummer)|case (?:no|"
    r"number)|SSN|NHS(?: no)?|DOB|d\.o\.b\.|date of birth|geb(?:\.|urtsdatum)|geboren(?: am)?|born(?: on)?|"
    r"pager|phone|tel(?:efon)?|fax|ext)\b\.?\s?[:#]?\s?(?:is\s)?[\w+()/.-]*\d[\w()/.-]*"
)
_NUMBER_LIKE: Final = re.compile(r"(?<![\w.,])\+?\(?\d{2,5}\)?(?:[ /-]\(?\d{2,8}\)?){1,4}(?![\w]|[.,]\d)")
_PHONE_DIGITS: Final = 7
_NAME: Final = r"[A-ZÀ-ÖØ-ÞĆČĐĞİŁŃŘŚŞŠŤŹŻŽ][\w'’-]*"
_PARTICLES: Final = r"(?:von|van|vom|zu|de|der|den|du|la|le|el|al|bin|di|da)"
_PARTICLE: Final = rf"(?:{_PARTICLES}\s+){{0,2}}"
# Titles as they are written; "MR" and "MS" are no titles, and "14 Fr." is a catheter's size.
_TITLED: Final = (
    r"(?<!\w)(?<!\d\x20)(?:(?:[Dd]rs?|DRS?|[Pp]rof|PROF|Mrs?|Ms|MRS|Hrn?|Fr(?=\.)|Miss|Herrn?|Frau|"
    r"Priv\.-Doz|Nurse|Schwester|Oberarzt|Oberärztin|Chefarzt|Chefärztin|Assistenzarzt|Assistenzärztin)\.?\s*"
    r"(?:(?:[Dd]r|[Pp]rof|med|habil|rer|nat|dent|"
    rf"univ)\.?\s*)*){_PARTICLE}{_NAME}(?:-{_NAME})?(?:\s+{_NAME})?"
)
_CREDENTIALS: Final = (
    rf"(?<!\w){_NAME}(?:,?\s[A-Z]\.?)?(?:,?\s{_NAME}){{0,2}},?\s"
    r"(?:MD|M\.D\.|D\.O\.|MBBS|FRCR|FRCPC|FRANZCR|FFRRCSI|PhD|RN|PA-C|CRNP|APRN|(?<=,\s)NP)(?!\w)"
)
_INITIALS: Final = r"(?:[A-ZÄÖÜ]\.\s?){0,3}"
_NAMES: Final = rf"(?P<names>{_INITIALS}{_PARTICLE}{_NAME}(?:\s+{_INITIALS}{_PARTICLE}{_NAME}){{0,2}})"
_SIGNED: Final = r"(?:[A-ZÄÖÜ][a-z]{0,4}\.\s?){0,3}[A-ZÄÖÜ][a-zäöüß][^\s/()]+(?:\s[A-ZÄÖÜ][^\s/()]+){0,2}"
# Names behind a role, and of patients, relatives, hospitals, and of who signs: "(Name/Name)", "N. Name".
_NAMED: Final = tuple(
    re.compile(pattern)
    for pattern in (
        r"(?<!\w)(?:PA-C|NP|APRN|CRNP|RN|[Pp]rofessor(?:in)?|[Cc]onsultant|[Ss]ister(?!\s+Mary\s+Joseph)|[Mm]atron|[Dd]octor|[Pp]hysician|"
        r"[Pp]ractitioner|[Aa]ssistant|[Aa]ssociate|[Ss]pecialist|[Aa]ttending|[Hh]ospitalist|[Cc]linician|[Pp]rovider|[Tt]echnician|[Ss]onographer|"
        r"[Rr]egistrar|[Rr]esident|[Ff]ellow|[Ii]ntern|[Ss]urgeon|[Tt]echnologist|[Rr]adiographer|\w{2,20}ologist|"
        r"[Nn]urse|[Mm]idwife|[Pp]aramedic|[Tt]herapist|\w{0,20}[Pp]fleger(?:in)?|Kolleg(?:en?|in)|Krankenschwester|Pflegekraft|Hebamme|MTR?A?R?|"
        r"(?:[Ii]nformed|[Tt]old|[Pp]aged|[Cc]alled|[Nn]otified|[Ww]ith|[Bb]y)\s+PA|(?:Radiolog|Chirurg|Internist)(?:en?|in)?|"
        rf"Assistent(?:in)?|\w{{0,20}}(?:[Aa]rzt|[Ää]rztin))(?::|,(?=\s[\w.'’ -]{{2,60}},))?\s+{_NAMES}",
        r"(?<!\w)(?:(?:[Pp]atient(?:in|en)?|PATIENT|[Pp]a?t\.?)(?:['’]?s)?(?:[\s-]?(?:[Nn]ame|NAME))?:?|(?:[Nn]ame|NAME):)\s+"
        rf"(?P<names>{_INITIALS}{_PARTICLE}{_NAME}(?:,?\s+{_INITIALS}{_PARTICLE}{_NAME}){{0,2}})",
        r"(?<!\w)(?i:(?:wife|husband|spouse|partner(?:in)?|(?:step)?(?:mother|father|son|daughter|brother|"
        r"sister(?!\s+Mary\s+Joseph))|aunt|uncle|niece|nephew|grand\w+|guardian|carer|caregiver|friend)(?:-in-law)?|"
        r"ehe(?:frau|mann)|\w{0,20}(?:mutter|vater|sohn|tochter|bruder)|lebensgefährt\w+|oma|opa|tante|onkel|"
        rf"nichte|neffe|enkel(?:in)?|betreuer(?:in)?)[,:]?\s+\(?{_NAMES}",
        rf"(?<!\w)(?P<names>(?:(?:St|Mt|Saint|Mount)\.?\s+)?{_NAME}(?:\s+(?:of\s+)?{_NAME}){{0,3}})\s+"
        r"(?:Hospital|Infirmary|Medical\s+Cent(?:er|re)|Clinic|Hospice|Nursing\s+Home)\b",
        r"(?<!\w)(?:(?:Uni(?:versitäts)?-?)?[Kk]linik(?:um)?|Krankenhaus|Hospital|Spital|Hospiz|\w{0,20}[Pp]raxis|MVZ|\w{0,20}heim)"
        rf"\s+(?P<names>(?:(?:S(?:ank)?t\.?|Bad|am)\s+)?{_NAME}(?:\s+{_NAME})?)",
        rf"(?P<names>(?:S(?:ank)?t\.?[\s-])?{_NAME})-(?:Krankenhaus|Klinik(?:um)?|Hospital|Spital)\b",
        rf"\(\s*(?P<names>{_SIGNED}(?:\s*/\s*{_SIGNED})+)\s*\)",
        rf"(?:(?<=[.!?)])\s+|(?:^|(?<=\n))[^\S\n]*)(?P<names>[A-ZÄÖÜ]\.\s?{_INITIALS}{_PARTICLE}{_NAME}(?:\s{_NAME})?|"
        rf"{_NAME},\s[A-ZÄÖÜ]\.)(?=\.?\s*(?:\n|\Z))",
    )
)
_NAME_WORD: Final = re.compile(r"[^\W\d_][\w.'’-]*")
_BEFORE_NAME: Final = re.compile(rf"(?:[^\W\d_]\.)+|{_PARTICLES}")
_NOUN: Final = re.compile(
    r"\w{5,}(?:ung(?:en)?|heit|keit|[ts]ion(?:en)?)|\w*(?:lage|aufnahmen?|schmerz\w*|beschwerden|pnoe|krebs|infarkt\w*|"
    r"[ck]ar[cz]inom\w*|lappen|itis|pathie|tuberk\w*|tumor\w*|husten|fieber|kontrolle|verlauf|zustand|operation|medizin|chirurgie)",
    re.IGNORECASE,
)
# Words with a capital that are no names behind a role, "Patient" or a bracket, besides those of sentences.
_NO_NAMES: Final = (
    "radiologist physician practitioner surgeon nurse assistant associate specialist resident fellow "
    "consultant attending technologist on call in is was has had without at to of for and or no not the a "
    "an as by who will now notified informed aware denies admitted transferred name id age sex history "
    "status care positioning rotation rotated motion movement prone erect semi-erect semi-upright tilted "
    "lordotic obese habitus intubated extubated breathing outside local community our another referring "
    "nursing day general oblique old new absent yes dr drs prof mr mrs ms md nr dob mrn unknown bed unit "
    "contrast guidance port bypass subclavia pulmonalis carotis coli aureus atmung innere sturz trauma "
    "auswurf verdreht rotiert intubiert"
)
# Known words that are names as often; shorter ones, such as "li", are read as names.
_ALSO_NAMES: Final = "frank frisch sharp good cage gross groß scharf spitz"
_PATTERNS: Final = tuple(
    re.compile(pattern)
    for pattern in (
        # Contacts, labelled numbers, UIDs, days, and long numbers.
        r"(?i)\b[\w.+-]+@[\w-]+\.[\w.-]+\b|\bhttps?://\S+|\bwww\.\S+",
        rf"(?i){_LABELLED}",
        r"\b\d+(?:\.\d+){4,}\b",
        *(rf"(?i){date}" for date in _DATES),
        r"\b[A-Za-z]{0,6}[-_]?\d{5,}[\w-]*",
        *(_TITLED, _CREDENTIALS),
    )
)
_OLD: Final = re.compile(
    r"\b(?:9\d|1[0-2]\d)(?=[\s-]?(?:years?|yrs?\b|y\.?o\b|y/o|yo\b|jahre\b|jährig|-jähr|jahr))", re.IGNORECASE
)
# Names of people who were informed of a finding.
_TOLD: Final = re.compile(
    r"\b(?:(?:discussed|communicated|conveyed|relayed|telephoned|phoned|paged|called|faxed|notified)\b"
    r"[^.\n]{0,80}?\b(?:with|to|by)|d/w|(?:reviewed|reported|interpreted|performed|supervised)\b[^.\n]{0,40}?\bby)\s+"
    r"(?P<who>(?:\b(?:drs?|prof|mrs?|ms|med)\.|[ap]\.m\.|[^.\n])*)",
    re.IGNORECASE,
)
_WAS_TOLD: Final = re.compile(
    r"(?:^|(?<=[.\n]))(?P<who>[^.\n]{2,80}?)\s(?:was|were|has been) (?:informed|notified|contacted|paged|"
    r"called|made aware)\b",
    re.IGNORECASE,
)
_TOLD_IN_GERMAN: Final = re.compile(
    r"(?:^|(?<=[.\n]))[^.\n]*\b(?:telefonisch|mitgeteilt|besprochen|übermittelt|informiert|rücksprache|"
    r"durchgesagt)\b[^.\n]*",
    re.IGNORECASE,
)
_PARTS: Final = re.compile(r"[\s^,;~&/=|()\"]+")
_FEWEST_LETTERS: Final = 3
_FEWEST_DIGITS: Final = 5
# Surnames that are words of reports as well: they are taken out next to a title alone.
_ORDINARY: Final = (
    "small long young old brown white black green gray grey hill field fields rose king day may march april "
    "june august short large low high right left heart bone bones rib lobe burns cross wall base hall page "
    "read case stone wood light dark sharp strong normal clear chest lung lungs free good best new early "
    "late mild noon day days summer winter north south east west upper lower middle bridge brook bush bend "
    "banks rice bell ball bird fox wolf lamb fish park klein kleine gross groß große lang lange kurz kurze "
    "herz jung braun schwarz weiss weiß berg stein neu alt links rechts frei gut lunge stark hoch tief mann "
    "frau herr sommer winter koch kaiser könig richter schneider fischer the and for from with not none was "
    "has unknown radiology radiologist hospital clinic department dept doctor klinik klinikum praxis "
    "krankenhaus abteilung institut med univ prof and/or attending resident physician signed ward room bed "
    "mrs miss male female patient name ray xray view views two pa ap lateral"
)


def without_identifiers(text: str, known: Iterable[str] = ()) -> str:
    """Return a text with `MARK` for names, numbers, days and who was informed of findings."""
    for pattern in _known_patterns(known):
        text = pattern.sub(MARK, text)
    text = _NUMBER_LIKE.sub(
        lambda number: MARK if sum(map(str.isdigit, number[0])) >= _PHONE_DIGITS else number[0], text
    )
    for pattern in _NAMED:
        text = pattern.sub(_without_names, text)
    for pattern in _PATTERNS:
        text = pattern.sub(MARK, text)
    for pattern in (_TOLD, _WAS_TOLD):
        text = pattern.sub(_without_group, text)
    text = _TOLD_IN_GERMAN.sub(lambda match: match.group() if has_forms(match.group()) else MARK, text)
    return _OLD.sub("90", text)


def holds_identifiers(text: str) -> bool:
    """Tell whether a text has a form of a name, a number or a day."""
    named = (pattern.sub(_without_names, text) != text for pattern in _NAMED)
    return any(pattern.search(text) for pattern in (*_PATTERNS, _TOLD)) or any(named)


def _known_patterns(known: Iterable[str]) -> list[re.Pattern[str]]:
    words: dict[str, None] = {}
    ordinary = frozenset(_ORDINARY.split())
    for value in map(str.strip, known):
        if not value.isdigit() and len(value) > _FEWEST_LETTERS and any(map(str.isdigit, value)):
            words[value] = None
        for part in _PARTS.split(value):
            word = part.strip(".'’-_:#")
            letters = sum(sign.isalnum() for sign in word)
            # Years of days of birth, and short numbers, are numbers of other things as well.
            if word.isdigit() and letters < _FEWEST_DIGITS:
                continue
            if letters >= _FEWEST_LETTERS and word.lower() not in ordinary and not has_forms(word):
                words[word] = None
    if not words:
        return []
    every = "|".join(map(re.escape, sorted(words, key=lambda word: (-len(word), word))))
    return [re.compile(rf"(?<!\w)(?:{every})(?:['’]s|(?<=\w)s)?(?!\w)", re.IGNORECASE)]


def _without_names(match: re.Match[str]) -> str:
    start, end = match.span("names")
    first = last = None
    for word in _NAME_WORD.finditer(match.string, start, end):
        goes_before = _BEFORE_NAME.fullmatch(word.group()) is not None
        if not goes_before and _is_of_reports(word.group()):
            if last is not None:
                break
            first = None
            continue
        first = word.start() if first is None else first
        last = last if goes_before else word.end()
    if first is None or last is None:
        return match.group()
    return f"{match.string[match.start() : first]}{MARK}{match.string[last : match.end()]}"


def _is_of_reports(word: str) -> bool:
    plain = word.lower().rstrip(".")
    if plain in _NO_NAMES.split() or has_forms(word) or _NOUN.fullmatch(plain) or ill().fullmatch(plain):
        return True
    is_known = len(plain) > _FEWEST_LETTERS and not any(unknown_words(plain, describes=True))
    return is_known and plain not in _ALSO_NAMES.split()


def _without_group(match: re.Match[str]) -> str:
    start, end = (index - match.start() for index in match.span("who"))
    whole = match.group()
    # Statements on findings stay.
    return whole if has_forms(whole[start:end]) else whole[:start] + MARK + whole[end:]
