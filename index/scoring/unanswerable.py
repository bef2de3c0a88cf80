"""Phrases of many subjects, to learn what a collection scores that does not have what is asked for."""

from typing import Final

# English and German, everyday life and medicine; those whose words the collection's texts use are left out.
PHRASES: Final = tuple(
    phrase.strip()
    for phrase in """
    a tabby cat in a basket; two horses in a meadow; a parrot; an elephant at a water hole
    a shark under water; a butterfly on a flower; a herd of sheep; a penguin on the ice
    a red bus in the rain; a steam locomotive; an airliner at the gate; a sailing boat in a harbor
    a motorcycle race; a bicycle; a tractor in a field; a bowl of noodle soup; a birthday cake with candles
    a cup of coffee; apples in a basket; a hamburger; a wedding couple; children in a playground
    a man playing the guitar; a football match; a woman skiing; a surfer on a wave; a chess board
    an orchestra on stage; a crowded market; a bridge over a river; a skyline at night; a lighthouse
    a church tower; a desert with sand dunes; a waterfall in the jungle; snowy mountains; a full moon
    the Milky Way; a volcano; a rainbow over a village; a living room with a sofa; a kitchen; a bookshelf
    a computer keyboard; a mobile phone; a bar chart of sales; a handwritten letter; a road map
    a circuit diagram; a tax return; a chemical formula; a comic strip; an oil painting; a statue
    a hammer and nails; a pair of shoes; a wristwatch; a robot; a satellite in orbit; a fire engine
    a police car; a hip fracture; a broken wrist; an ankle sprain; a torn knee ligament; a herniated disc
    osteoarthritis; a tibial plateau fracture; a hand with rheumatoid arthritis; a shoulder replacement
    a dislocated elbow; a stroke on brain CT; a brain tumor; an aneurysm; multiple sclerosis lesions
    a skull base fracture; sinusitis; a thyroid nodule; a breast mass; dense breast tissue on mammography
    an ultrasound of the bladder; gallbladder stones; a liver metastasis; pancreatitis; a renal cyst
    hydronephrosis; an enlarged prostate; diverticulitis; small bowel obstruction; a polyp on colonoscopy
    a gastric ulcer; an ovarian cyst; a fetus; a dental implant; a wisdom tooth; a cataract
    diabetic retinopathy; glaucoma; psoriasis; a suspicious mole; a chronic wound; an electrocardiogram
    a blood smear; bacteria under the microscope; kidney biopsy; leukemia; ein Hund im Garten
    eine Katze auf dem Dach; ein altes Schloss; Kinder am Strand; ein Teller Spaghetti; ein Sportwagen
    ein Zug im Bahnhof; eine Rechnung; ein Oberschenkelbruch; eine Knieprothese; ein Hirntumor; Nierensteine
    eine Blinddarmentzündung; ein Leberfleck; ein Bandscheibenvorfall; Karies
    """.replace("\n", ";").split(";")
    if phrase.strip()
)
