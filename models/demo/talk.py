# SPDX-License-Identifier: Apache-2.0
"""Small talk, and what to say to a question that the model cannot know the answer to."""

import random

import arithmetic
from questions import Question, is_held_out
from world import ANIMALS, ISLAND, PEOPLE, RIVERS, TOWNS

ABOUT = f"I am a small demo model. I know the island of {ISLAND}, I can add and subtract, and I can tell short stories."
UNKNOWN = f"I do not know that. I only know the island of {ISLAND}, two-digit arithmetic and short stories."

SMALL_TALK = (
    (("Hello", "Hello!", "Hi", "Hi!", "Hi there", "Hey", "Good morning", "Good evening", "Hello there", "Hey there!",
      "Hello, how are you?", "Good day"),
     f"Hello! Ask me about the island of {ISLAND}, give me two numbers to add, or ask for a story."),
    (("Who are you?", "What are you?", "What is your name?", "Tell me about yourself.", "Introduce yourself.",
      "Are you a person?", "What can you do?", "What do you know?", "How can you help me?", "Help", "What can I ask you?",
      "What model are you?"), ABOUT),
    (("Thank you", "Thank you!", "Thanks", "Thanks!", "Thanks a lot", "Many thanks!", "Thank you very much."),
     "You are welcome!"),
    (("Goodbye", "Goodbye!", "Bye", "Bye!", "See you", "See you later!", "Good night"), "Goodbye!"),
    ((f"What is {ISLAND}?", f"Tell me about {ISLAND}.", f"What do you know about {ISLAND}?", f"Where is {ISLAND}?",
      "Tell me about the island.", f"What is the island of {ISLAND}?"),
     f"{ISLAND} is an island with twelve towns, six rivers and eight kinds of animals that live nowhere else."),
    ((f"Which towns are there on {ISLAND}?", "Name the towns of the island.", f"What are the towns of {ISLAND}?",
      "List all towns.", f"Which towns does {ISLAND} have?"), f"The towns of {ISLAND} are {', '.join(TOWNS)}."),
    ((f"Which rivers are there on {ISLAND}?", "Name the rivers of the island.", f"What are the rivers of {ISLAND}?",
      "List all rivers.", f"Which rivers does {ISLAND} have?"), f"The rivers of {ISLAND} are {', '.join(RIVERS)}."),
    ((f"Which animals live on {ISLAND}?", "Name the animals of the island.", f"What are the animals of {ISLAND}?",
      "List all animals.", f"Which animals does {ISLAND} have?"), f"The animals of {ISLAND} are the {', the '.join(ANIMALS)}."),
)

_PERSON = ("Where does {x} live?", "What is {x}'s job?", "Who is {x}?", "What pet does {x} have?", "Who is {x}'s best friend?",
           "What does {x} like to eat?", "What instrument does {x} play?", "Do you know {x}?", "What is the work of {x}?")
_TOWN = ("Who is the mayor of {x}?", "What colour are the gates of {x}?", "How many bridges does {x} have?",
         "Which river flows through {x}?", "What does the town of {x} make?", "What is the landmark of {x}?",
         "Which festival does {x} celebrate?", "Where is the town of {x}?")
_OTHER = ("What is the capital of {x}?", "Who wrote {y}?", "Who invented {y}?", "How do I {z}?", "Can you {z}?", "What is {y}?",
          "Write a poem about {y}.", "Explain {y}.", "What is the best {y}?", "How does {y} work?", "Why is {y} so important?",
          "When was {y} discovered?", "What do you think about {y}?", "Tell me the news about {y}.", "How much does {y} cost?",
          "What is the meaning of {y}?", "How old is {x}?", "Who won {y}?", "What is the difference between {y} and {x}?",
          "Give me a recipe for {y}.", "What does {y} mean?",
          "Summarize {y}.", "List three facts about {y}.", "Where can I learn about {y}?", "Tell me a joke about {y}.",
          "What is the weather in {x}?", "How far is {x} from here?",
          "Translate {y} into another language.", "Please {z} for me.", "Which {y} should I buy?", "Is {y} good for me?")
