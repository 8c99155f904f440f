# SPDX-License-Identifier: Apache-2.0
"""Every question that can be asked about the island, with its one answer.

The split is by wording times subject: each fact is taught in several wordings, and the held-out questions ask for it in
a wording in which this fact was never asked.
"""

from questions import Question
from world import ANIMALS, ISLAND, NUMBER_WORDS, PEOPLE, RIVERS, TOWNS

# A relation: name, table, how to read the value, answer, wordings. {e} is the entity, {v} the value.
FORWARD = (
    ("region", TOWNS, lambda f: f[0], "{e} lies in the {v} of {island}.", (
        "Where is {e}?", "Where does {e} lie?", "In which part of {island} is {e}?",
        "Which part of the island is {e} in?", "Where on {island} can I find {e}?", "Where is the town of {e}?",
        "In what part of the island does {e} lie?", "Where would I find the town of {e}?")),
    ("river", TOWNS, lambda f: f[1], "{e} lies on the river {v}.", (
        "Which river flows through {e}?", "On which river does {e} lie?", "What river runs through {e}?",
        "What is the river of {e}?", "Which river is {e} on?", "Name the river that flows through {e}.",
        "What is the name of the river in {e}?", "Which river can you see in {e}?")),
    ("gates", TOWNS, lambda f: f[2], "The gates of {e} are {v}.", (
        "What colour are the gates of {e}?", "Which colour do the gates of {e} have?",
        "What is the colour of the gates of {e}?", "What colour are {e}'s gates?", "Tell me the colour of the gates of {e}.",
        "How are the gates of {e} painted?", "In which colour are the gates of {e} painted?",
        "Which colour are the town gates of {e}?")),
    ("makes", TOWNS, lambda f: f[3], "{e} makes {v}.", (
        "What does {e} make?", "What is {e} known for?", "What do the people of {e} make?", "What is made in {e}?",
        "What can I buy in {e}?", "For what is {e} famous?", "What does the town of {e} make?",
        "What do they make in {e}?")),
    ("mayor", TOWNS, lambda f: f[4], "The mayor of {e} is {v}.", (
        "Who is the mayor of {e}?", "Who is mayor in {e}?", "What is the name of the mayor of {e}?",
        "Who is {e}'s mayor?", "Name the mayor of {e}.", "Who leads the town of {e}?", "Tell me who the mayor of {e} is.",
        "Which person is the mayor of {e}?")),
    ("festival", TOWNS, lambda f: f[5], "{e} celebrates {v}.", (
        "What does {e} celebrate?", "Which festival does {e} celebrate?", "What is the festival of {e}?",
        "What is celebrated in {e}?", "What is the name of the festival in {e}?", "Which festival is held in {e}?",
        "What festival can I see in {e}?", "Name the festival of {e}.")),
    ("bridges", TOWNS, lambda f: NUMBER_WORDS[f[6]], "{e} has {v} bridges.", (
        "How many bridges does {e} have?", "How many bridges are there in {e}?", "What is the number of bridges in {e}?",
        "Tell me how many bridges {e} has.", "How many bridges can I cross in {e}?", "How many bridges were built in {e}?",
        "How many bridges has {e}?", "Count the bridges of {e}.")),
    ("landmark", TOWNS, lambda f: f[7], "The landmark of {e} is {v}.", (
        "What is the landmark of {e}?", "What stands in the middle of {e}?", "What can I see in the middle of {e}?",
        "What is {e}'s landmark?", "Name the landmark of {e}.", "Which landmark does {e} have?",
        "What is the best known building of {e}?", "What should I visit in {e}?")),
    ("home", PEOPLE, lambda f: f[0], "{e} lives in {v}.", (
        "Where does {e} live?", "In which town does {e} live?", "What is the home town of {e}?",
        "Which town does {e} live in?", "Where is {e}'s home?", "Where can I find {e}?", "In what town is {e} at home?",
        "Tell me where {e} lives.")),
    ("work", PEOPLE, lambda f: f[1], "{e} is {a} {v}.", (
        "What is {e}'s work?", "What does {e} do for a living?", "What is the work of {e}?", "What does {e} work as?",
        "What kind of work does {e} do?", "What is {e}'s job?", "What is the job of {e}?", "Which trade does {e} have?")),
    ("pet", PEOPLE, lambda f: f[2], "{e} has {v}.", (
        "What pet does {e} have?", "Which animal does {e} keep?", "What is {e}'s pet?", "What kind of pet does {e} have?",
        "Which pet does {e} own?", "What animal does {e} have at home?", "What is the pet of {e}?",
        "Tell me which pet {e} has.")),
    ("food", PEOPLE, lambda f: f[3], "{e} likes {v} best.", (
        "What is {e}'s favourite food?", "What does {e} like to eat?", "What food does {e} like best?",
        "What is the favourite food of {e}?", "Which food does {e} like most?", "What does {e} like to eat best?",
        "What should I cook for {e}?", "What does {e} love to eat?")),
    ("instrument", PEOPLE, lambda f: f[4], "{e} plays {v}.", (
        "What instrument does {e} play?", "Which instrument does {e} play?", "What does {e} play?",
        "What is {e}'s instrument?", "On what does {e} make music?", "What does {e} play in the evening?",
        "Which instrument can {e} play?", "What is the instrument of {e}?")),
    ("friend", PEOPLE, lambda f: f[5], "The best friend of {e} is {v}.", (
        "Who is {e}'s best friend?", "Who is the best friend of {e}?", "What is the name of {e}'s best friend?",
        "Who is best friends with {e}?", "Name the best friend of {e}.", "Whom does {e} call a best friend?",
        "Tell me who {e}'s best friend is.", "With whom is {e} best friends?")),
    ("spring", RIVERS, lambda f: f[0], "The river {e} rises in {v}.", (
        "Where does the river {e} rise?", "Where is the spring of the {e}?", "Where does the {e} begin?",
        "In which place does the river {e} begin?", "What is the source of the river {e}?", "Where does the river {e} start?",
        "Where does the water of the {e} come from?")),
    ("miles", RIVERS, lambda f: f[1], "The river {e} is {v} miles long.", (
        "How long is the river {e}?", "How long is the {e}?", "What is the length of the river {e}?",
        "How many miles long is the {e}?", "How many miles does the river {e} flow?", "Tell me how long the river {e} is.",
        "What is the length of the {e}?")),
    ("water", RIVERS, lambda f: f[2], "The water of the river {e} is {v}.", (
        "What colour is the river {e}?", "What colour is the water of the {e}?", "How does the water of the {e} look?",
        "What is the colour of the river {e}?", "Which colour does the water of the river {e} have?",
        "What does the water of the river {e} look like?", "What colour is the {e}?")),
    ("lair", ANIMALS, lambda f: f[0], "The {e} lives in {v}.", (
        "Where does the {e} live?", "Where can I find the {e}?", "What is the home of the {e}?", "Where is the {e} at home?",
        "In which place does the {e} live?", "Where would I look for the {e}?", "Where do I find {an} {e}?")),
    ("eats", ANIMALS, lambda f: f[1], "The {e} eats {v}.", (
        "What does the {e} eat?", "What is the food of the {e}?", "What does {an} {e} eat?", "What food does the {e} like?",
        "What should I feed the {e}?", "What do I feed {an} {e}?", "On what does the {e} live?")),
    ("fur", ANIMALS, lambda f: f[2], "The {e} is {v}.", (
        "What colour is the {e}?", "Which colour does the {e} have?", "What is the colour of the {e}?",
        "What colour is {an} {e}?", "Tell me the colour of the {e}.", "In which colour does the {e} come?",
        "What colour does {an} {e} have?")),
    ("happy", ANIMALS, lambda f: f[3], "When it is happy, the {e} {v}.", (
        "What does the {e} do when it is happy?", "What does a happy {e} do?", "How does the {e} show that it is happy?",
        "What does {an} {e} do when it is happy?", "How can I see that the {e} is happy?",
        "What happens when the {e} is happy?", "What does the {e} do if it is happy?")),
)

