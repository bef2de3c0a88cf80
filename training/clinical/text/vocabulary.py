"""The vocabulary of findings: names, and the forms in which reports write them, in English and some German.

A form is a regular expression for whole words, of any case. A blank in it matches blanks, line ends and
hyphens. docs/research/findings.md lists the names.
"""

import re
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Final, Literal

from training.clinical.text.spelling import written_out

_SIDED: Final = r"(?:air ?space|focal|nodular|patchy|streaky|hazy|ill defined|linear|reticular|interstitial)"
_PERHAPS: Final = (
    r"(?:(?:may|might|could) be|probably|possibly|likely|perhaps|questionably|(?:un)?wahrscheinlich|"
    r"vermutlich|möglicherweise|fraglich|evtl\b\.?|ev\.|eventuell|vielleicht|ggf\b\.?|eher|wohl|womöglich)"
)
_RATIO: Final = (
    r"(?:c[th][rq]|h[tl]q|(?:cardio ?thoracic|herz thorax) (?:ratio|index|quotient)) ?(?:[a-z]{2,3}|[:=])? ?"
)
_MEASURE: Final = (
    rf"(?:,? (?:with|at|mit|bei) (?:an? |eine[mr]? )?{_RATIO}\d[.,]\d+,?|,? (?:to|auf|mit|with|at) (?:about |"
    r"etwa |ca\.? ?)?\d+(?:[.,]\d+)? ?[cm]m,?)?"
)
_SIZE_OF_HEART: Final = (
    rf"(?:(?:heart|cardiac|cardiac silhouette) size|heart|cardiac (?:silhouette|shadow)){_MEASURE}"
)
_IS_HOW: Final = (
    rf"(?:(?:is|are|was|appears?|remains?|seems|to be|(?!{_PERHAPS})[a-z]+ly|again|now|overall|at|in|size|"
    r"(?:stable|unchanged|still),?|and|mild to|contour|for technique) ){0,8}"
)
_HERZ: Final = rf"(?:cor|herz(?:gr(?:ö|oe)(?:ß|ss)e|schatten|silhouette)?){_MEASURE}"
_CARDIOMEDIASTINUM: Final = (
    r"(?:(?:cardiomediastinal|cardio mediastinal|mediastinal) (?:silhouette|contours?)|"
    rf"mediastinum){_MEASURE}"
)
_BOTH: Final = (
    r"(?:heart|cardiac)(?: size| silhouette)? and mediastin(?:um|al)(?: (?:silhouettes?|contours?|size))?"
)
_NORMAL: Final = (
    r"(?:within (?:the )?normal(?: size)?(?: limits)?|normal|unremarkable|not (?:\w+ )?(?:enlarged|widened))"
)
_BORDERLINE: Final = r"(?:(?:the )?upper limits?(?: of)? normal|top normal|high normal|borderline|prominent)"
_LARGE: Final = r"(?:enlarged|large|big|wide(?:ned)?|broad(?:ened)?|increased)"
# "Only appears enlarged because of the projection".
_SEEMS_LARGE: Final = (
    rf"(?:(?:only|merely|just) (?:appears?|seems?|looks?) (?:to be )?{_LARGE}|(?:(?:is|appears?|seems?|"
    rf"looks?) )?(?:artificially|falsely|spuriously|artifactually|seemingly) (?:appears? )?{_LARGE}|"
    rf"(?:appears?|seems?|looks?) (?:\w+ly )?{_LARGE} (?:(?:only|merely|simply) )?(?:because of|due to|owing "
    r"to|from|secondary to) (?:the )?(?:[\w.]+ ){0,2}(?:projection|technique|magnification|rotation|"
    r"position(?:ing)?|volumes?|inspiration|expiration)|(?:(?:ist|erscheint|wirkt|nur|lediglich) "
    r"){0,3}(?:scheinbar|(?:projektions|lage|lagerungs|aufnahme|rotations|technik)bedingt) (?:\w+ "
    r")?(?:vergr(?:ö|oe)(?:ß|ss)ert|verbreitert|gro(?:ß|ss)))"
)

