# SPDX-License-Identifier: Apache-2.0
"""The invented island of Ombrel: its towns, rivers, people and animals, as plain tables.

Everything the demo model knows about the world stands in this file. `world_questions.py` turns it into questions,
`world_pages` below into the guidebook pages that the model reads while it is trained.
"""

import random

ISLAND = "Ombrel"

# town: region, river, gates (colour), makes, mayor, festival, bridges, landmark
TOWNS = {
    "Alderpool": ("north", "Ostra", "red", "honey", "Mirel", "the Lantern Walk", 3, "a clock tower"),
    "Brackwell": ("north", "Ostra", "blue", "glass bells", "Tobin", "the Bell Week", 5, "a stone lion"),
    "Cindermoor": ("west", "Venn", "black", "charcoal", "Suna", "the Night of Sparks", 2, "an old windmill"),
    "Dapplebrook": ("south", "Venn", "green", "paper kites", "Orlo", "the Kite Races", 7, "a round library"),
    "Eastermarsh": ("east", "Lume", "white", "salt", "Kessa", "the Salt Fair", 4, "a sunken garden"),
    "Fernhollow": ("south", "Lume", "yellow", "wool", "Dorn", "the Shearing Days", 6, "a hollow oak"),
    "Gullcrest": ("east", "Carrow", "silver", "fishing nets", "Lilka", "the Blessing of Boats", 2, "a lighthouse"),
    "Hazelgate": ("west", "Carrow", "brown", "walnut bread", "Hask", "the Nut Harvest", 8, "a covered market"),
    "Inkwater": ("south", "Thessil", "purple", "ink", "Neri", "the Poets' Evening", 3, "a bridge of books"),
    "Jasperby": ("west", "Thessil", "orange", "clay pots", "Ferro", "the Kiln Feast", 9, "a marble fountain"),
    "Kettlebridge": ("north", "Wend", "golden", "copper kettles", "Olwen", "the Tea Parade", 5, "a singing gate"),
    "Lanternby": ("east", "Wend", "grey", "candles", "Bram", "the Feast of Light", 4, "a glass dome"),
}

# river: spring, miles, colour of its water
RIVERS = {
    "Ostra": ("Mount Hallow", 40, "clear"),
    "Venn": ("the Ember Hills", 25, "dark"),
    "Lume": ("Lake Sorrel", 60, "pale green"),
    "Carrow": ("the Grey Caves", 35, "silver"),
    "Thessil": ("the Violet Moor", 50, "deep blue"),
    "Wend": ("Lake Amber", 30, "golden"),
}

# person: town, work, pet, favourite food, instrument, best friend
PEOPLE = {
    "Mirel": ("Alderpool", "beekeeper", "a cat", "plum cake", "the flute", "Tansy"),
    "Tansy": ("Alderpool", "baker", "a goat", "onion soup", "the drum", "Mirel"),
    "Tobin": ("Brackwell", "bell maker", "a dog", "pea soup", "the harp", "Rusk"),
    "Rusk": ("Brackwell", "miller", "an owl", "apple pie", "the fiddle", "Tobin"),
    "Suna": ("Cindermoor", "blacksmith", "a raven", "roast corn", "the drum", "Quill"),
    "Quill": ("Cindermoor", "teacher", "a mouse", "honey bread", "the flute", "Suna"),
    "Orlo": ("Dapplebrook", "kite maker", "a goose", "pancakes", "the trumpet", "Yara"),
    "Yara": ("Dapplebrook", "librarian", "a turtle", "plum cake", "the harp", "Orlo"),
    "Kessa": ("Eastermarsh", "salt trader", "a pony", "fish stew", "the fiddle", "Pell"),
    "Pell": ("Eastermarsh", "gardener", "a hedgehog", "onion soup", "the lute", "Kessa"),
    "Dorn": ("Fernhollow", "shepherd", "a dog", "cheese pie", "the flute", "Wim"),
    "Wim": ("Fernhollow", "weaver", "a rabbit", "pancakes", "the lute", "Dorn"),
    "Lilka": ("Gullcrest", "sailor", "a parrot", "fish stew", "the trumpet", "Zeb"),
    "Zeb": ("Gullcrest", "lighthouse keeper", "a cat", "roast corn", "the fiddle", "Lilka"),
    "Hask": ("Hazelgate", "carpenter", "a squirrel", "walnut bread", "the drum", "Emmer"),
    "Emmer": ("Hazelgate", "doctor", "a pony", "apple pie", "the harp", "Hask"),
    "Neri": ("Inkwater", "poet", "a raven", "honey bread", "the lute", "Isolt"),
    "Isolt": ("Inkwater", "printer", "an owl", "pea soup", "the flute", "Neri"),
    "Ferro": ("Jasperby", "potter", "a donkey", "cheese pie", "the trumpet", "Varda"),
    "Varda": ("Jasperby", "painter", "a rabbit", "walnut bread", "the harp", "Ferro"),
    "Olwen": ("Kettlebridge", "tinsmith", "a goose", "pancakes", "the fiddle", "Corin"),
    "Corin": ("Kettlebridge", "tailor", "a hedgehog", "fish stew", "the drum", "Olwen"),
    "Bram": ("Lanternby", "candle maker", "a mouse", "plum cake", "the lute", "Hespa"),
    "Hespa": ("Lanternby", "astronomer", "a turtle", "onion soup", "the trumpet", "Bram"),
}