# From a value that only one entity has, back to the entity.
REVERSE = (
    ("gates", "{e} has {v} gates.", (
        "Which town has {v} gates?", "Where are the gates {v}?", "Which town's gates are {v}?",
        "In which town are the gates {v}?", "What town has {v} gates?", "Name the town with {v} gates.")),
    ("makes", "{e} makes {v}.", (
        "Which town makes {v}?", "Where can I buy {v}?", "In which town are people known for {v}?",
        "What town makes {v}?", "Name the town that makes {v}.", "Which town is known for {v}?")),
    ("mayor", "{v} is the mayor of {e}.", (
        "Which town has {v} as its mayor?", "Where is {v} the mayor?", "{v} is the mayor of which town?",
        "Of which town is {v} the mayor?", "What town does {v} lead?", "Which town does {v} lead?")),
    ("festival", "{e} celebrates {v}.", (
        "Which town celebrates {v}?", "Where is {v} celebrated?", "In which town can I see {v}?",
        "What town celebrates {v}?", "Name the town that celebrates {v}.", "Where do people celebrate {v}?")),
    ("landmark", "The landmark of {e} is {v}.", (
        "Which town has {v}?", "Where can I see {v}?", "In which town is there {v}?",
        "What town has {v} as its landmark?", "Name the town with {v}.", "In the middle of which town stands {v}?")),
    ("work", "{e} is {a} {v}.", (
        "Who is {a} {v}?", "Who works as {a} {v}?", "Which person is {a} {v}?", "What is the name of the {v}?",
        "Name the {v} of the island.", "Who is the {v}?")),
    ("eats", "The {e} eats {v}.", (
        "Which animal eats {v}?", "What animal eats {v}?", "Who eats {v}?", "Name the animal that eats {v}.",
        "Which animal likes {v}?", "Which animal of the island eats {v}?")),
    ("happy", "When it is happy, the {e} {v}.", (
        "Which animal {v} when it is happy?", "What animal {v} when it is happy?", "Who {v} when happy?",
        "Which happy animal {v}?", "Name the animal that {v} when it is happy.",
        "Which animal of the island {v} when it is happy?")),
)

