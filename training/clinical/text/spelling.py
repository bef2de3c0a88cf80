"""Reports as they are typed: abbreviations, misspelt words and boxes, written out for the rules.

A word that is one edit (from twelve letters, two) away from a longer word of the rules is read as that word.
An edit adds, drops or changes a letter, or exchanges two neighbors.
"""

import re
from collections.abc import Iterator
from functools import cache, lru_cache
from math import ceil
from typing import Final, NamedTuple

# "_" is a blank.
_SHORT: Final = (
    "ptx=pneumothorax pnx=pneumothorax ptxs=pneumothoraces pna=pneumonia pnas=pneumonias eff=effusion "
    "effs=effusions plef=effusion atx=atelectasis atel=atelectasis opac=opacity opacs=opacities "
    "consol=consolidation infil=infiltrate infiltr=infiltrate cardiomeg=cardiomegaly nod=nodule nods=nodules "
    "fx=fracture fxs=fractures frx=fracture rippenfx=rippenfraktur ett=endotracheal_tube "
    "ngt=nasogastric_tube ogt=orogastric_tube dht=feeding_tube cvc=central_venous_catheter cvl=central_line "
    "cath=catheter caths=catheters pacer=pacemaker hsm=herzschrittmacher djd=degenerative_joint_disease "
    "ggo=opacity ggos=opacities htx=hemothorax emphys=emphysema calcs=calcifications w/o=without w/=with "
    "c/w=consistent_with s/o=suggestive_of c/f=concerning_for d/t=due_to 2/2=due_to b/l=bilateral "
    "bilat=bilateral neg=negative poss=possible prob=probable susp=suspicious k.=kein o.b.=unauffällig "
    "o._b.=unauffällig erg.=erguss pleuraerg.=pleuraerguss grenzw.=grenzwertig fragl.=fraglich "
    "pulm.=pulmonary vasc.=vascular dystel.=dystelektase verbr.=verbreitert vergr.=vergrößert "
    # Marks that were dictated.
    "period=; full_stop=; punkt=; comma=, komma=, new_paragraph=; new_line=; neue_zeile=; neuer_absatz=; "
    "unauff.=unauffällig -ve=negative +ve=positive nad=no_acute_disease wnl=within_normal_limits "
    "chf=heart_failure dz=disease trach=tracheostomy_tube nil=no isno=is_no isnot=is_not areno=are_no "
    "arenot=are_not thereisno=there_is_no notseen=not_seen noevidence=no_evidence keinnachweis=kein_nachweis "
    "keinhinweis=kein_hinweis keinanhalt=kein_anhalt abgrenzb.=abgrenzbar auszuschl.=auszuschließen "
    "ausgeschl.=ausgeschlossen nachw.=nachweis nachweisb.=nachweisbar anh.=anhalt ev.=eventuell "
    "ddx=differential mediast.=mediastinum hinw._a.=hinweis_auf hinw.=hinweis verd._a.=verdacht_auf "
    "verd.=verdacht mögl.=möglich wahrsch.=wahrscheinlich regelr.=regelrecht"
)
# Something else in small letters, or behind a number.
_CAPITALS: Final = (
    "CM=cardiomegaly RF=raumforderung RH=rundherd TB=tuberculosis PPM=pacemaker LVAD=support_device "
    "IABP=support_device"
)
_WORDS: Final = (
    "abgrenzbar adenopathy aspiration atelectases atelectasis atelectatic atelektase atelektasen "
    "auszuschließen belüftungsstörung bronchiectasis calcification calcifications calcified cannot "
    "cardiomegaly catheter catheters cavitary cavitation collapse collapsed congestion consolidation "
    "consolidations consolidative costophrenic defibrillator degenerative dystelektase dystelektasen "
    "effusion effusions emphysem emphysema emphysematous edema endotracheal enlarged erguss ergüsse excluded "
    "fibrosis fibrotic fracture fractured fractures granuloma granulomas hemothorax hernia herzschrittmacher "
    "hiatushernie hydropneumothorax hyperexpanded hyperinflated hyperinflation infiltrat infiltrate "
    "infiltrates infiltration kardiomegalie konsolidierung konsolidierungen kyphosis lungenemphysem "
    "lungenödem lymphadenopathie lymphadenopathy mediastinal mediastinalverbreiterung mediastinum "
    "minderbelüftung nachweisbar nasogastric nodule nodules neoplasm opacification opacities opacity "
    "osteopenia osteoporosis pacemaker pericardial perikarderguss plattenatelektase plattenatelektasen "
    "pleuraerguss pleuraergusses pleuraergüsse pleural pleuraschwiele pneumomediastinum pneumonia pneumonias "
    "pneumonie pneumonien pneumonisch pneumoperitoneum pneumothoraces pneumothorax possible possibly "
    "probable questionable raumforderung raumforderungen rippenfraktur rippenfrakturen rundherd rundherde "
    "scarring schrittmacher scoliosis skoliose spannungspneumothorax spitzenpneumothorax enlargement fraktur "
    "frakturen katheter lungenstauung stauung stauungszeichen verbreitert verbreiterung subcutaneous "
    "suspected suspicious thoraxdrainage tracheostomy tuberculosis tuberkulose unchanged unlikely vergrößert "
    "verkalkung verkalkungen verschattung verschattungen widening winkelerguss vascular without"
)
# Other words as near, of these languages and of others.
_OTHERS: Final = (
    "affusion aspirations aufforderung aufforderungen auspicious auszuschliessen avascular belastungsstörung "
    "beschattung beschattungen biofiltration capitation clarification clarifications consolations "
    "consolidating consolidator consolidators decalcification deconsolidation defibrillate defibrillation "
    "degenerating degeneration enfusion enlarge enlarger enlarges exclude excluder excludes exfiltration "
    "facture factures falsification falsifications fracturen hemithoraces hemithorax hyperextended "
    "hypoexpanded hypoinflated hypoinflation infiltraat infiltrated infiltrating infiltrative konsolidieren "
    "lacemaker osteopetrosis pacification pagemaker passible peacemaker peacemakers pleurae pneumoniae "
    "possibles reconsolidation regenerative scarfing scaring scoliose sparring specification specifications "
    "verbreitet verbreitete verbreitung verbreiterte verbreitern kathedern traktur faktur fakturen starring "
    "subcutaneously suspecter suspicions tracheostoma tracheotomy tuberculose uncharged "
    "unquestionable vergrößern vergrößerte verkalking verkalkt verpackung verpackungen verschaffung "
    "verschaltung verschaltungen verschalungen verschanzungen verschrottung verschüttung verwaltung "
    "verwaltungen verguss verguß module modules plural unlike widen fibro enema nachweis suspect question "
    "pneumo pleura cardio mediastin excluding collapses cannon probably"
)
# Words that are typed without a blank before one of the rules: "nopneumothorax".
_JOINED: Final = (
    "a acute and bilateral focal kein keine keinen large left mild no of ohne or pleural possible right "
    "small the und with without"
)
# Also read with letters exchanged or doubled: "nciht", "keinne". "N." is "nach", except before these words.
_NEGATIONS: Final = "not ohne kein keine keinen keiner nicht"
_NOT: Final = r"n\.(?=\s?(?:ver[bg]r|aus[zg]|abgr|nachw|sich|mehr\b|erk))|o\.(?=\s?(?:nachw|anh|hinw|zei))"
_FEWEST_LETTERS: Final = 5
_TWO_EDITS: Final = 12
# Share of a word that remains if it is cut short.
_LEAST_PART: Final = 0.62
_BOX: Final = re.compile(
    r"(?P<ticked>\[[xX✓✔]\]|\([xX✓✔+]\)|[☒☑✓✔])|(?P<doubt>(?<!\b[au]nd\s)\((?:\?|\+/-)\)(?!\w))|"
    r"[\[(][-–\s]?[\])]|[☐□▢]"
)
_OPTION: Final = re.compile(
    r"\s*(?:yes|no(?:ne)?|ja|nein|keine?r?|normal|enlarged|present|absent|positive|negative|small|moderate|"
    r"large|left|right|bilateral|links|rechts|beidseits|vergrößert|unauffällig)\b[^:=\n]*\Z",
    re.IGNORECASE,
)
# A key with its value: "Heart size: normal" is read as "Heart size normal".
_KEY: Final = re.compile(
    r"\b(?P<key>(?:heart|cardiac|(?:cardio)?mediastin|herz|cor\b)\w*(?: (?:size|contours?|silhouette|"
    r"shadow))*\s?)[:=](?=\s*[\w\[(])",
    re.IGNORECASE,
)