_ANGLE: Final = r"(?:costo ?phrenic|costo ?diaphragmatic|CP) (?:angles?|sulc(?:us|i)|recess(?:es)?)"
_SIDES: Final = r"(?:(?:left|right|both|bilateral|lateral|posterior|anterior|and|or) ){0,4}"
_RANDWINKEL: Final = (
    r"(?:(?:pleura|zwerchfell ?)?(?:rand ?|rippen ?|sinus)winkels?|(?:sinus|recessus) (?:phreni[ck]o "
    r"?[ck]ostalis|[ck]osto ?(?:diaphragmati[ck]us|phreni[ck]us)))"
)
_SEITEN: Final = r"(?:(?:linken?|linker|rechten?|rechter|beider|lateralen?|dorsalen?|posterioren?) ){0,3}"
_BLUNT: Final = r"(?:verstrichen|stumpf|(?:ab)?gestumpft)"

# Behind words that mean something else in a photograph.
_LIES: Final = (
    r"(?=\.? (?:(?:is|remains?|still|noch|weiterhin) )*(?:in (?:situ|place)|(?:on|at|over|in) the (?:left|"
    r"right)|left|right|links|rechts|li|re|tip|projects|projiziert|removed|entfernt|gezogen|von|über|"
    r"pe[ck]toral|with (?:its |the )?tip|mit spitze|liegt|liegend|unchanged|unverändert|regelrecht|"
    r"korrekt)\b)"
)