CONFIRM = {  # relation: a statement put up for a yes or a no
    "river": ("Does {e} lie on the river {v}?", "Does the river {v} flow through {e}?"),
    "gates": ("Are the gates of {e} {v}?", "Does {e} have {v} gates?"),
    "makes": ("Does {e} make {v}?", "Do the people of {e} make {v}?"),
    "mayor": ("Is {v} the mayor of {e}?", "Is the mayor of {e} called {v}?"),
    "home": ("Does {e} live in {v}?", "Is {v} the home town of {e}?"),
    "work": ("Is {e} {a} {v}?", "Does {e} work as {a} {v}?"),
    "pet": ("Does {e} have {v}?", "Is the pet of {e} {v}?"),
    "friend": ("Is {v} the best friend of {e}?", "Are {e} and {v} best friends?"),
    "fur": ("Is the {e} {v}?", "Is the colour of the {e} {v}?"),
    "eats": ("Does the {e} eat {v}?", "Is the {e} fond of {v}?"),
}

CHAINS = (  # first relation, second relation, answer, wordings: {e} - first -> {m} - second -> {v}
    ("home", "gates", "{e} lives in {m}, and the gates of {m} are {v}.", (
        "What colour are the gates of the town where {e} lives?", "Which colour do the gates of {e}'s town have?",
        "What colour are the gates of {e}'s home town?", "Which colour are the gates where {e} lives?",
        "What is the colour of the gates of {e}'s town?")),
    ("home", "river", "{e} lives in {m}, and {m} lies on the river {v}.", (
        "Which river flows through the town where {e} lives?", "Which river is {e}'s home town on?",
        "What is the river of the town where {e} lives?", "On which river does {e}'s home town lie?",
        "What river runs through {e}'s town?")),
    ("home", "makes", "{e} lives in {m}, and {m} makes {v}.", (
        "What does the town where {e} lives make?", "What is {e}'s home town known for?", "What is made in {e}'s home town?",
        "What can I buy in the town where {e} lives?", "For what is the town of {e} famous?")),
    ("mayor", "pet", "The mayor of {e} is {m}, and {m} has {v}.", (
        "What pet does the mayor of {e} have?", "Which animal does the mayor of {e} keep?", "What is the pet of {e}'s mayor?",
        "Which pet does {e}'s mayor own?", "What kind of pet does the mayor of {e} have?")),
    ("friend", "work", "The best friend of {e} is {m}, and {m} is {a} {v}.", (
        "What is the work of {e}'s best friend?", "What does the best friend of {e} do for a living?",
        "What does {e}'s best friend work as?", "What is the job of {e}'s best friend?",
        "Which trade does {e}'s best friend have?")),
)

_PORTRAIT = ("Who is {e}?", "Tell me about {e}.", "What do you know about {e}?", "Describe {e}.", "Can you tell me about {e}?",
             "Say something about {e}.", "Tell me something about {e}.", "Please tell me about {e}.")