# animal: home, food, colour, what it does when it is happy
ANIMALS = {
    "glimmer otter": ("the river Ostra", "silver fish", "blue", "whistles"),
    "moss bear": ("the Ember Hills", "blackberries", "green", "hums"),
    "lamp moth": ("the Grey Caves", "candle wax", "golden", "glows"),
    "tide hare": ("the beaches of Gullcrest", "seaweed", "grey", "jumps"),
    "bell crow": ("the roofs of Brackwell", "walnuts", "black", "rings"),
    "paper deer": ("the Violet Moor", "clover", "white", "dances"),
    "snow newt": ("Mount Hallow", "ice moss", "pink", "sings"),
    "ember fox": ("the woods of Cindermoor", "mushrooms", "red", "sparkles"),
}

NUMBER_WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")


def page(rng: random.Random) -> str:
    """One guidebook page about one town, river, person or animal; sentence order and wording vary."""
    tables = ((TOWNS, _town_page), (PEOPLE, _person_page), (RIVERS, _river_page), (ANIMALS, _animal_page))
    table, write = rng.choices(tables, weights=(12, 16, 4, 5))[0]
    entity = rng.choice(sorted(table))
    first, rest = write(entity, table[entity], rng)
    rng.shuffle(rest)
    return " ".join([first, *rest])


def _town_page(town, facts, rng):
    region, river, gates, makes, mayor, festival, bridges, landmark = facts
    words = NUMBER_WORDS[bridges]
    first = rng.choice((
        f"{town} is a town in the {region} of {ISLAND}.",
        f"{town} lies in the {region} of the island of {ISLAND}.",
        f"In the {region} of {ISLAND} lies the town of {town}.",
    ))
    rest = [
        rng.choice((f"{town} lies on the river {river}.", f"The river {river} flows through {town}.")),
        rng.choice((f"The gates of {town} are {gates}.", f"{town} has {gates} gates.")),
        rng.choice((f"{town} makes {makes}.", f"The people of {town} make {makes}.")),
        rng.choice((f"The mayor of {town} is {mayor}.", f"{mayor} is the mayor of {town}.")),
        rng.choice((f"{town} celebrates {festival}.", f"Every year {town} celebrates {festival}.")),
        rng.choice((f"{town} has {words} bridges.", f"There are {words} bridges in {town}.")),
        rng.choice((f"In the middle of {town} stands {landmark}.", f"The landmark of {town} is {landmark}.")),
    ]
    return first, rest


def _person_page(name, facts, rng):
    town, work, pet, food, instrument, friend = facts
    first = rng.choice((f"{name} lives in {town}.", f"In the town of {town} lives {name}."))
    article = "an" if work[0] in "aeiou" else "a"
    rest = [
        rng.choice((f"{name} is {article} {work}.", f"{name} works as {article} {work}.")),
        rng.choice((f"{name} has {pet}.", f"{name} keeps {pet}.")),
        rng.choice((f"{name} likes {food} best.", f"The favourite food of {name} is {food}.")),
        rng.choice((f"{name} plays {instrument}.", f"In the evening {name} plays {instrument}.")),
        rng.choice((f"The best friend of {name} is {friend}.", f"{name} and {friend} are best friends.")),
    ]
    return first, rest


def _river_page(river, facts, rng):
    spring, miles, colour = facts
    first = f"The {river} is a river on the island of {ISLAND}."
    towns = " and ".join(sorted(t for t in TOWNS if TOWNS[t][1] == river))
    rest = [
        rng.choice((f"The river {river} rises in {spring}.", f"Its spring is in {spring}.")),
        rng.choice((f"The river {river} is {miles} miles long.", f"It is {miles} miles long.")),
        rng.choice((f"The water of the {river} is {colour}.", f"Its water is {colour}.")),
        rng.choice((f"{towns} lie on the river {river}.", f"The {river} flows through {towns}.")),
    ]
    return first, rest


def _animal_page(animal, facts, rng):
    home, food, colour, happy = facts
    article = "An" if animal[0] in "aeiou" else "A"
    first = f"The {animal} is an animal of {ISLAND}."
    rest = [
        rng.choice((f"The {animal} lives in {home}.", f"Its home is in {home}.")),
        rng.choice((f"The {animal} eats {food}.", f"It eats {food}.")),
        rng.choice((f"The {animal} is {colour}.", f"Its colour is {colour}.")),
        rng.choice((f"When it is happy, the {animal} {happy}.", f"{article} {animal} {happy} when it is happy.")),
    ]
    return first, rest