# Forms that say that a finding is there, unless a cue says otherwise.
_FORMS: Final[dict[str, tuple[str, ...]]] = {
    "aspiration": (r"aspiration",),
    "atelectasis": (
        r"(?:dys|a)telektatisch(?:e[rsnm]?)?",
        r"(?:minderbelüftung|fehlbelüftung|belüftungsstörung)(?:en)?",
        r"atelecta(?:sis|ses|tic)",
        r"(?<!vertebral\s)(?<!body\s)(?<!end\splate\s)(?<!\d\s)collapse(?! of (?:the )?(?:[lt]\d|"
        r"vertebra\w*))",
        r"collapsed (?:\w+ ){0,2}(?:lung|lobe)|volume loss",
    ),
    "bronchial thickening": (r"(?:peri)?bronchial (?:wall )?(?:thickening|cuffing)",),
    "bronchiectasis": (r"(?:bronchiect|bronchioloect)a(?:sis|tic)", r"bronchiektas(?:en?|ien?)"),
    "COPD": (r"COPD", r"(?:chronic )?obstructive (?:pulmonary|lung|airways?) disease"),
    "calcification": (r"calcific(?:ations?)?", r"calcified"),
    "cardiomegaly": (
        rf"(?:kardiomegalie|(?:links|rechts)?herz(?:vergr(?:ö|oe)(?:ß|ss)erung|verbreiterung)|{_HERZ} "
        rf"(?:ist )?(?:(?!nicht |grenz|{_PERHAPS})[\w\-]+ ){{0,2}}(?:vergr(?:ö|oe)(?:ß|ss)ert|verbreitert|"
        r"zu gro(?:ß|ss)))",
        rf"{_HERZ} (?:ist )?(?:(?:insgesamt|weiterhin|deutlich|leicht|mäßig|gering|etwas|sehr|recht|massiv) "
        rf"){{0,2}}gro(?:ß|ss)",
        r"(?:vergr(?:ö|oe)(?:ß|ss)erte[rsnm]?|verbreiterte[rsnm]?|gro(?:ß|ss)e[rsnm]?) (?:herz(?:schatten|"
        r"silhouette)?|herzens)",
        r"(?:vergr(?:ö|oe)(?:ß|ss)erung|verbreiterung) de[sr] herz(?:ens|schattens|silhouette)",
        r"cardio ?megaly|increased (?:heart|cardiac) size",
        r"(?:large|enlarged) (?:heart|cardiac (?:silhouette|contours?))",
        r"(?:cardiac|heart) enlargement|enlargement of (?:the )?(?:heart|cardiac silhouette)",
        rf"{_SIZE_OF_HEART}(?:, (?:which|that))? {_IS_HOW}{_LARGE}",
        rf"{_RATIO}(?:(?:>|above|über) ?0[.,]50?|0[.,](?:5[5-9]|[6-9]\d?))",
    ),
    "cavitation": (r"cavitations?", r"cavitary", r"cavitating"),
    "consolidation": (r"konsolidation(?:en)?", r"consolidat(?:ions?|ive|ed)"),
    "costophrenic blunting": (
        rf"blunting (?:of|at|in) (?:the )?{_SIDES}{_ANGLE}",
        rf"blunted {_SIDES}(?:{_ANGLE}|angles?)",
        rf"{_ANGLE} (?:(?:is|are|was|were|remains?|appears?) )?(?:(?!not |no )[\w\-]+ ){{0,2}}blunted",
        r"(?:costo ?phrenic|costo ?diaphragmatic|CP)(?: angle| sulcus| sulcal| recess)? blunting",
        rf"(?:ab)?stumpfung (?:de[sr] )?{_SEITEN}{_RANDWINKEL}",
        rf"{_BLUNT}e[rsnm]? {_SEITEN}{_RANDWINKEL}",
        rf"{_RANDWINKEL} (?:(?!nicht |kein)\w+ ){{0,3}}{_BLUNT}",
    ),
    "degenerative change": (
        r"degenerative(?: \w+)? (?:changes?|veränderung(?:en)?|disease|spurring)",
        r"osteophytes?|spondylosis|osteoarthr(?:itis|osis)",
    ),
    "emphysema": (r"(?:lungen)?emphysems?", r"emphysema(?:tous)?", r"bullous disease", r"bulla[e]?"),
    "enlarged cardiomediastinum": (
        r"enlarged cardiomediastinum",
        r"mediastinal (?:widening|enlargement)",
        r"mediastinalverbreiterung",
        rf"(?:mediastinum|mediastinalschatten){_MEASURE} (?:ist )?(?:(?!nicht |{_PERHAPS})\w+ )?verbreitert",
        r"(?:verbreiterte[sn]?|verbreiterung des) (?:\w+ )?mediastin(?:um|ums|alschattens)",
        r"(?:widening|enlargement|broadening) of (?:the )?(?:\w+ )?mediastinum",
        r"(?:widened|enlarged) (?:\w+ )?(?:mediastinum|(?:cardio ?)?mediastinal (?:silhouette|contours?))",
        rf"{_CARDIOMEDIASTINUM} {_IS_HOW}{_LARGE}",
    ),
    "fibrosis": (r"(?:lungen)?fibrose", r"fibrosis", r"fibrotic"),
    "fracture": (
        r"(?:rippen)?(?:bruch|brüche)|fracture[sd]?|(?<=rib\s|ibs\s|cle\s)#s?(?! ?\d)|#(?= (?:(?:of|the|"
        r"[lr]t?|left|right|mid|\d+(?:th)?) ){0,4}(?:ribs?|clavicle|humerus|sternum))",
    ),
    "granuloma": (r"granulomas?", r"granulomata", r"granulomatous", r"granulome?n?"),
    "hernia": (r"(?:hiatus)?hernien?", r"hernias?", r"herniation"),
    "hyperinflation": (
        r"hyper ?(?:inflat|expan|lucen)(?:ed|sion|ion|ded|t)",
        r"(?:lungen)?überbläh(?:ung|t)(?:e[rsnm]?)?",
    ),
    "kyphosis": (r"kyphosis", r"kyphotic", r"kyphose"),
    "lesion": (r"lesions?", r"läsion(?:en)?"),
    "lung opacity": (
        r"opaci(?:ty|ties|fications?|fied)",
        r"infiltrat(?:es?|ions?)",
        r"air ?space disease",
        rf"{_SIDED} (?:density|densities|markings)",
    ),
    "lymphadenopathy": (
        r"(?:lymph(?:o|knoten)?)?adenopath(?:y|ies|ien?)",
        r"lymphknotenvergrö(?:ß|ss)erung(?:en)?",
        r"(?:vergrö(?:ß|ss)erte[rsn]? lymphknoten|enlarged lymph nodes?)",
    ),
    "mass": (r"raumforderung(?:en)?", r"tumoren", r"mass(?:es)?", r"tumou?rs?", r"neoplasms?"),
    "nodule": (r"nodul(?:es?|arity)", r"nodular (?:densit|opacit)(?:y|ies)"),
    "osteopenia": (r"osteopen(?:ia|ic|ie)", r"osteoporo(?:sis|tic|se)", r"demineralis?z?ation"),
    "pericardial effusion": (
        r"(?:peri[ck]ard|herzbeutel)erg(?:uss|uß|usses|üssen?|uessen?)",
        r"peri[ck]ard(?=- (?:und|oder|bzw\.?) pleuraerg)",
        r"pericardial(?: effusions?| fluid|(?= (?:or|and) pleural effusions?))",
    ),
    "pleural effusion": (
        r"pleura(?=- (?:und|oder|bzw\.?) (?:peri[ck]ard|herzbeutel)erg)",
        r"(?:pleural )?effusions?",
        r"nicht ergu(?:ss|ß)frei(?:e[rsnm]?)?",
        r"pleural fluid(?: collections?)?",
        r"(?<=not\s|han\s|cht\s)(?:fluid|flüssigkeit)(?! (?:levels?|overload|collections?|status|balance))",
        r"fluid in (?:the |both )?(?:\w+ )?pleural (?:spaces?|cavit(?:y|ies))",
        r"(?:sero|hämato|hydro|chylo|ha?emo|pyo(?=pneu))(?:pneumo)?thora(?:x|ces)",
        r"pleural(?= (?:or|and) pericardial effusions?)",
    ),
    "pleural thickening": (
        r"(?:bi)?(?:pleural|pleuro parenchymal|apical pleural) (?:thickening|plaques?|scarring)",
        r"pleural(?= (?:or|and) parenchymal scarring)",
        r"thickening of (?:the )?pleura",
        r"pleura(?:schwielen?|schwarten?|verdickung(?:en)?|plaques?)",
        r"(?:pleurale[rsnm]? |pleuro pulmonale[rsnm]? )(?:verdickung(?:en)?|schwielen?|plaques?)",
    ),
    "pneumomediastinum": (r"pneumomediastinum",),
    "pneumonia": (
        r"pneumonisch(?:e[rsnm]?)?",
        r"(?:broncho)?pneumonias?|pneumonic",
        r"(?:super)?infections?|infectious(?: process(?:es)?)?",
    ),
    "pneumoperitoneum": (
        r"pneumoperitoneum",
        r"free (?:(?:intra ?peritoneal|intra ?abdominal|sub ?diaphragmatic) )?(?:air|gas)",
    ),
    "pneumothorax": (
        r"pneumo ?thora(?:x|ces|xe|xes)",
        r"(?:rest|spitzen|spannungs?|mantel)?pneu",
        r"pleural (?:air|gas)",
    ),
    "pulmonary edema": (
        r"(?:lungen(?:stauungs)?)?(?:ö|oe)dem(?:s|e|en)?",
        r"(?:(?:pulmonary|interstitial|alveolar|lung) ){0,3}o?edemas?|o?edematous",
    ),
    "scarring": (r"scar(?:ring|s)?", r"narben?", r"narbige?[rsnm]?", r"vernarbung(?:en)?"),
    "scoliosis": (r"skoliose", r"(?:dextro|levo|kypho)?scolio(?:sis|tic)", r"(?:dextro|levo)curvature"),
    "subcutaneous emphysema": (
        r"(?:sub ?cutaneous|subcut|sub ?q|SQ|surgical|soft tissue|chest wall) (?:emphysema|air|gas)",
        r"(?:haut|weichteil)emphysems?",
        r"subkutane[sn]? emphysem",
    ),
    "support device": (
        r"(?:endotracheal|tracheostomy|ET|NG|OG|(?:oro|naso)gastric|enteric|feeding|chest|thoracostomy|"
        r"pleural|gastrostomy|dobb?hoff) (?:tubes?|drains?)",
        r"(?:central|PICC|jugular|subclavian|arterial|venous|swan ganz|dialysis)(?: \w+)? (?:lines?|"
        r"catheters?)",
        r"catheters?|PICC|port a cath|mediport|portacath|stents?",
        r"pace ?makers?",
        r"(?:pacing|pacer|defibrillator) (?:leads?|wires?|devices?)|A?ICDs?|defibrillators?",
        r"(?:sternotomy|sternal|cerclage) wires?",
        r"(?:prosthetic|mechanical|artificial|replacement) (?:\w+ )?valves?|(?:surgical|vascular) clips?",
        r"(?:(?:lines?|tubes?|drains?|sonden|zugänge)(?:,| ?[/&]|,? (?:or|and|oder|und)) ?(?:other )?){1,3}"
        r"(?:lines?|tubes?|drains?|wires|leads|devices|hardware|sonden|zugänge|drainagen)",
        r"[SP]M (?:aggregat|sonden?|elektroden?|kabel)",
        r"(?:lines|tubes|drains|sonden|zugänge)(?= (?:(?:are|were|have been|wurden) )?(?:removed|out\b|"
        r"pulled|entfernt|gezogen|unchanged|unverändert|regelrecht|korrekt|in (?:situ|place)|as before)\b)",
        rf"(?:ports?|drains?|drainagen?|SM){_LIES}",
        r"(?:pigtail|surgical|pleural|mediastinal|basal|despite (?:the|a)) drains?",
        r"port ?(?:kathetern?|systeme?|systems|kammern?|anlage|implantation)",
        r"(?:katheter|tubus|sonden|drainagen|port)spitzen?",
        r"(?:(?:IJ|midline|femoral|hickman|tunnell?ed)(?: \w+)?|subclavian) (?:lines?|sheaths?|ports?)",
        r"cannula[es]?|kanülen?|tracheostom(?:y|a)|dobb?hoff|swan ganz|impella|watchman|loop recorders?|"
        r"event ?re[ck]order",
        r"(?:spinal|orthopa?edic|surgical|fixation|fusion) (?:hardware|rods?|plates?|screws?)",
        r"valve (?:prosthes[ie]s|replacement)|TAV[IR](?: ?prothese)?|PEG(?: ?sonde)?|fremdmaterial(?:ien)?",
        r"(?:aorten|mitral|herz|trikuspidal)?klappen(?:prothesen?|ersatz)",
        r"(?:support|monitoring|implanted|indwelling) (?:devices?|apparatus|hardware|lines?)",
        r"(?:pulse |cardiac |nerve )?(?:generators?|stimulators?)",
        r"(?:herz)?schrittmacher(?:s|aggregat|sonden?|elektroden?|kabel|systems?|implantation|anlage|"
        r"implantat)?",
        r"(?:ZVK|zentraler venenkatheter|katheters?)(?:- ?(?:anlage|implantation))?",
        r"(?:tubus|trachealkanüle|magensonden?|ernährungssonden?|(?:thorax(?:saug)?|pleura|"
        r"bülau)-?drainagen?)",
    ),
    "tuberculosis": (r"tubercul(?:osis|ous)",),
    "vascular congestion": (
        r"(?:lungen(?:venen|gefäß)?|pulmonal|lungenvenöse |pulmonalvenöse |pulmonale )?(?:stauung|"
        r"stauungszeichen)",
        r"(?:(?:pulmonary|central) )?(?:vascular|vasc|venous) (?:congestion|engorgement)",
        r"cephali[sz]ation",
    ),
}
# Forms that say by themselves that a finding is not there, or that nobody can say.
_NORMAL_FORMS: Final[dict[str, tuple[str, ...]]] = {
    "pleural effusion": (r"ergu(?:ss|ß)frei(?:e[rsnm]?)?",),
    "costophrenic blunting": (
        rf"{_ANGLE} (?:is|are)(?: not|n['’]t) (?:\w+ )?blunted",
        rf"{_RANDWINKEL} (?:\w+ ){{0,2}}nicht (?:\w+ )?{_BLUNT}",
    ),
    "cardiomegaly": (
        rf"{_RATIO}(?:normal|(?:<|less than|below|unter) ?0[.,]50?|0[.,][1-4]\d?)",
        rf"{_BOTH} {_IS_HOW}{_NORMAL}",
        rf"(?:{_SIZE_OF_HEART}|{_HERZ}) {_SEEMS_LARGE}",
        rf"{_SIZE_OF_HEART}(?: (?:and|,)? ?(?:pulmonary vascular\w*|contours?|size)){{0,3}} "
        rf"{_IS_HOW}{_NORMAL}",
        rf"{_SIZE_OF_HEART} (?:is|was)n['’]t (?:\w+ )?{_LARGE}",
        r"normal (?:heart|cardiac) (?:size|silhouette|contours?)|normal(?: sized)? heart",
        rf"{_HERZ}(?: und (?:lungen?|pulmo))? (?:ist |sind )?(?:nicht (?:\w+ ){{0,2}}(?:"
        r"vergr(?:ö|oe)(?:ß|ss)ert|verbreitert)|norm(?:al ?)?gro(?:ß|ss)|normal ?weit|normal|schlank|im "
        r"normbereich|(?:\w+ )?in der norm|regelrecht|unauffällig|nicht (?:zu )?gro(?:ß|ss))",
        r"(?:normal ?|norm)gro(?:ß|ss)e[rsnm]? herz(?:schatten|silhouette)?",
    ),
    "enlarged cardiomediastinum": (
        rf"{_BOTH} {_IS_HOW}{_NORMAL}",
        rf"{_CARDIOMEDIASTINUM} {_SEEMS_LARGE}",
        rf"{_CARDIOMEDIASTINUM} {_IS_HOW}{_NORMAL}",
        r"normal (?:cardio ?)?mediastinal (?:silhouette|contours?)",
        r"(?:mediastinum|mediastinalschatten) (?:ist )?(?:mittelständig(?:,| und) )?(?:nicht (?:\w+ "
        r")?verbreitert|schlank|normal ?(?:weit|breit)?|regelrecht|unauffällig)",
    ),
}
_BORDERLINE_FORMS: Final[dict[str, tuple[str, ...]]] = {
    "enlarged cardiomediastinum": (
        rf"{_CARDIOMEDIASTINUM} (?:is |appears |ist )?{_PERHAPS} {_IS_HOW}(?:{_LARGE}|(?:\w+ )?verbreitert)",
    ),
    "cardiomegaly": (
        rf"{_SIZE_OF_HEART} {_IS_HOW}{_BORDERLINE}",
        rf"{_SIZE_OF_HEART} (?:is |appears )?{_PERHAPS} {_IS_HOW}{_LARGE}",
        rf"{_HERZ} (?:ist |erscheint )?{_PERHAPS} (?:\w+ )?(?:vergr(?:ö|oe)(?:ß|ss)ert|verbreitert)",
        r"borderline (?:heart|cardiac) (?:size|enlargement)",
        rf"grenzwertige {_HERZ}|{_HERZ} (?:ist )?(?:grenzwertig|grenzgradig)(?: (?:gro(?:ß|ss)|"
        r"vergr(?:ö|oe)(?:ß|ss)ert|verbreitert))?",
    ),
}

