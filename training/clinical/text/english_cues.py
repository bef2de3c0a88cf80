"""Cues of English reports; the module `findings` says how they are written."""

from typing import Final, Literal

# Effects of a cue on findings: `unstated` leaves them out, `past` does so with all but support devices, which
# stay, `none` covers words that would be other cues, and `end` is where the scope of others ends.
Effect = Literal["none", "unstated", "past", "uncertain", "absent", "end"]
# Positions of those findings: behind the cue, before it, or on both sides.
Side = Literal["behind", "before", "both"]
CueTable = tuple[tuple[tuple[Effect, Side], *tuple[str, ...]], ...]

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
    r"apparent|observed|shown|recogni[sz]ed|reproduced|discernible|in evidence|suspected)"
)
_BE: Final = r"(?:is|are|was|were|has been|have been|remains?|appears?|seems?)"
LIMIT: Final = r"(?:new|larger?|size?able|increasing|enlarging|worsening|progressive|additional|other)"
# Any words between a negation and what it denies: "cannot be definitively excluded".
_WORDS: Final = r"(?:(?!(?:and|but|or|is|are)\b)[\w\-]+,? ){0,3}"
_EXCLUDED: Final = r"(?:excluded|ruled out|dismissed|discounted|r/o['’]?d)"
_EXCLUDE: Final = r"(?:exclude|excluding|rule out|ruling out|dismiss|discount)"
_ASSESS: Final = (
    r"(?:exclude|rule out|assess|evaluate|detect|identify|see|visuali[sz]e|confirm|determine|diagnose|say)"
)
_EXCLUSION: Final = (
    r"(?:exclusion|evaluation|assessment|detection|visuali[sz]ation|diagnosis|sensitivity|ability)"
)
_POOR: Final = (
    r"(?:limited|reduced|low|poor|inadequate|insufficient|(?:not|never) (?:\w+ )?(?:possible|feasible|"
    r"reliable)|impossible|difficult|suboptimal|precluded|restricted|impaired|hampered|compromised|degraded|"
    r"hindered|unreliable|incomplete)"
)
_SIDE: Final = r"(?:(?:left|right)(?:[\- ]sided?)?)"
_AT_END: Final = (
    r"(?= ?(?:[.,;)?]|$|(?:and|but|at|in|on|present|by|per|without|since|s/p|after|following|with "
    r"(?:confidence|certainty))\b))"
)
_ENDS: Final = (
    r"(?= ?(?:[.;)]|,(?! (?:now|today|still|jetzt|noch)(?![^.;,]*\ufffc)| (?:unchanged|stable|persist|"
    r"unverändert|stabil|weiterhin))|$|(?:and|per|according|laut|lt)\b|(?:on|in|from) (?:the )?(?:\d|right\b|"
    r"left\b)))"
)
_VALUE_ENDS: Final = r"(?= ?(?:\.(?!\s?\w)|[,;()\n]|[–-] |$))"
_EARLIER: Final = (
    r"(?:prior|previous|earlier|outside|old|last)(?: [\w\-]+){0,2} (?:stud(?:y|ies)|exam(?:ination)?s?|"
    r"radiographs?|films?|x rays?|x-rays?|images?|cts?|scans?)"
)