class Written(NamedTuple):
    """A text written out, and where its parts were.

    Attributes:
        text: The text for the rules.
        edits: Begin and end of what was changed, in `text` and before.
    """

    text: str
    edits: tuple[tuple[int, int, int, int], ...]

    def span(self, start: int, end: int) -> tuple[int, int]:
        """Return where a part of `text` was before it was written out."""
        return self._before(start, 2), self._before(end, 3)

    def _before(self, offset: int, side: int) -> int:
        shift = 0
        for edit in self.edits:
            if offset < edit[0] or (offset == edit[0] and (side == 3 or offset == edit[1])):
                break
            if offset < edit[1] or (offset == edit[1] and side == 3):
                return edit[side]
            shift = edit[3] - edit[1]
        return offset + shift


# Findings and words that are not understood are looked for in the same sentences.
@lru_cache(64)
def written_out(text: str) -> Written:
    """Return a sentence or a text with abbreviations, misspelt words and boxes written out."""
    parts: list[str] = []
    edits: list[tuple[int, int, int, int]] = []
    before = length = 0
    for start, end, new in sorted((*_boxes(text), *_words(text))):
        if start < before:
            continue
        parts += (text[before:start], new)
        length += start - before
        edits.append((length, length + len(new), start, end))
        before, length = end, length + len(new)
    whole = "".join((*parts, text[before:])) if parts else text
    return Written(_KEY.sub(lambda key: f"{key['key']} ", whole), tuple(edits))