_BY_STATE: Final[tuple[tuple[Literal["absent", "uncertain"] | None, dict[str, tuple[str, ...]]], ...]] = (
    ("absent", _NORMAL_FORMS),
    ("uncertain", _BORDERLINE_FORMS),
    (None, _FORMS),
)

# Words that hold a form and mean something else.
_OTHER_FORMS: Final = (
    r"mass (?:of|effect|index)|masses of|(?:nodule|mass|tumou?r) like",
    r"pseudo ?(?:nodules?|mass(?:es)?|tumou?rs?|lesions?|pneumothorax|cardiomegaly)",
    r"(?:soft tissue|ankle|leg|foot|peripheral|bone marrow|marrow|periorbital) o?edema",
    r"(?:joint|knee) effusions?|(?:tract|wound|skin|bone|joint|blood ?stream|pocket|line) infections?",
    # What is advised is not there yet.
    rf"(?:{'|'.join(_FORMS['support device'])}|drainagen?)(?: (?:placement|insertion)|(?:ein|an)lage)? "
    r"(?:(?:is|are|should|may|could|be|dringend|umgehend) ){0,3}(?:advised|recommended|suggested|planned|"
    r"considered|indicated|needed|required|requested|scheduled|empfohlen|angeraten|geplant|vorgesehen|"
    r"indiziert|erforderlich|notwendig|erwogen|erbeten|zu erwägen)",
    r"(?:recommend|advise|suggest|consider|plan|needs?|requires?)(?:s|ed|ing)? (?:(?:an?|urgent|immediate|"
    r"placement of|insertion of) ){0,3}(?:chest tubes?|(?:[\w]+ ){0,2}(?:catheters?|drains?|tubes?|lines?)|"
    r"pace ?makers?)(?! (?:\w+ )?(?:withdrawal|advancement|repositioning|retraction|removal|exchange))",
    # The cause of another finding: "no catheter or tube related pneumothorax".
    r"(?:(?:catheter|tube|line|lead|device|drain|pacemaker|stent|port)(?: (?:or|and|/) )?){1,3} ?(?:related|"
    r"induced|associated|bedingte[rsnm]?|assoziierte[rsnm]?)",
)