ENGLISH: Final[CueTable] = (
    (
        ("none", "behind"),
        r"not only|previously absent|to (?:suggest|indicate|support)|should (?:read|say|state)",
        r"(?:not (?:true|the case|correct)|wrong|untrue|false)(?: to (?:say|state|claim))?(?: that)? "
        r"there (?:is|are) no",
        r"(?:evaluat|characteri[sz]|quantif|clarif)\w* (?:the|this|these)(?= (?:(?!for\b)\w+ ){0,3}\ufffc)",
        r"without (?:prior|previous|comparison)",
        # What is so on one side alone is so of the other, or not: see `is_contrast`.
        r"[(\[–-] ?(?:not|nicht) (?:left|right|upper|mid|lower|apical|bas|links|rechts|apikal|ober|unter)"
        r"\w*(?:[ -]\w+)? ?[)\]–-]",
        rf"{_SIDE}[ ,–([-]+(?:(?:but|and|yet|though),? (?:no|not|without)|no|not|rather than)(?: (?:an?|"
        rf"any|on|the))* {_SIDE}",
        r"(?:unlike|other than|except|au(?:ß|ss)er|in contrast to|im (?:gegensatz|unterschied) zu|"
        r"anders als) (?:(?:on|the) )*(?:left|right|"
        r"links|rechts)[^.;\ufffc]* (?:no|not|without|keine?r?|ohne)(?: any)?",
        r"(?:no|not|without|(?:lack|absence) of) (?:\w+ ){0,2}(?:improvement|change|resolution|response|"
        r"clearing|regression)(?: (?:of|in|to))?",
        r"(?:no|not) (?:more|greater|less|larger|worse|bigger|other) than",
        r"compar(?:ed|ison) (?:to|with) (?:the )?(?:prior|previous|last)(?: \w+)?(?= (?:without|with|no)\b)",
        r"(?:no|not|never|no longer) (?:\w+ )?(?:without|free of|absent|clear (?:of|from)|(?:absence|"
        r"lack) of)",
        r"(?:no|without|beyond) (?:any |reasonable |reason to )?doubt(?: that| of| about)?",
        rf"(?:no|not|without) {_HOW_MUCH}(?:changed?|differen(?:t|ce))",
        rf"(?:no|not|without) {_HOW_MUCH}(?:increased?|decreased?|improve(?:d|ment)|worse(?:ned)?|"
        r"worsening(?= (?:of|in)\b)|larger|reduc(?:ed|tion)|shrink\w*|progress(?:ed|ion)|enlarge(?:d|"
        r"ment)|growth|grown|extension|bigger|smaller)",
        r"(?:as )?clinically (?:questioned|suspected|indicated|warranted)",
        # What is new: "an effusion that was absent on the prior".
        rf"(?:was |were )?(?:not (?:yet )?{_SEEN}|absent) (?:(?:on|in|at) (?:(?:the|any) )?)?"
        r"(?:prior|previous(?:ly)?|earlier|old|yesterday|before|this morning)(?![^.;,]* n?or\b)",
        rf"(?:no|{_ISNT}) {_HOW_MUCH}(?:resolved|resolution|cleared|clearing|removed)",
        r"(?:partial|incomplete|near[\- ]complete|almost complete|ensure|document|confirm|until|pending|"
        r"to (?:demonstrate|show|see|verify|establish|prove)|(?:assess|evaluate|check|monitor|look) for) "
        r"(?:(?:complete|full|the) )*(?:resolution|clearing|disappearance|resorption)(?: of)?",
        r"(?:partially|incompletely|nearly|almost|largely|mostly|partly) (?:completely )?(?:resolved|"
        r"cleared)",
        r"(?:consistent|compatible|keeping|associated) with(?! the (?:prior|previous))",
    ),
    (
        ("absent", "before"),
        # Values of keys: "Effusion: none", "Effusion? No.", "effusion -".
        r"\((?:none|no?|absent|negative?|nein|keine?r?)\.?\)",
        rf"[:=?–-](?<![^\s\ufffc][–-]) ?(?:jeweils )?(?:[n0]|none|not?|absent|negative?|resolved|free|"
        rf"nein|keine?[rsn]?|ohne|ø|nicht (?:vorhanden|nachweisbar|erkennbar|sichtbar)){_VALUE_ENDS}",
        # Behind a finding alone: "FINDINGS: No significant effusion" is a statement under a heading.
        r"(?<=\ufffc)\s?[:=?] ?(?:none|not?|negative|keine?[rsn]?)(?= (?:seen|identified|noted|visible|"
        r"evident|present|detected|demonstrated|appreciated|acute|significant|nachweisbar|erkennbar|"
        r"sichtbar|sicher\w*|frisch\w*|abgrenzbar)\b)",
        rf"(?<=\ufffc)[,;] (?:none(?: {_SEEN})?|no|absent|negative|nein|keine?[rs]?){_VALUE_ENDS}",
        rf"(?<=\ufffc)\s(?:none|negative?|no|(?-i:N)|nein|keine?[rs]?|ø){_VALUE_ENDS}",
        rf"(?<=\ufffc)\s*(?:[:=]\s*)?[-–](?!-){_VALUE_ENDS}",
    ),
    (
        ("unstated", "both"),
        # What may come is not there: "pneumothorax can develop after biopsy".
        r"(?:can|may|might|could|will|would) (?:(?!not\b)\w+ ){0,2}(?:develop|occur|arise|complicate|"
        r"recur|ensue|lead to)",
        r"(?:can|may|might|could) be (?:seen|found|caused|encountered|observed) (?:with|after|following|"
        r"by|in(?! (?:the|both|left|right|bi\w*|this|today)\b))",
        r"(?:often|usually|commonly|frequently|sometimes|typically|rarely|occasionally) (?:\w+ "
        r")?(?:develops?|occurs?|arises?|seen|follows?|complicates?|accompan\w+|found)",
        r"(?:is|are) (?:common|frequent|usual|expected|rare)(?= (?:after|in|with|following)\b)",
        r"(?:more|most|better|less) (?:sensitive|suited|suitable|accurate) (?:(?!and\b|but\b)\w+ "
        r"){0,4}(?:for|to|in|at)",
        r"(?:is|are) (?:an? )?(?:known |common |possible |potential |recogni[sz]ed |frequent |typical "
        r")+(?:complications?|risks?|causes?|sequela\w*)",
    ),
    (
        ("uncertain", "behind"),
        r"\A(?:un|less )likely\b",
        # What it is about is there: "the differential for the opacity includes pneumonia".
        r"(?:differen[tz]ial\w*(?: \w+)?|\w+ (?:causes?|explanations?|ursachen?)) (?:for|of|für|de[rs]) "
        r"[^.;,:\ufffc]*\ufffc+[^.;,:\ufffc]*(?:\b(?:includes?|is|are|would be|sind|ist|umfass\w+)|:)",
        rf"(?:{_CANNOT} be (?:said|stated|concluded|assumed|claimed)|(?:unsafe|unwise|premature|difficult|"
        r"impossible|hard|risky) to (?:say|state|conclude|assume|claim))(?: \w+)? that there is no",
        r"no certainty (?:about|of|regarding)",
        rf"\Anot (?:\w+ )?{_EXCLUDED} {_BE}\b",
        rf"(?:nothing|{_ISNT}) (?:\w+ )?(?:argu|speak|milit|weigh)\w* against",
        rf"no (?:\w+ )?(?:way|means|possibility) (?:to|of) (?:\w+ )?(?:{_ASSESS}|{_EXCLUDE})",
        rf"(?:{_ISNT}|{_CANNOT}|never) (?:\w+ ){{0,2}}(?:allow|permit|enable|suffice|support)(?:s|ed|"
        rf"ing)?(?: for)? (?:(?!and\b|but\b)\w+ ){{0,3}}(?:{_EXCLUSION}|to {_ASSESS}|{_EXCLUDE})(?: of| "
        r"for)?",
        r"(?:limit(?:s|ed|ing)?|preclud(?:es?|ed|ing)|prevent(?:s|ed|ing)?|hamper(?:s|ed|ing)?|"
        r"imped(?:es?|ed|ing)|reduc(?:es?|ed|ing)|impair(?:s|ed|ing)?|low|poor|hinder(?:s|ed|ing)?|"
        r"compromis(?:es?|ed|ing)|degrad(?:es?|ed|ing)|confound(?:s|ed|ing)?|lowers?|decreas(?:es?|ed|"
        rf"ing)) (?:(?!and\b|but\b)\w+ ){{0,3}}{_EXCLUSION}(?: (?:of|for|to))?(?: {_ASSESS})?(?=(?: "
        rf"(?!secondary|due|by|because|reveal|show|and\b|with)[\w\-]+){{0,4}} \ufffc)",
        rf"(?:insensitive|not (?:\w+ )?sensitive(?: enough)?) (?:for|to|in)(?: {_ASSESS})?(?: of| for)?",
        r"(?:non-?diagnostic|inadequate|suboptimal|insufficient|unsuitable|limited|of (?:limited|"
        r"little) (?:use|value)) for",
        r"(?:exclusion|evaluation|assessment|detection|sensitivity|exclud(?:e|ing)|rul(?:e|ing) out|"
        rf"assess|evaluate|to exclude)(?: for| of)?(?= [^.;]*\b(?:{_BE} (?:\w+ )?{_POOR}|requires?|"
        r"needs?|necessitates?)\b)",
        r"(?:less likely|unlikely)(?= (?:an? |the )?\ufffc)",
        # A label in front of its findings: "Not excluded: pneumonia."
        rf"(?:{_NOT} (?:be |been )?(?:excluded|ruled out|assessed)|possible|probable|likely|suspected|"
        r"suspicion|questionable|uncertain|equivocal|differential(?: diagnos[ei]s)?) ?:",
    ),
    (
        ("absent", "behind"),
        rf"(?:not {_SEEN}|excluded|ruled out|absent|none|negative(?: for)?|resolved|removed|"
        r"(?:no|without)(?: \w+)? (?:evidence|signs?)(?: (?:of|for))?) ?:",
        rf"(?:no longer|\Anot) {_SEEN} {_BE}",
        rf"{_ISNT} (?:\w+ly )?(?:suggest(?:ive)?(?: of)?|indicat(?:e|ive)(?: of)?|consistent with|"
        r"compatible with|diagnostic of|represent(?:ing)?|(?:suspicious|concerning|worrisome) for)",
        r"no (?:\w+ )?(?:reason|cause) to suspect",
    ),
    (
        ("uncertain", "before"),
        rf"(?:{_NOT}|never) {_WORDS}(?:and \w+ly )?{_EXCLUDED}",
        rf"{_CANNOT},? [^.;,]{{0,40}}, be {_WORDS}{_EXCLUDED}",
        rf"(?:{_BE} )?(?:neither|not) (?:be )?\w+ n?or (?:be )?{_EXCLUDED}",
        rf"(?:{_BE} )?{_POOR}{_AT_END}",
        rf"{_BE} (?:(?:only|just) )?(?:incompletely|partially|poorly|inadequately|suboptimally) "
        rf"(?:{_EXCLUDED}|assessed|evaluated|seen|visuali[sz]ed)",
        r"(?:may|might|could|can) (?:\w+ )?(?:be )?(?:missed|overlooked|obscured|masked|hidden|"
        r"(?:remain )?occult)",
        rf"{_CANNOT} be {_HOW_MUCH}(?:adequately |fully |well )?(?:assessed|evaluated)",
        rf"(?:{_CANNOT} be|(?:{_BE} )?not) (?:(?:definit(?:iv)?e|clear|optimal|reliab)ly|well) {_SEEN}",
        rf"(?:{_BE}|(?:may|might|could|would) be) (?:\w+ly )?(?:considered )?(?:a )?(?:possible|"
        r"suspected|questioned|questionable|uncertain|equivocal|unlikely|less likely|doubtful|doubted|"
        r"a possibility|a concern|a consideration|in the differential)(?! that\b)",
        rf"(?:possible|likely|questioned|suspected|probable){_AT_END}",
        rf"(?:may|might|could|would)(?: not)? be {_SEEN}",
        # Behind a finding: "effusion, if any", not "small, if any, effusion".
        r"[, ](?<=\ufffc[, ]) ?if (?:any|present)\b",
        r"(?:is )?(?:less likely|unlikely)(?! (?:to|that)\b)",
        r"not (?:been )?confirmed",
        r"(?:must|should|needs? to) be (?:excluded|ruled out|considered)",
        r"\? ?$",
    ),
    (
        ("uncertain", "both"),
        r"(?:(?:difficult|hard|premature|unsafe|unwise|impossible|unable|inability|insufficient|"
        r"inadequate|insensitive|not (?:\w+ )?(?:possible|able|feasible|enough|sufficient|adequate|"
        rf"sensitive(?: enough)?)|(?:{_CANNOT}|could not|{_ISNT})(?: \w+)? (?:used|relied (?:up)?on)) "
        rf"to|ability to) (?:\w+ ){{0,2}}{_ASSESS}(?: for| of)?",
        r"too (?:\w+ )?to (?:\w+ )?(?:exclude|rule out|assess|evaluate|detect)",
        rf"(?:{_CANNOT}|could not|not|difficult to) (?:be )?(?:\w+ )?(?:differentiate|distinguish|"
        r"separate)(?:d|ed)? from",
        r"(?:indistinguishable from|versus|vs\.?|if any)",
        r"(?:(?:more|most|less) (?:likely|probabl[ey]) than|favou?red (?:over|rather than))",
    ),
    (
        ("uncertain", "behind"),
        rf"(?:{_NOT}|fail(?:s|ed)? to) {_WORDS}(?:and \w+ly )?(?:{_EXCLUDE}|excluded)(?: with "
        r"(?:\w+ )?(?:certainty|confidence))?",
        rf"{_CANNOT}, [^.;,]{{0,40}}, {_WORDS}{_EXCLUDE}",
        rf"(?:neither|{_NOT}) (?:{_EXCLUDE}|confirm|rule in) n?or (?:{_EXCLUDE}|confirm|rule in)",
        rf"nor (?:can|could)(?= [^.;]*\b{_EXCLUDED}\b)",
        rf"(?:neither|nor|no)(?= [^.;]*\b(?:can|could) be {_WORDS}{_EXCLUDED}\b)",
        r"(?:no|without|not) (?:any )?(?:definite|definitive|definitely|definitively|convincing|"
        r"conclusive|certain)(?: (?:radiographic|sonographic|ct))?(?: (?:evidence|signs?))?(?: of)?",
        rf"(?:no|without) (?:(?:evidence|signs?) (?:of|for) )?(?:(?:a|any) )?{LIMIT}(?! than)",
        r"(?:not typical|atypical|low probability) (?:for|of)",
        r"either(?! (?:side|lung|base|apex|hemi\w+|hemithorax|costophrenic|of)\b)",
        r"(?:possib|probab)(?:le|ly|ility of)(?: with)?",
        r"(?:un|less )?likely(?: that(?: (?:this|it|there))?)?(?: (?:is|are|represents?))?",
        r"(?:presum(?:ed|ably|ptive)|perhaps|maybe|potential(?:ly)?)",
        r"suspect(?:ed|s)?",
        r"(?:suspicio(?:us|n)|concern(?:ing)?|worrisome) (?:for|of)",
        r"(?:question(?:able|ed)?|query|queried)(?: of)?",
        r"(?:equivocal|borderline|doubtful|doubt)",
        # "May" is no month here.
        r"(?:(?<!\d\x20)(?<!\bin\x20)(?<!\bof\x20)(?<!\bsince\x20)(?<!\bfrom\x20)may(?!,? \d)|might|could)",
        r"(?:whether|wonder(?:ing)? (?:about|if))(?: there (?:is|are))?",
        r"(?:thought|felt|believed) to (?:be|represent|reflect)",
        r"suggest(?:s|ed|ing|ive|ion)?(?: of)?",
        r"differen[tz]ial(?:diagnosen?)?(?: \w+)?(?: includes?)?",
        r"(?:consider(?:ed|ation of)?|favou?r(?:s|ed|ing)?)",
        r"\?(?:(?=\S)|\s+)",
    ),
    (
        ("unstated", "behind"),
        r"(?:can|may|might|could|would) (?:help|aid|be (?:used|helpful|useful|considered|obtained|"
        rf"performed))(?: to| in)? (?:\w+ )?(?:{_ASSESS}|look|detecting|excluding)(?: for)?",
        r"(?:(?:past |known |clinical |prior )*(?:history|hx) of|h/o)",
        r"in the absence of",
        r"(?:treated|treatment|therapy|surgery|placement|insertion|drainage|thoracentesis|pleurodesis|"
        r"biopsy|resection|\w+ectomy) for",
        r"(?:present(?:s|ed|ing)|intubated|admitted|hospitali[sz]ed|sent|imaged) (?:with|for)",
        r"(?:advise|recommend|obtain|request|repeat)(?:ed|s)? (?:[\w\-]+ ){1,4}for(?! the\b)",
        r"(?:the )?(?:sentence|statement|phrase|wording) (?:on|about|regarding|of)",
        r"(?:s/p|status post|after|following|post) (?:\w+ ){0,3}(?:drainage|evacuation|aspiration|"
        r"thoracentesis|biopsy|resection|repair|treatment|ablation) (?:of|for)",
        r"correlat(?:e|ion)(?: \w+)?(?: for| with)",
        r"(?:evaluat|assess|check|look|screen)(?:e|ing|ion|ment)?(?: (?:for|of))?",
        r"(?:rul(?:e|ing) out|r/o|exclud(?:e|ing))",
        r"clinical(?:ly)? (?:concern|suspicion|question|indication)(?: (?:for|of|is))?",
        r"(?:request|requisition|referr(?:al|ed))(?: form)?:? (?:reads?|states?|says?|mentions?|asks?|for)",
        r"(?:if(?: there (?:is|are))?|should(?! not\b)|in case of|at risk (?:of|for)|risk (?:of|for)|to "
        r"prevent)",
    ),
    (
        ("past", "behind"),
        r"(?:s/p|status[\- ]post)",
        r"(?:patient|he|she) (?:has )?(?:previously )?had",
        rf"(?:on|in|at) (?:the |an? )?{_EARLIER},? there (?:was|were)",
        rf"{_EARLIER}[^.;,]{{0,20}},? (?:which|that) (?:had )?(?:show(?:ed|n)|demonstrated|revealed)",
        r"comparison (?:is|was) made (?:to|with)(?: \w+){0,4} (?:showing|with)",
        r"(?:patient|man|woman|male|female|gentleman|lady)s? (?:with|who has)(?: an?)?",
        r"(?:film|radiograph|study|exam\w*|image|scan|x-?ray|ct)(?: [\w.]+){0,4},? (?:on|in|at) which",
        r"(?:after|following|post) (?:(?:prior|previous|recent|remote|old) )?(?=\ufffc)",
        # A finding of an earlier examination alone: no more is said of it, as in "prior effusion has
        # resolved"; "evidence of prior fracture" is seen today.
        r"\A(?:last (?:year|month|week|winter|spring|summer|fall)|in (?:\w+ )?(?:19|20)\d\d|(?:19|20)\d\d|in "
        r"(?:january|february|march|april|june|july|august|september|october|november|december))\b,?",
        r"(?<!of\x20)(?<!from\x20)(?<!to\x20)(?:prior|previous|former|past)(?= (?:[\w\-]+ "
        rf"){{0,3}}\ufffc+{_ENDS})",
    ),
    (
        ("unstated", "before"),
        r"[:=?] ?(?:n/a|n\.a\.|unknown|not (?:assessed|evaluated|applicable|reported)|nicht "
        r"(?:beurteilt|beurteilbar))",
    ),
    (
        ("past", "before"),
        rf"(?:was|were) (?:{_SEEN} |described )?(?:on|in|at) (?:the |an? )?{_EARLIER}{_ENDS}",
        rf"(?<=\ufffc\x20)(?:on|in|at) (?:the |an? )?{_EARLIER}{_ENDS}",
        r"(?<=\ufffc\x20)(?:(?:was|were|has been|have been|wurden?) )?(?:treated|drained|evacuated|"
        r"tapped|aspirated|behandelt|punktiert|drainiert|entlastet)(?![^.;\ufffc]*\b(?:now|no|not|"
        r"resolved|jetzt|kein\w*|nicht)\b)",
        r"(?<=\ufffc\x20)(?:(?:(?:in|im)(?: jahre?)? (?:\w+ )?)?(?:19|20)\d\d|last (?:year|month|week|"
        r"winter|spring|summer|fall)|im (?:vorjahr|(?:letzten|vergangenen) (?:jahr|monat))|letzte[ns]? "
        r"(?:jahr|monat|woche)|(?:per|according to|laut) (?:the )?(?:patient|chart|history|(?:medical "
        rf")?records?|akte|anamnese)){_ENDS}",
        r"(?<=\ufffc\x20)(?:\d+|one|two|three|four|several|a few|some) (?:days?|weeks?|months?|years?) "
        rf"ago{_ENDS}",
    ),
    (
        ("absent", "before"),
        rf"(?:(?:{_BE}|can|could) )?(?:now )?no longer (?:be )?{_SEEN}",
        rf"(?:{_CANNOT} be|(?:{_BE} )?{_ISNT}) {_HOW_MUCH}{_SEEN}(?! to\b)",
        r"(?:turn(?:s|ed)? out|prove[sd]?) to be(?! (?:[\w\-]+ ){0,3}\ufffc)",
        r"(?:has|have|had|is|are|was|were) (?:(?!not |never |nearly |almost |partially |incompletely |"
        r"partly |largely |that )\w+ ){0,3}(?:resolved|cleared|disappeared|removed|pulled|withdrawn|"
        r"explanted|gone|lacking|absent|excluded|ruled out(?! for\b))",
        rf"(?:resolved|cleared|removed|pulled|explanted|absent|excluded|ruled out|(?<!almost\x20)"
        rf"(?<!nearly\x20)(?:completely|entirely|fully) (?:gone|receded|regressed|subsided)){_AT_END}",
        r"(?:removal|withdrawal|explantation|extraction)(?! (?:of|by|is|should|recommended|advised|"
        r"planned)\b)",
        r"(?:on|in) neither (?:side|lung|base|apex)",
        rf"{_BE} (?:none|retracted|withdrawn|rescinded|(?:merely )?(?:an? )?artifact\w*)",
        r"(?:is|are|was|were|(?<!likely\x20)represents|corresponds to|reflects|(?:due|secondary) to|"
        r"caused by)(?= (?:(?:merely|only|an?|the|over\w+|superimposed) ){0,3}(?:arte?facts?|nipples?|"
        r"skin ?folds?|overlap\w*|summation|vessels? (?:on end|en face|seen end)|clothing|buttons?)\b)",
        rf"(?:{_BE} )?(?:by no means|in no way|nowhere) (?:to be )?{_SEEN}",
        r"(?<=\ufffc\x20)out(?= ?(?:[.,;]|$))",
        r"no (?:\w+ )?(?:recurrence|re-?accumulation)(?! of)",
        r"(?:has|have) not (?:recurred|returned|reappeared|re-?accumulated)",
    ),
    (
        ("absent", "behind"),
        rf"(?:no(?: longer|thing|body)?|without|neither|nor|never|lacks?|{_ISNT}|absent|resolved|denies)",
        r"(?:free|clear) (?:of|from)",
        r"(?:negative|unremarkable) (?:(?!except|save|but|bar)\w+ )?for",
        r"ruled out for",
        r"(?:absence|lack|disappearance|resolution|clearing|clearance|resorption|removal) of",
        r"fail(?:s|ed)? to(?! (?:resolve|clear|improve|respond)\b)",
        r"(?:rather than|instead of|as opposed to|in place of|in lieu of)",
        r"what (?:looked like|(?:appeared|seemed) to be|(?:was|had been) (?:thought|taken|read|believed|"
        r"called|described)(?: (?:to be|as|for))?)",
        r"(?:misread|misinterpreted|mistaken|confused) (?:as|for|with)",
        r"(?:mimic|resembl|simulat|imitat|masquerad|feign)(?:s|es|e|ed|king|ing)?(?: as| of)?",
        r"(?:argu|speak|milit|weigh)(?:s|es|e|ed|ing|ates|ate)?(?: \w+)? against",
        r"(?:evidence|signs?|features?|(?:is|are|was|were)(?: \w+)?) against",
        r"(?:apparent|seeming|questioned|supposed|so-called|spurious|pseudo)(?= [^.;]*\b(?:due to|"
        r"because of|caused by|related to|secondary to|explained by|attributable to|"
        r"(?<!likely\x20)(?:reflects|represents)|results? (?:from|of)|accounted|owing to|(?:is|are) "
        r"(?:an?|the) (?!\ufffc)|positional|technical|artifact\w*|projection\w*|in fact|actually|really|"
        r"merely|nipple|skin fold|overlap\w*|summation)\b)",
    ),
    (
        ("end", "behind"),
        r"(?:but|however|although|though|except|besides|whereas|while|yet|instead|which|with|showing|"
        r"bar|barring|given|save(?: for)?|excepting)",
        r"(?:other than|apart from|aside from|(?<!the\x20)following(?! (?:day|findings?)\b)|after)",
        r"there (?:is|are|was|were|has been|have been)",
        r"[,] (?:the|der|die|das)(?= (?:[\w\-]+ ){0,2}\ufffc)",
        r"(?<=,\s)presence of",
        r"and (?:the|there|presence of|(?:slight |mild )?(?:de|in)crease in|improvement in|worsening of)",
        r"[;:]",
    ),
)