def _words(text: str) -> Iterator[tuple[int, int, str]]:
    """Give begin, end and spelling of words that are written out."""
    short, signs, _ = _tables()
    for match in signs.finditer(text):
        word = match.group()
        if (new := short.get(word) or short.get(word.lower()) or _spelling(word)) is not None:
            yield *match.span(), new


@cache
def _tables() -> tuple[dict[str, str], re.Pattern[str], dict[str, tuple[str, ...]]]:
    """Return abbreviations, the pattern of words, and words of the rules by what is left of them."""
    pairs = [pair.partition("=") for pair in f"{_SHORT} {_CAPITALS}".split()]
    short = {
        word[:at] + typed + word[at + 2 :]: word
        for word in _NEGATIONS.split()
        for at in range(1, len(word) - 1)
        for typed in (word[at + 1] + word[at], word[at] + word[at : at + 2], word[at + 1])
        if len(typed) > 1 or len(word) >= _FEWEST_LETTERS
    }
    short |= {word.replace("_", " "): long.replace("_", " ") for word, _, long in pairs}
    signs = "|".join(re.escape(word) for word in short if not word.isalpha())
    capitals = "|".join(word for word in short if word.isupper())
    words = "|".join(word for word in short if word.isalpha() and word.islower())
    short |= {"n.": "nicht", "o.": "ohne"}
    near: dict[str, tuple[str, ...]] = {}
    for word in map(_folded, _WORDS.split()):
        cuts = (word[:end] for end in range(ceil(len(word) * _LEAST_PART), len(word)))
        for left in {*_shortened(word), *cuts, "".join(sorted(word))}:
            near[left] = (*near.get(left, ()), word)
    pattern = (
        rf"(?<!\w)(?:(?i:{_NOT}|{signs})(?!\w)|(?:(?<!\d\s)(?<!\d)(?:{capitals})|(?i:{words}))(?!\w)|"
        rf"[^\W\d_]{{{_FEWEST_LETTERS},40}})"
    )
    return short, re.compile(pattern), near