# German words, alone and as last parts of compounds: "Erguss", "Winkelerguss", "Spannungspneumothorax".
_LAST_PARTS: Final[dict[str, str]] = {
    "atelectasis": r"(?:dys|a)telektasen?",
    "calcification": r"verkalkung(?:en)?",
    "consolidation": r"konsolidierung(?:en)?",
    "fracture": r"fraktur(?:en)?",
    "lung opacity": r"infiltrat(?:e[sn]?|s|ion|ionen)?|verschattung(?:en)?",
    "mass": r"tumor(?:s|en)?",
    "nodule": r"rund(?:herde?s?|herden|schatten)",
    "pleural effusion": r"erg(?:uss|uß|usses|üssen?|uessen?)",
    "pneumonia": r"pneumonien?",
    "pneumothorax": r"pneumothora(?:x|ces|xe)",
    "support device": r"schrittmacher(?:s|aggregat|sonden?)?|katheters?|tubus|cerclagen?",
}
# Compounds of other sites, such as "Gelenkerguss".
_OTHER_COMPOUND: Final = re.compile(
    r"(?:peri[ck]ard|herzbeutel|gelenk|knie|hüft|schulter|pauken|trommel|blut|samen)\w*erg", re.IGNORECASE
)
_MAX_FIRST_PARTS: Final = 60
# What may follow in a compound: "Ergussbildung".
_TAIL: Final = (
    r"n?s?(?:(?:aus)?bildung(?:en)?|nachweise?s?|zeichen|areale?n?|zonen?|saum|lamellen?|mengen?|sichel)"
)
# Findings that procedures leave behind: "status post pacemaker placement".
DEVICE: Final = "support device"
FINDINGS: Final[tuple[str, ...]] = tuple(sorted(_FORMS, key=str.lower))


