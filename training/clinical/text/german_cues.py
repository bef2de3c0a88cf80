"""Cues of German reports; the module `findings` says how they are written."""

from typing import Final

from training.clinical.text.english_cues import CueTable

_ENDING: Final = r"(?:e[rsnm]?)?"
_NONE: Final = r"kein(?:erlei|e[rsnm]?)?"
_NO: Final = rf"(?:{_NONE}|ohne|nicht)"
_BE: Final = r"(?:ist|sind|war|waren|bleibt|bleiben|erscheint|erscheinen|wirkt|wirken)"
_SEEN: Final = (
    r"(?:nachweisbar|nachgewiesen|nachzuweisen|nachweisen|abgrenzbar|abzugrenzen|abgegrenzt|abgrenzen|"
    r"erkennbar|erkennen|sichtbar|ersichtlich|vorhanden|darstellbar|dar\b|dargestellt|darstellen|zu sehen|"
    r"gesehen|sieht man|sehen wir|gefunden|feststellbar|festzustellen|vorliegend|(?<=nicht\s)nachweis)"
)
_SURE: Final = r"(?:sicher|eindeutig|zweifels\w+|definitiv|zuverlässig|verlässlich|gut|(?:aus|hin)reichend)"
_CHANGED: Final = (
    r"(?:(?:befund|größen|groessen|grössen)?(?:änderung|veränderung|zunahme|abnahme|progredienz|progress|"
    r"regredienz|wachstum|dynamik|befundwandel|besserung|verschlechterung|rückgang|rückbildung)|"
    r"(?:größen)?progredient|zugenommen|abgenommen|rückläufig|regredient|(?:zu)?rückge(?:bildet|gangen)|verändert|geändert|"
    r"größer|grösser|groesser|gewachsen|entfernt)"
)
_GONE: Final = (
    r"(?:rückläufig|(?:zu)?rückge(?:bildet|gangen)|resorbiert|aufgelöst|regredient|verschwunden|rekompensiert|aufgehoben|"
    r"ausgeheilt|entfernt|abgeklungen|evakuiert|entfaltet)"
)
_NEARLY: Final = r"(?:nahezu|fast|beinahe|weitgehend|größtenteils|teilweise|annähernd)"
_WHOLE: Final = rf"(?:vollständig|komplett|vollkommen|gänzlich|restlos|völlig){_ENDING}"
_AT_END: Final = r"(?= ?(?:[.,;:)?]|$|(?:und|aber|jedoch|bei|im|am|links|rechts|beidseits|ist|sind)\b))"

# What was not there then is new.
_BEFORE: Final = r"(?:zuvor|vorher|gestern|am vortag|(?:im|(?:in|auf) de[rn]) vor[aub]\w+(?: vom [\d.]+)?)"
_SIDE: Final = r"(?:links|rechts)(?:seitige?[rsnm]?|basal)?"
_EXCLUDE: Final = r"(?:auszuschlie(?:ß|ss)en|ausgeschlossen|ausschlie(?:ß|ss)(?:bar|en)|verneint)"
_POOR: Final = (
    r"(?:(?:nicht|kaum|nur)(?: \w+){0,3} (?:möglich|sensitiv|geeignet|ausreichend|zuverlässig|beurteilbar|"
    r"auszuschlie(?:ß|ss)en|gelingt|erlaubt)|gelingt[^.;]* nicht|eingeschränkt|erschwert|unmöglich|limitiert|"
    r"unsicher)"
)