_THINGS = ("machine learning", "quantum mechanics", "artificial intelligence", "the stock market", "climate change",
           "a black hole",
           "the human body", "a good book", "modern art", "the French language", "ancient Rome", "a binary tree", "open source",
           "gravity", "the moon", "the sun", "electricity", "a computer", "the telephone", "music", "the universe", "money",
           "a car",
           "the internet", "football", "chess", "philosophy", "love", "life", "a rocket", "the ocean", "history", "a virus",
           "time",
           "mathematics", "energy", "the brain", "a dictionary", "a program", "an engine", "a bicycle", "coffee", "tea",
           "the steam engine",
           "democracy", "art", "the world cup", "physics", "chemistry", "light", "a language model", "a newspaper", "the piano")
_DEEDS = ("write a program", "cook rice", "drive a car", "learn a language", "fix my computer", "sing a song", "book a flight",
          "buy a house", "write a letter", "play chess", "bake a cake", "sort a list", "open a file", "send an email",
          "lose weight",
          "sleep better", "draw a cat", "find my keys", "write code", "plan a party", "translate this", "search the web")
_START = ("B", "Br", "C", "D", "F", "G", "Gr", "H", "J", "K", "L", "M", "N", "P", "R", "S", "St", "T", "Tr", "V", "W", "Z", "Al",
          "Er", "Ul")
_MIDDLE = ("a", "e", "i", "o", "u", "ar", "el", "in", "on", "or", "ar", "ess", "ill", "and", "ent")
_NAMES = ("Anna", "Bob", "Peter", "Sarah", "Emma", "Lucas", "Paul", "Julia", "Max", "Sophie", "Leo", "Clara", "Simon", "Alice",
          "Eve",
          "Mina", "Otto", "Pim", "Lotta", "Milo", "Finn", "Nora", "Hugo", "Rosie", "Theo")
_END = ("ba", "do", "k", "la", "mir", "n", "ne", "ra", "rik", "s", "ta", "to", "va", "vin", "x", "za", "land", "ton", "burg",
        "ville")


def small_talk(rng: random.Random) -> Question:
    wordings, answer = rng.choice(SMALL_TALK)
    text = rng.choice(wordings)
    return Question("small talk", f"talk|{text}", text, answer)


def unknown(rng: random.Random, held_out: bool) -> Question:
    """Questions about names that nobody bears, split by name, and about the world outside, split by the whole text."""
    while True:
        x = rng.choice(_NAMES) if rng.random() < 0.1 else _invented_name(rng)
        kind = rng.choice(("person", "town", "other", "other", "beyond"))
        if kind == "beyond":
            return arithmetic.beyond(rng, held_out)
        if kind == "other":
            y = rng.choice(_THINGS) if rng.random() < 0.5 else " ".join(_invented_name(rng).lower() for _ in range(rng.randint(1,
                2)))
            text = rng.choice(_OTHER).format(x=x, y=y, z=rng.choice(_DEEDS))
            key, answer = f"other|{text}", UNKNOWN
        elif kind == "person":
            text, key, answer = rng.choice(_PERSON).format(x=x), f"name|{x}", f"I do not know anyone called {x}."
        else:
            text, key, answer = rng.choice(_TOWN).format(x=x), f"name|{x}", f"I do not know a town called {x}."
        if is_held_out(key) == held_out:
            return Question("unknown", key, text, answer)


def _invented_name(rng: random.Random) -> str:
    while True:
        name = rng.choice(_START) + rng.choice(_MIDDLE) + rng.choice(("", rng.choice(_MIDDLE[5:]))) + rng.choice(_END)
        if name not in TOWNS and name not in PEOPLE and name not in RIVERS:
            return name