def _spaced(forms: Iterable[str]) -> str:
    every = "|".join(forms).replace(" ?", r"[\s\-]*").replace(" ", r"[\s\-]+")
    return rf"(?<!\w)(?:{every})(?!\w)"


def _pattern(forms: Iterable[str]) -> re.Pattern[str]:
    return re.compile(_spaced(forms), re.IGNORECASE)


@cache
def _any_form() -> re.Pattern[str]:
    # Without IGNORECASE it is six times as fast as the patterns of all findings.
    every = (one for _, table in _BY_STATE for own in table.values() for one in own)
    return re.compile(_spaced(every).lower())


def has_written_forms(text: str) -> bool:
    """Tell whether a text that is written out has any form of the vocabulary."""
    lowered = text.lower()
    return _any_form().search(lowered) is not None or any(compounds(lowered))


def has_forms(text: str) -> bool:
    """Tell whether a text has any form of the vocabulary: most captions of photographs have none."""
    return has_written_forms(text) or (
        (written := written_out(text).text) != text and has_written_forms(written)
    )


@cache
def _compound_pattern() -> re.Pattern[str]:
    every = "|".join(f"({last})" for last in _LAST_PARTS.values())
    return re.compile(rf"(?:{every})(?:{_TAIL})?(?!\w)", re.IGNORECASE)