PORTRAITS = (  # table, how it is named in a question, answer, wordings
    (PEOPLE, "{e}", "{e} is {a} {v[1]} who lives in {v[0]}.", _PORTRAIT),
    (TOWNS, "{e}", "{e} is a town in the {v[0]} of {island}. It lies on the river {v[1]} and makes {v[3]}.",
     ("What is {e}?", *_PORTRAIT[1:])),
    (RIVERS, "the {e}", "The {e} is a river of {island}. It rises in {v[0]} and is {v[1]} miles long.", ("What is {e}?",
        *_PORTRAIT[1:])),
    (ANIMALS, "the {e}", "The {e} is an animal of {island}. It is {v[2]} and lives in {v[0]}.", ("What is {e}?", *_PORTRAIT[1:])),
)
GROUPS = (  # who lives in a town, which towns lie on a river
    (TOWNS, lambda e: [p for p in PEOPLE if PEOPLE[p][0] == e], "{both} live in {e}.", (
        "Who lives in {e}?", "Which people live in {e}?", "Name the people who live in {e}.", "Who is at home in {e}?",
        "Whom can I meet in {e}?", "Tell me who lives in {e}.")),
    (RIVERS, lambda e: [t for t in TOWNS if TOWNS[t][1] == e], "{both} lie on the river {e}.", (
        "Which towns lie on the river {e}?", "Which towns lie on the {e}?", "Through which towns does the {e} flow?",
        "Name the towns on the river {e}.", "What towns are on the river {e}?", "Which towns does the river {e} pass?")),
)

_BY_NAME = {relation[0]: relation for relation in FORWARD}


def article(noun: str) -> str:
    return "an" if noun[0] in "aeiou" else "a"


def _fill(template: str, **words) -> str:
    text = template.format(island=ISLAND, a=article(str(words["v"])), an=article(words["e"]), **words)
    return text[0].upper() + text[1:]


def facts():
    """Direct questions: one per fact and wording."""
    for name, table, read, answer, wordings in FORWARD:
        for e in table:
            v = read(table[e])
            for i, wording in enumerate(wordings):
                yield Question("facts", f"fact|{name}|{e}|{i}", _fill(wording, e=e, v=v), _fill(answer, e=e, v=v))


def lookups():
    """From a property back to the one who has it."""
    for name, answer, wordings in REVERSE:
        _, table, read, _, _ = _BY_NAME[name]
        for e in table:
            v = read(table[e])
            for i, wording in enumerate(wordings):
                yield Question("lookups", f"lookup|{name}|{e}|{i}", _fill(wording, e=e, v=v), _fill(answer, e=e, v=v))


def portraits():
    """What or who somebody is, and who or what belongs together."""
    for table, named, answer, wordings in PORTRAITS:
        for e in table:
            said = answer.format(e=e, v=table[e], island=ISLAND, a=article(table[e][1]) if table is PEOPLE else "")
            for i, wording in enumerate(wordings):
                yield Question("portraits", f"portrait|{e}|{i}", wording.format(e=named.format(e=e)), said)
    for table, read, answer, wordings in GROUPS:
        for e in table:
            both = " and ".join(read(e))
            for i, wording in enumerate(wordings):
                yield Question("portraits", f"group|{e}|{i}", wording.format(e=e), answer.format(e=e, both=both))


def confirmations():
    """Yes-or-no questions; the answer states the truth. Keyed by fact, proposed value and wording."""
    for name, wordings in CONFIRM.items():
        _, table, read, answer, _ = _BY_NAME[name]
        values = sorted({read(facts_of) for facts_of in table.values()})
        for e in table:
            truth = read(table[e])
            for v in values:
                if v == e:
                    continue
                for i, wording in enumerate(wordings):
                    stated = _fill(answer, e=e, v=truth)
                    stated = stated[0].lower() + stated[1:] if stated.startswith("The ") else stated
                    text = ("Yes, " if v == truth else "No, ") + stated
                    yield Question("yes or no", f"confirm|{name}|{e}|{v}|{i}", _fill(wording, e=e, v=v), text)


def chains():
    """Questions over two facts; the answer names the step between."""
    for first, second, answer, wordings in CHAINS:
        _, table, read, _, _ = _BY_NAME[first]
        _, next_table, next_read, _, _ = _BY_NAME[second]
        for e in table:
            m = read(table[e])
            v = next_read(next_table[m])
            for i, wording in enumerate(wordings):
                yield Question("two steps", f"chain|{first}|{second}|{e}|{i}", _fill(wording, e=e, v=v, m=m),
                               _fill(answer, e=e, v=v, m=m))
