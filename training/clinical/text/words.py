"""Words that say nothing is wrong by themselves: a sentence with any other word is not wholly understood.

They tell whether "No Finding" may be said of a report. Endings of plurals and German adjectives are left out.
"""

import re
from collections.abc import Iterator
from functools import cache
from typing import Final

# Words of any sentence: grammar, anatomy, technique, and what is as it should be.
_PLAIN: Final = (
    "a abdomen abdominal abgrenzbar about above acceptable across active acute adequate adequately admission "
    "aerated aeration after again age age-appropriate airspace airway aktuell akut aligned alignment all "
    "along als also alter altersentsprechend altersgemäß although am an and angle anterior any aorta aortic "
    "ap apex apical apices apparent appear appearance appearing appropriate arch are area as assessed at "
    "atrial atrium auch auf aufnahme aus ausreichend available basal base basilar bauch bds be been befund "
    "begrenzt bei beid beidseitig beidseits being below belüftet between beurteilbar beurteilung bibasilar "
    "bilateral bilaterally bis bodies body bone bones bony both bronchi bronchial bronchus brustkorb "
    "brustwirbelsäule but bws by cage caliber can cardiac cardio cardiomediastinal cardiophrenic cardiopulm "
    "cardiopulmonary carina catheter cava cavity cavoatrial central cervical chest clavicle clear clearance "
    "cm compared comparison completely configuration consist consistent contour costophrenic course cp "
    "current currently cxr da dargestellt darstellung das dem demonstrate demonstrated den der des "
    "detectable detected device diaphragm diaphragmatic die dies do does drain due durch during each eb "
    "ebenen ein einsehbar either else end entfaltet entirely erfasst erkennbar es essentially evaluated "
    "evaluation evidence evident exam examination expanded expected extrathoracic female field film finding "
    "findings first folg for formerly frei from frontal fully further für gefäß gefäßzeichnung gesamt given "
    "good gross grossly gut haben had has hat have he heart hemidiaphragm her herz herzgröße herzschatten "
    "herzsilhouette heut hila hilar hili hilum hilus hilär hinweis his how however i identified ihr ij im "
    "image imaged imaging impression in include included indicate inferior inflated inflation insbesondere "
    "insgesamt intact into intraperitoneal intrathoracic intrathorakal is ist it its jahr joint jugular "
    "junction kardial kardiopulmonal katheterbedingt keine knöchern konfiguration konfiguriert kontur kuppel "
    "lag last lateral lead left level li liegend likely limit limits line links linksseitig lll lobar lobe "
    "lower lt lul lumbar lung lungen lungenfeld lungengefäß lungengefäßzeichnung lungenzeichnung made "
    "maintained male man marking may mediastinal mediastinum mehr mid middle midline mit mittellappen "
    "mittelständig mm more most nach nachweis negative no nor norm normal normalbefund normally normbereich "
    "normweit not noted now number oberbauch oberlappen observed obtained obvious oder of old on one op or "
    "organ orthotop osseous ossär other otherwise our outline over overall overlying p.a pa parenchyma "
    "parenchymal part patient per perihilar place placed pleura pleural portable position positioned post "
    "posterior postoperative pre preoperative present preserved previous previously prior project projecting "
    "projection projektion properly pulm pulmonal pulmonary ra radiograph radiographic radiographically "
    "radiography radiology randwinkel ray re reason recess recht rechts rechtsseitig regarding regelrecht "
    "region related remain remainder report reveal review rib right rippen rll rml roentgenogram routine rt "
    "rul rv rö-thorax röntgen röntgenaufnahme röntgenbefund röntgenbild röntgenthorax same satisfactory "
    "scapula scharf schlank screening second seen seit seitlich several shape sharp sharply she shoulder "
    "show shown sich side sign silhouette since sind single sinus situ size sized skeletal skeleton skelett "
    "smooth so soft sonde sonst soweit space specific specifically spinal spine spitz standard stehend "
    "sternum still stomach strahlengang structure studies study subclavian subdiaphragmatic such suggest "
    "sulci sulcus superior supine svc symmetric symmetrical technique terminate than that the their them "
    "then there therefore these they this thoraces thoracic thorakal thorax thoraxaufnahme thoraxbefund "
    "thoraxorgane thoraxröntgen thoraxskelett thoraxwand those three through thus time tip tissue tissues to "
    "today together toward trachea tracheal tube two type um unauffällig und under unobscured unremarkable "
    "unter unterlappen untersuchung untersuchungen up upon upper upright us using vascular vascularity "
    "vasculature vcs vein vena ventilated ventricle ventricular ventrikel vergleich vertebra vertebral very "
    "vessel via view visible visualised visualization visualized vom von vor voraufnahme voraufnahmen "
    "vorbefund voruntersuchung vorhof wall war was we weichteil weichteilmantel weiterhin well were what "
    "when where which while who wie wirbelsäule wird wire with within woman x xray year yesterday zeichen "
    "zeigen zeigt zone zu zum zur zwei zwerchfell zwerchfellkontur zwerchfellkuppe zwischen"
)
# Words of sentences that name a finding, and describe it.
_DESCRIBING: Final = (
    "abnormal adjacent airspace akut alt alveolar apikal associated ausgedehnt ausgeprägt basal beginnend "
    "bekannt calcified change chronic compressive confluent convincing decreased definite dense dependent "
    "deutlich dezent diffus diffuse discoid discrete displaced dorsal early erneut few flau fleckig flächig "
    "focal frank free fresh frisch gering geringgradig groß größer hazy healed improved improving increased "
    "interstitial interstitiell interval kl known konfluierend large lateral layering leicht lg li linear "
    "lobar loculated massiv measurable mild mildly minimal minimally minor mod moderate moderately "
    "multifocal multiple mäßig nennenswert neu new nondisplaced old opaque overt parapneumonic patchy "
    "persistent platelike pneumonic pneumonisch posttraumatic questionable recent recurrent relevant "
    "residual retrocardiac scattered severe sicher significant signifikant sizable size slight slightly sm "
    "small stabil stable streaky streifig subpulmonic subseg subsegmental subtle superimposed suspected "
    "suspicious tension tiny trace umschrieben unch unchanged underlying unilateral unverändert veränderung "
    "veränderungen volume wesentlich worsening zentral älter"
)
# What is wrong in ways that the vocabulary does not tell apart: denied, or else a finding.
_ILL: Final = (
    r"(?:acute (?:\w+ )?changes?|abnormal\w*|anomal\w*|disease|process(?:es)?|failure|malignan\w*|"
    r"dislocat\w*|injur\w*|deformit\w*|patholog\w*|metasta\w*|decompensation|aneurysms?|h(?:a?e)morrhage|"
    r"bleeding|embol\w*|pneumonitis|inflammat\w*|complications?|foreign bod(?:y|ies)|destructi\w*|lytic|"
    r"auffälligkeit(?:en)?|\w*erkrankung(?:en)?|\w*insuffizienz|dekompens\w*|luxation(?:en)?|"
    r"verletzung(?:en)?|komplikation(?:en)?|fremdkörper\w*|entzünd\w*|malign\w*|blutung(?:en)?|\w*infekt\w*)"
)
_SAID: Final = (
    r"(?:clear|normal|unremarkable|nothing acute|no (?:acute )?findings?|negative|within normal limits|frei|"
    r"unauffällig(?:e[rsnm]?)?|regelrecht(?:e[rsnm]?)?|normale[rsnm]?|normalbefund|kein(?:e[rn]?)? (?:akut|"
    r"krankhaft|pathologisch)\w*(?: \w+)? befunde?)"
)
_VOR: Final = r"vor(?:aufnahme|untersuchung|befund|bild|tag|jahr|monat)\w*"
# "Normal apart from the left lung", "has yet to clear", "is it normal".
RESTRICTED: Final = re.compile(
    r"\b(?:except\w*|besides|n/a|(?:apart|aside) from|other than|sav(?:e|ing)|all but|but (?:for|(?:the )?(?:"
    r"left|right))|bar(?:ring)?|bis auf|abgesehen|ausnahme|au(?:ß|ss)er|(?:yet|failed) to)\b|"
    r"\A(?:is|are|ist|sind) (?:it|this|the|das|der|die)\b",
    re.IGNORECASE,
)
# Denials of what is no part of an image, and of two at once.
LACKING: Final = re.compile(
    rf"nothing acute|(?:neither|weder)\b.*\b(?:nor|noch)\b|\?\s*[-–]|\w+ (?:(?!{_SAID})[\w-]+ ){{0,2}}(?:"
    rf"findings?|previous|prior|earlier|old|comparison|befunde?|{_VOR}|vergleich\w*)\b",
    re.IGNORECASE,
)
_AS_BEFORE: Final = re.compile(
    r"\A[,;]\s*(?:unchanged|stable|unverändert)(?=\W*\Z| (?:since|from|seit|gegenüber|compared|zu\w?)\b)|"
    rf"\b(?:unchanged|unverändert\w*) (?={_SAID})",
    re.IGNORECASE,
)
# Sentences of an earlier image alone.
EARLIER: Final = re.compile(
    r"\A(?!.*\b(?:compar(?:ed|ing)|(?:in|by) comparison|comparison (?:to|with|\w+ made)|\w*vergl\w+|"
    r"gegenüber|(?:un)?changed?|\w*änder\w+|stable|resol\w+|clear(?:ed|ing|ance)|longer|mehr|now|today|"
    r"current\w*|again|remains?|still|since|seit|not re\w+|gone|removed|disappear\w+|removal|(?:no|without|"
    r"keine?r?s?|ohne) (?:prior|previous|earlier|old|früher\w*|vor\w+)|aktuell|heute|jetzt|nun|weiter\w*|"
    r"erneut|wie|as (?:on|in|before)|\w*gebildet|aufgelöst|entfernt)\b)(?:(?:19|20)\d\d\b|.*\b(?:prior|"
    r"previous(?:ly)?|comparison|earlier|then|that time|letzte[rsnm]?|former(?:ly)?|yesterday|last|ago|old "
    rf"(?:film|stud|exam)\w*|outside|früher\w*|ehemals|gestern|damals|zuvor|vorher|{_VOR}|vor \w+ (?:tag|"
    r"woche|monat|jahr)\w*|(?:in|on|im|am) (?:\w+ )?(?:\d+[./-]){0,2}(?:19|20)\d\d)\b)",
    re.IGNORECASE | re.DOTALL,
)
# What is normal of the image, not of what it shows.
_OF_ITSELF: Final = re.compile(
    r"\b(?:\w*quali\w+|strahlengang|positioning|(?:patient|\A)\W*position|technique|\w*technik|lagerung|"
    r"exposure|\w*belichtung|penetration|inspiration\w*|rotation|field of view|"
    r"\Anormal\w* (?:view|proje[ck]tion)(?! ))\b",
    re.IGNORECASE,
)
_WORD: Final = re.compile(r"(?<![^\W\d_])(?!air\s+spaces?\b)[^\W\d_]{2,}(?:['’-][^\W\d_]+)*")
# Names and numbers that were taken out of a text.
_TAKEN_OUT: Final = re.compile(r"x{3,}(?:-x+)*", re.IGNORECASE)
_ENDING: Final = re.compile(r"(?:e[rsnm]?|['’]s)\Z")