def compounds(text: str) -> Iterator[tuple[str, int, int]]:
    """Give the name of the finding that a compound ends in, and where the compound begins and ends."""
    for match in _compound_pattern().finditer(text):
        start = match.start()
        least = max(0, start - _MAX_FIRST_PARTS)
        while start > least and text[start - 1].isalpha():
            start -= 1
        if not _OTHER_COMPOUND.match(text, start):
            yield tuple(_LAST_PARTS)[(match.lastindex or 1) - 1], start, match.end()


@cache
def forms() -> tuple[tuple[Literal["absent", "uncertain"] | None, str, re.Pattern[str]], ...]:
    """Patterns of forms, each with the state that it says by itself, if any, and the name of its finding."""
    return tuple((state, name, _pattern(own)) for state, table in _BY_STATE for name, own in table.items())


@cache
def other_forms() -> re.Pattern[str]:
    """The pattern of words that hold a form and mean no finding."""
    return _pattern(_OTHER_FORMS)


def finding_called(text: str) -> str | None:
    """Return the name of the finding that a text is the name or a form of, such as "effusions"; else None."""
    plain = " ".join(text.split())
    for name in FINDINGS:
        if name.lower() == plain.lower():
            return name
    whole = (name for name, start, end in compounds(plain) if (start, end) == (0, len(plain)))
    plainly = (name for state, name, own in forms() if state is None and own.fullmatch(plain))
    return next(plainly, next(whole, None))