GERMAN: Final[CueTable] = (
    (
        ("none", "behind"),
        rf"(?:{_NEARLY}|(?:noch )?nicht) (?:{_WHOLE} )?(?:{_GONE}{_ENDING}|(?:rückbildung|auflösung|"
        r"resorption|regredienz)(?: (?:de[rs]|von|eine[rs]))?)",
        r"(?:bis zu[rm]|zu[rm] (?:\w+ )?(?:dokumentation|bestätigung|sicherung|nachweis|überprüfung)|"
        rf"kontrolle)(?: (?:auf|de[rs]|eine[rs]|von))? (?:{_WHOLE} )?(?:rückbildung|auflösung|ausheilung|"
        r"regredienz|resorption|abheilung)(?: (?:de[rs]|von|eine[rs]))?",
        rf"{_NO} (?:\w+ )?{_CHANGED}(?: (?:de[rs]|von|einer|eines))?|nicht (?:\w+ )?frei von",
        rf"(?<!wie\x20){_BEFORE} (?:noch )?nicht {_SEEN}|(?:noch )?nicht {_SEEN} (?:war\w* )?{_BEFORE}",
        r"(?:kein(?:erlei|e[rsnm]?)?|ohne) (?:zweifel(?: an| bezüglich)?|fehlen(?:de[rsnm]?)?)",
        rf"{_SIDE}[ ,–([-]+(?:(?:aber|jedoch|und),? (?:nicht|{_NONE})|nicht(?: aber| jedoch)?|{_NONE}) "
        rf"{_SIDE}",
        r"(?:ausbleibende?|fehlende?|mangelnde?|keine)[rsnm]? (?:\w+ )?(?:besserung|rückbildung|"
        r"änderung|veränderung|regredienz|resorption|auflösung|rückgang)",
        r"(?:vereinbar|passend|kompatibel|im sinne|entsprechend)(?: (?:mit|zu|einer|eines|von))?",
    ),
    (
        ("uncertain", "behind"),
        r"kein(?:e[rn]?)? (?:\w+ )?ausschlu(?:ß|ss)(?: von| eine[sr])?",
        r"(?:erlaubt|erlauben|gestattet|ermöglicht|zulässt|lässt) (?:\w+ )?(?:kein(?:erlei|e[rsnm]?)?|"
        r"nicht) (?:\w+ ){0,2}(?:ausschlu(?:ß|ss)|beurteilung|aussage|nachweis|detektion)(?: (?:von|"
        r"eine[sr]|de[rs]|für|über|bezüglich|zu))*",
        rf"weder(?= [^.;]*\b{_EXCLUDE}\b)",
        rf"nicht (?:\w+ ){{0,3}}{_EXCLUDE} (?:ist|sind|bleibt|bleiben|wäre)",
        r"keine (?:\w+ )?aussage (?:zu[mr]?|über|bezüglich|hinsichtlich)(?: eine[srnm])?",
        r"(?:schränkt|schränken|limitiert|limitieren|erschwert|erschweren|verhindert|verhindern) (?:\w+ "
        r"){0,2}(?:ausschlu(?:ß|ss)|beurteilung|beurteilbarkeit|sensitivität|nachweis|aussagekraft|"
        r"detektion)(?: (?:von|eine[sr]|de[rs]|für|auf|bezüglich|hinsichtlich))*",
        r"(?:insensitiv|unsensitiv|nicht (?:\w+ )?sensitiv(?: genug)?|geringe sensitivität|"
        r"eingeschränkte (?:sensitivität|beurteilbarkeit)) (?:für|bezüglich|hinsichtlich|auf|gegenüber)",
        r"(?:(?:zum|ein|der|sichere[rn]?|zuverlässige[rn]?) )*(?:ausschlu(?:ß|ss)|beurteilung|"
        r"beurteilbarkeit|nachweis)(?: (?:von|eine[srn]|de[rs]|auf|bezüglich|hinsichtlich))*(?= "
        rf"[^.;]*\b{_POOR}\b)",
        r"(?:nicht (?:\w+ )?(?:auszuschlie(?:ß|ss)en|ausgeschlossen|beurteilbar)|möglich|fraglich|"
        r"wahrscheinlich|verdacht|unklar|differen[tz]ialdiagnosen?) ?:",
    ),
    (
        ("absent", "behind"),
        rf"(?:ausgeschlossen|nicht (?:mehr )?{_SEEN}|fehlend|negativ|(?:keine?|ohne) (?:nachweis|anhalt|"
        r"hinweise?|zeichen)(?: (?:von|für|auf))?) ?:",
        rf"\A(?:ausgeschlossen|nicht (?:mehr )?{_SEEN}) (?:wurden?|wird|werden|ist|sind)\b",
    ),
    (
        ("uncertain", "before"),
        rf"(?:nicht|nie|kaum|schwer|schlecht|nur) (?:(?!und\b|aber\b)\w+ ){{0,4}}{_EXCLUDE}",
        rf"weder (?:\w+ ){{1,2}}noch (?:\w+ )?{_EXCLUDE}",
        r"(?:wenig |kaum |nicht (?:\w+ )?|un|in)sensitiv",
        r"nicht (?:\w+ ){0,3}zu (?:unterscheiden|differenzieren|trennen)",
        r"(?:kann|können|könnte|könnten) (?:\w+ ){0,3}(?:übersehen|maskiert|überdeckt|verborgen|entgehen)",
        r"(?:nur )?(?:eingeschränkt|schlecht|schwer|bedingt) (?:beurteilbar|zu beurteilen|abgrenzbar|"
        r"abzugrenzen|erkennbar)",
        rf"nicht (?:mehr )?(?:mit sicherheit|{_SURE}) (?:zu )?(?:{_SEEN}|beurteilbar|beurteilen|zu "
        r"beurteilen)",
        r"nicht (?:\w+ )?(?:beurteilbar|zu beurteilen|einsehbar|beurteilt werden)",
        rf"(?:{_BE} )?(?:\w+ )?(?:fraglich|möglich|denkbar|wahrscheinlich|unwahrscheinlich|zweifelhaft|"
        rf"vermutet|zu vermuten|anzunehmen|zu diskutieren|unklar|unsicher){_AT_END}",
        r"(?:kommt|kommen|käme|kämen) (?:\w+ ){0,2}(?:in betracht|in frage|infrage)",
        r"(?:könnte|könnten|kann|dürfte) (?:\w+ ){0,2}(?:vorliegen|entsprechen)",
        rf"(?:wäre|würde)n? (?:\w+ ){{0,4}}nicht (?:\w+ )?(?:{_SEEN}|erfasst)",
    ),
    (
        ("uncertain", "both"),
        r"(?:dd:?(?=\s)|differen[tz]ialdiagnostisch|versus|bzw\.? eher)",
    ),
    (
        ("unstated", "behind"),
        r"(?:kann|können|könnte|könnten) (?:sich )?(?:\w+ ){0,3}?(?=(?:eine?[nrsm]? )?(?:\w+ )?\ufffc+ "
        r"(?:entwickeln|auftreten|entstehen|bilden|folgen))",
        r"bei (?:\w+ )?verdacht auf(?= [^.;]*(?:empf|röntgen|\bct\b|\bmrt\b|kontroll|erwäg|\w*sono))",
        r"(?:falls|sofern|wenn|sollte|sollten|zum ausschlu(?:ß|ss)|ausschlu(?:ß|ss)diagnostik|frage "
        r"nach|fragestellung|zur frage)",
        r"(?:bei (?:\w+ )?)?klinisch(?:e[mnrs]?)? (?:(?=\ufffc)|v\. ?a\.|verdacht(?: auf)?)",
        r"(?:zuweisung|einweisung|vorstellung|operation|op|resektion|therapie|behandlung) (?:wegen|bei|"
        r"mit|zu[mr]?)(?: (?:v\. ?a\.|verdacht auf))?",
        r"bei (?:\w+ )?(?:anhaltende[mnr]?|weitere[mnr]?|bestehende[mnr]?) (?:v\. ?a\.|verdacht(?: auf)?)",
        r"(?:patient(?:in)?|aufgenommen|behandelt|eingewiesen) (?:\w+ ){0,2}wegen",
        r"(?:anamnestisch|anamnese|vorgeschichte)(?: (?:mit|einer|eines|von))?",
    ),
    (
        ("unstated", "before"),
        r"(?<=\ufffc\x20)(?:zu )?(?:denken|erwägen)",
        r"(?:kann|können|könnte|könnten) (?:sich )?(?:\w+ ){0,5}(?:entwickeln|auftreten|entstehen|"
        r"hinzutreten|vorkommen)",
    ),
    (("past", "before"), r"(?<=\ufffc\x20)vor (?:\w+ )?(?:tag|woche|monat|jahr)\w*"),
    (
        ("past", "behind"),
        r"(?:z\. ?n\.?|zn|zustand nach|st\. ?n\.|status nach)(?!\w)",
        r"\A(?:vor (?:\w+ )?(?:tag|woche|monat|jahr)\w*|im (?:vorjahr|(?:letzten|vergangenen) (?:jahr|monat)|"
        r"jahre? (?:19|20)\d\d|(?:januar|februar|märz|april|mai|juni|juli|august|september|oktober|november|"
        r"dezember)(?: (?:19|20)\d\d)?)|letzte[ns]? (?:jahr|monat|woche)|damals|seinerzeit)\b",
        r"nach (?:(?:abgelaufener|stattgehabter|alter|früherer|durchgemachter) )?(?=\ufffc)",
        r"(?:voraufnahme|voruntersuchung|vorbild)(?: (?:vom|von|am|der|des|[\d.]+)){0,4} mit",
        r"(?:patient(?:in|en)?|bekanntem?) (?:mit|nach) (?:bekannte[rmn] )?(?=\ufffc)",
        r"(?:frühere|ehemalige|vormalige)[rsnm]?(?= (?:[\w\-]+ ){0,2}\ufffc+ ?(?:[.,;)]|$|(?:und|links|"
        r"rechts)\b))",
    ),
    (
        ("uncertain", "behind"),
        r"kein(?:erlei|e[rsnm]?)? (?:\w+ )?(?:sicher|eindeutig|zweifelsfrei|neu|neu aufgetreten|grö(?:ß|"
        r"ss)er|groesser|gro(?:ß|ss)|progredient|zunehmend|größenprogredient|weiter|"
        rf"zusätzlich){_ENDING}(?: (?:nachweis|hinweise?|anhalt)(?: (?:auf|für|von|eine[sr]))?)?",
        r"(?:v\. ?a\.?|va\.|vd\. ?(?:auf|a\.)|verdacht auf|suspekt(?:e[rsnm]?)? (?:auf|für)|hinweise? "
        r"auf|hinweisend auf|verdächtig(?:e[rsnm]?)?(?: (?:auf|für))?)",
        r"(?:möglich|fraglich|(?:un)?wahrscheinlich|vermutlich|mutma(?:ß|ss)lich|denkbar|"
        rf"zweifelhaft){_ENDING}",
        r"(?:möglicherweise|wohl|eventuell|evtl\.|ggf\.|gegebenenfalls|(?:am )?ehesten|eher|vielleicht|"
        r"womöglich|wie bei|a\. ?e\.|könnte|könnten|dürfte)",
    ),
    (
        ("absent", "before"),
        rf"(?:nicht|keine[rns]?) (?:mehr )?(?:\w+ ){{0,2}}{_SEEN}",
        rf"{_SEEN} (?:\w+ )?nicht",
        rf"(?:(?:{_BE} )?ausgeschlossen|vor(?:ge)?täuscht|vortäuschend?|imitierend|imitiert|simuliert|"
        rf"weder {_SIDE} noch {_SIDE}{_AT_END})",
        rf"(?:{_BE} )?(?:(?!nicht|noch|{_NEARLY})\w+ )?{_WHOLE} {_GONE}",
        rf"(?:{_BE} )?(?:(?!nicht|noch|{_NEARLY})\w+ )?(?:verschwunden|rekompensiert|aufgelöst|"
        rf"resorbiert|entfernt|gezogen|abgeklungen|ausgeheilt){_AT_END}",
        rf"(?:fehlt|fehlen|fehlend|negativ){_AT_END}",
        r"(?:entspr(?:icht|echen)|bedingt durch|ist|sind)(?= (?:(?:nur|lediglich|eine?[rnm]?|de[rm]|die) "
        r"){0,2}(?:mamillen?\w*|brustwarzen?|hautfalten?|artefakte?|gefäß(?:kreuzung|anschnitt)|"
        r"überlagerung\w*|summation\w*|knöpfe?)\b)",
        r"(?:entpuppt|erweist|stellt) sich als(?! (?:[\w\-]+ ){0,3}\ufffc)",
        r"(?:besteht|bestehen|(?:findet|finden|zeigt|zeigen) sich)(?: \w+)? nicht",
        r"(?:(?:wird|werden) (?:zurückgenommen|widerrufen)|nicht bestätigt)",
        r"kein(?:e[rsnm]?)? (?:\w+ )?(?:rezidiv|nachlaufen)(?! (?:de[rs]|von|eine[rs])\b)",
        rf"(?:{_BE} )?(?:keinesfalls|keineswegs|nirgends) {_SEEN}",
        r"(?:hat|haben) sich (?:(?!nicht|teil|nahe|fast|weit)\w+ )?(?:(?:zu)?rückgebildet|aufgelöst|"
        r"resorbiert)",
        r"(?:liegt|liegen)(?: \w+)? (?:nicht|keine?r?s?) (?:\w+ )?vor",
        r"(?<=\ufffc)[- ]?(?:entfernung|explantation|rückzug)(?! (?:um|empfohlen|geplant)\b)",
    ),
    (
        ("absent", "behind"),
        r"(?:kein(?:erlei|e[rsnm]?)?|ohne) (?:\w+ )?(?:verdacht auf|hinweis(?:e|en)?(?: auf| für)?|"
        r"anhalt(?:spunkte?)?(?: für)?|zeichen|korrelat für)",
        rf"{_WHOLE} (?:{_GONE})e[rsnm]?",
        r"(?:kein(?:erlei|e[rsnm]?)?|ohne|weder|nicht durch|nie|niemals|nirgends|nirgendwo|"
        r"fehlend(?:e[rsnm]?)?|fehlen (?:von|eine[rs]))",
        r"(?:frei von|täusch(?:t|en))",
        r"gegen(?: eine?n?| das vorliegen(?: eine[rs])?)?(?= [^.;]*\bspr(?:icht|echen)\b)",
        r"(?:und )?nicht(?: um)?(?= (?:eine?[rmns]? )?\ufffc)",
        r"(?:statt|anstatt|anstelle|an stelle|vielmehr als)(?: (?:eine[srm]|von|de[rs]))?",
        r"(?:spricht|sprechen|sprechend) (?:\w+ ){0,2}(?:gegen|nicht für)(?: (?:eine?n?|das "
        r"vorliegen(?: eine[rs])?))?",
        r"(?:vortäuschend(?:e[rsnm]?)?|imitierend(?:e[rsnm]?)?|imitiert|simuliert|(?:schein|"
        r"vermeint)(?:bar|lich)e?[rsnm]?)",
        r"(?:vermutet|angeblich)e[rsnm]?(?= [^.;]*\b(?:ist|sind|entspr\w+) (?:eine?[rm]?|de[rm]|die|das) "
        r"(?!(?:\w+ )?\ufffc))",
        r"nicht (?:mit|als)(?= [^.;]*\b(?:verwechs\w+|fehlzudeuten|fehlgedeutet)\b)",
        r"nicht (?:jedoch|aber|hingegen|dagegen)",
        r"ø(?= ?\ufffc)",
        r"ausschlu(?:ß|ss)(?: (?:von|eine[rs]))?",
        r"(?:entfernung|explantation|rückbildung|auflösung) (?:de[rs]|von|eine[rs])",
    ),
    (
        ("end", "behind"),
        r"(?:aber|jedoch|allerdings|dagegen|hingegen|sondern|au(?:ß|ss)er|obwohl|während|doch|bei|mit|"
        r"nach|dafür|stattdessen|ansonsten|sonst)",
        r"(?:muss|müsste|soll|sollte) (?:es )?(?:\w+ )?(?:heißen|heissen|lauten)",
        r"(?:bis auf|abgesehen von|mit ausnahme|daneben|zusätzlich|im übrigen|(?:es )?zeig(?:t|en) sich)",
    ),
)
