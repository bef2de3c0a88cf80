"""Cues of English reports; the module `cues` says how they are written."""

from typing import Final

from training.reports.effects import CueTable

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
LIMIT: Final = (
    r"(?:new|large|larger|sizeable|sizable|increasing|enlarging|worsening|progressive|additional|other)"
)
_AT_END: Final = r"(?= ?(?:[.,;)?]|$|and\b|but\b|at\b|in\b|on\b|present\b|by\b|per\b|without\b|since\b))"
_ENDS: Final = (
    r"(?= ?(?:[.;)]|,(?! (?:now|today|still))|$|and\b|(?:on|in|from) (?:the )?(?:\d|right\b|left\b)))"
)
_EARLIER: Final = (
    r"(?:prior|previous|earlier|outside|old|last)(?: [\w\-]+){0,2} (?:stud(?:y|ies)|exam(?:ination)?s?|"
    r"radiographs?|films?|x rays?|x-rays?|images?|cts?|scans?)"
)

ENGLISH: Final[CueTable] = (
    (
        "none",
        "behind",
        (
            r"not only",
            r"(?:no|not) (?:more|greater|less|larger|worse|bigger|other) than",
            r"compar(?:ed|ison) (?:to|with) (?:the )?(?:prior|previous|last)(?: \w+)?(?= (?:without|with|"
            r"no)\b)",
            r"(?:not|never) (?:without|free of|absent)",
            rf"(?:no|not|without) {_HOW_MUCH}(?:changed?|differen(?:t|ce))",
            rf"(?:no|not|without) {_HOW_MUCH}(?:increased?|decreased?|improve(?:d|ment)|"
            r"worse(?:ned)?|worsening(?= (?:of|in)\b)|larger|progress(?:ed|ion)|enlarge(?:d|ment)|"
            r"growth|grown|extension|bigger|smaller)",
            r"(?:as )?clinically (?:questioned|suspected|indicated|warranted)",
            rf"not {_SEEN} (?:on|in|at) (?:(?:the|any) )?(?:prior|previous|earlier|old)",
            rf"(?:no|{_ISNT}) {_HOW_MUCH}(?:resolved|resolution|cleared|clearing|removed)",
            r"to (?:suggest|indicate|support)",
            r"without (?:prior|previous|comparison)",
            r"(?:partial|incomplete|near[\- ]complete|almost complete|ensure|document|confirm|"
            r"until) (?:(?:complete|full|the) )*"
            r"(?:resolution|clearing)(?: of)?",
            r"(?:partially|incompletely|nearly|almost) (?:completely )?(?:resolved|cleared)",
            r"(?:consistent|compatible|keeping|associated) with(?! the (?:prior|previous))",
        ),
    ),
    (
        "uncertain",
        "behind",
        (
            r"\A(?:un|less )likely\b",
            r"(?:less likely|unlikely)(?= (?:an? |the )?\ufffc)",
            # A label in front of its findings: "Not excluded: pneumonia."
            rf"(?:{_NOT} (?:be |been )?(?:excluded|ruled out|assessed)|possible|probable|likely|suspected|"
            r"suspicion|questionable|uncertain|equivocal|differential(?: diagnos[ei]s)?) ?:",
        ),
    ),
    ("absent", "behind", (rf"(?:not {_SEEN}|excluded|ruled out|absent|none|negative|resolved|removed) ?:",)),
    (
        "absent",
        "behind",
        (
            rf"no longer {_SEEN} {_BE}",
            rf"\Anot {_SEEN} {_BE}",
            rf"{_ISNT} (?:\w+ly )?(?:suggest(?:ive)?(?: of)?|indicat(?:e|ive)(?: of)?|consistent with|"
            r"compatible with|diagnostic of|represent(?:ing)?|(?:suspicious|concerning|worrisome) for)",
            r"(?:no|not|without) (?:(?!but\b|with\b)\w+ ){0,3}either",
            r"no (?:\w+ )?(?:reason|cause) to suspect",
        ),
    ),
    (
        "uncertain",
        "before",
        (
            rf"{_NOT} (?:be |been )?{_HOW_MUCH}(?:excluded|ruled out)",
            rf"{_CANNOT} be {_HOW_MUCH}(?:adequately |fully |well )?(?:assessed|evaluated)",
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
            r"(?:must|should|needs? to) be (?:excluded|ruled out|considered)",
            r"\? ?$",
        ),
    ),
    (
        "uncertain",
        "both",
        (
            r"(?:difficult|hard|impossible|unable) to (?:\w+ )?(?:exclude|rule out)",
            r"(?:versus|vs\.?)",
            r"if any",
            r"favou?red (?:over|rather than)",
        ),
    ),
    (
        "uncertain",
        "behind",
        (
            rf"{_NOT} {_HOW_MUCH}(?:exclude|rule out|excluded|excluding)",
            r"(?:no|without|not) (?:any )?(?:definite|definitive|definitely|definitively|convincing|"
            r"conclusive|certain)"
            r"(?: (?:radiographic|sonographic|ct))?(?: (?:evidence|signs?))?(?: of)?",
            r"(?:no|without) (?:(?:evidence|signs?) (?:of|for) )?(?:(?:a|any) )?"
            rf"{LIMIT}(?! than)",
            r"(?:not typical|atypical) (?:for|of)",
            r"either(?! (?:side|lung|base|apex|hemi\w+|hemithorax|costophrenic|of)\b)",
            r"possib(?:le|ly|ility of)(?: with)?",
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
            # "May" is no month here.
            r"(?:(?<!\d\x20)(?<!\bin\x20)(?<!\bof\x20)(?<!\bsince\x20)(?<!\bfrom\x20)may(?!,? \d)|might|"
            r"could)",
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
            r"in the absence of",
            r"(?:treated|treatment|therapy|surgery|placement|insertion|drainage|thoracentesis|"
            r"pleurodesis|biopsy|resection) for",
            r"(?:s/p|status post|after|following|post) (?:\w+ ){0,3}(?:drainage|evacuation|aspiration|"
            r"thoracentesis|biopsy|resection|repair|treatment|ablation) (?:of|for)",
            r"(?<=removal\x20)for\b",
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
        "past",
        "behind",
        (
            r"(?:s/p|status[\- ]post)",
            r"(?:after|following|post) (?:(?:prior|previous|recent|remote|old) )?(?=\ufffc)",
            # A finding of an earlier examination alone: no more is said of it, as in "prior effusion has
            # resolved"; "evidence of prior fracture" is seen today.
            rf"(?<!of\x20)(?<!from\x20)(?<!to\x20)(?:prior|previous|former|past)"
            rf"(?= (?:[\w\-]+ ){{0,3}}\ufffc+{_ENDS})",
        ),
    ),
    (
        "past",
        "before",
        (
            rf"(?:was|were) (?:{_SEEN} |described )?(?:on|in|at) (?:the |an? )?{_EARLIER}{_ENDS}",
            rf"(?<=\ufffc\x20)(?:on|in|at) (?:the |an? )?{_EARLIER}{_ENDS}",
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
            r"(?:removal|withdrawal|explantation|extraction)(?! of\b)",
            rf"{_BE} within (?:the )?(?:normal limits|limits of normal)",
            rf"{_BE} none",
            r": ?(?:none|no|absent|negative|nil)(?= ?(?:[.,;)]|$))",
            r"\(-\)",
        ),
    ),
    (
        "absent",
        "behind",
        (
            r"no longer",
            rf"(?:no|nothing|without|neither|nor|never|lacks?|{_ISNT}|absent|resolved|denies)",
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
            r"(?:but|however|although|though|except|besides|whereas|while|yet|instead|which|with|showing)",
            r"(?:other than|apart from|aside from|(?<!the\x20)following(?! (?:day|findings?)\b)|after)",
            r"post (?!\w*(?:op|surg|procedur|traum|inflam|infect|obstruct|treat|radiat|stenot|term))",
            r"there (?:is|are|was|were|has been|have been)",
            r"(?:and|,) (?:the|there|(?:slight |mild )?(?:de|in)crease in|improvement in|worsening of)",
            r"[;:]",
        ),
    ),
)