@cache
def ill() -> re.Pattern[str]:
    """The pattern of words for something wrong that is no finding of the vocabulary."""
    return re.compile(rf"(?<!\w){_ILL}(?!\w)", re.IGNORECASE)


@cache
def _tables() -> tuple[frozenset[str], frozenset[str], re.Pattern[str]]:
    return (
        frozenset(_PLAIN.split()),
        frozenset(f"{_PLAIN} {_DESCRIBING}".split()),
        re.compile(rf"(?<!\w){_SAID}(?!\w)", re.IGNORECASE),
    )


def says_normal(sentence: str) -> bool:
    """Tell whether a sentence calls something normal that is not the image itself."""
    return _tables()[2].search(sentence) is not None and _OF_ITSELF.search(sentence) is None


def unknown_words(sentence: str, *, describes: bool) -> Iterator[str]:
    """Give the words of a sentence that are not known, with other signs instead of cues and findings.

    `describes` tells whether it names a finding that words such as "small" may describe.
    """
    plain, describing, _ = _tables()
    known = describing if describes else plain
    for match in _WORD.finditer(_AS_BEFORE.sub(" ", sentence)):
        for word in re.split(r"['’-]", match.group().lower()) if match.group().lower() not in known else ():
            if (
                len(word) > 1
                and not {word, word.removesuffix("s"), _ENDING.sub("", word)} & known
                and not _TAKEN_OUT.fullmatch(word)
            ):
                yield match.group()
                break