@lru_cache(1 << 16)
def _spelling(typed: str) -> str | None:
    """Return the word of the rules that a word is meant to be; None for any other word."""
    word = typed.lower()
    known = _known()
    plain = _folded(word)
    if word in _OTHERS.split() or known.get(plain) == word or re.search(r"[^a-z]", plain):
        return None
    for cut in range(1, len(plain) - _FEWEST_LETTERS):
        if plain[:cut] in _JOINED.split() and plain[cut:] in known:
            return f"{plain[:cut]} {known[plain[cut:]]}"
    # "Aletektase" has the letters of the word, "Verschattg." and "atelect" begin it.
    letters, stem = sorted(plain), plain.removesuffix("g")
    near = sorted(
        {
            one
            for left in {*_shortened(plain), "".join(letters), stem}
            for one in _tables()[2].get(left, ())
            # "Cardiomegalia" is a word of other languages.
            if plain[-1] not in "aeio" or plain[-1] == one[-1] or sorted(one) == letters
        }
    )
    for edits in (0, 1, 2):
        for one in near:
            if (edits < 2 or min(len(known[one]), len(word)) >= _TWO_EDITS) and _is_near(plain, one, edits):
                return known[one]
    cut_or_mixed = (
        one for one in near if one.startswith(stem) or (one[0], sorted(one)) == (plain[0], letters)
    )
    return known.get(min(cut_or_mixed, key=len, default=""))


@cache
def _known() -> dict[str, str]:
    """Return words of the rules by their spelling without umlauts."""
    return {_folded(word): word for word in _WORDS.split()}


def _folded(word: str) -> str:
    return word.replace("ä", "ae").replace("ö", "oe").replace("ü", "ue").replace("ß", "ss")


def _shortened(word: str) -> set[str]:
    """Return what is left of a word without up to as many letters as it may differ in."""
    left = {word}
    for _ in range(1 + (len(word) >= _TWO_EDITS)):
        left |= {one[:at] + one[at + 1 :] for one in left for at in range(len(one))}
    return left


def _is_near(one: str, other: str, edits: int) -> bool:
    same = 0
    while same < min(len(one), len(other)) and one[same] == other[same]:
        same += 1
    one, other = one[same:], other[same:]
    if not one or not other or edits == 0:
        return len(one) + len(other) <= edits
    exchanged = one[:2] == other[1::-1] and _is_near(one[2:], other[2:], edits - 1)
    pairs = ((one[1:], other[1:]), (one[1:], other), (one, other[1:]))
    return exchanged or any(_is_near(*pair, edits - 1) for pair in pairs)


def near_words(words: str) -> str:
    """Return a pattern of words and of what is one edit away; another first letter makes another word."""
    cuts = [(word[:at], word[at], word[at + 1 :]) for word in words.split() for at in range(len(word))]
    edits = [rf"{head}(?:{tail}|\w{sign}{tail}|{tail[:1]}{sign}{tail[1:]})" for head, sign, tail in cuts]
    edits += [rf"{head}\w{tail}" for head, _, tail in cuts if head]
    return "|".join((*edits, *(rf"{word}\w" for word in words.split())))


def _boxes(text: str) -> Iterator[tuple[int, int, str]]:
    """Give begin, end and meaning of boxes: before a finding, behind one, or before the options of a key."""
    boxes = list(_BOX.finditer(text))
    end, is_prefix = 0, True
    for box, after in zip(boxes, [*boxes[1:], None], strict=False):
        before = text[end : box.start()]
        if end == 0 or "\n" in before:
            # The first box of a line tells what its boxes belong to.
            is_prefix = not before[before.rfind("\n") + 1 :].strip(" \t-*•")
        end = box.end()
        behind = text[box.end() : after.start() if after else len(text)]
        ticked = box["ticked"] is not None
        value = "" if ticked else "possible" if box["doubt"] else "no"
        if is_prefix:
            yield *box.span(), f"; {value} "
        elif box.group() not in "(+) (-) (–) (?) (+/-)" and _OPTION.match(behind):
            yield box.start(), end if ticked else end + len(behind.rstrip()), ": " if ticked else ""
        else:
            yield *box.span(), " +;" if ticked else f": {value};"
