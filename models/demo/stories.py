# SPDX-License-Identifier: Apache-2.0
"""A grammar of short stories: someone wants something, something is in the way, it ends well.

Every choice is made first (who, where, what, which plot) and every sentence is written from the same choices, so that
a reader, and a small model, can tell what must come next.
"""

import random
from dataclasses import dataclass

NAMES = {
    "she": ("Mina", "Lotta", "Bela", "Rosie", "Fenna", "Tilly", "Nora", "Wanda", "Ivy", "Dora", "Elsie", "Luma", "Poppy",
            "Greta"),
    "he": ("Pim", "Otto", "Milo", "Rufus", "Hugo", "Finn", "Barley", "Toby", "Nils", "Oscar", "Benno", "Jasper", "Theo", "Moss"),
}
KINDS = ("fox", "rabbit", "mouse", "bear", "owl", "hedgehog", "frog", "cat", "dog", "duck", "squirrel", "otter", "badger",
         "turtle",
         "sparrow", "goat", "girl", "boy", "dragon", "robot", "lion", "wolf", "princess", "prince", "wizard", "witch", "king",
         "queen",
         "knight", "pig", "sheep", "horse", "bee", "snail", "whale", "penguin", "monkey", "elephant", "tiger", "unicorn", "mole",
         "crow",
         "crab", "butterfly", "hen", "donkey", "giant", "pirate", "baker", "farmer")
FIXED_HE = {"girl": "she", "boy": "he", "princess": "she", "prince": "he", "witch": "she", "king": "he", "queen": "she",
            "hen": "she"}
ADJECTIVES = ("little", "brave", "shy", "curious", "clever", "sleepy", "cheerful", "quiet", "kind", "young", "small", "gentle")
PLACES = ("in a forest", "by the sea", "on a green hill", "near a river", "in a small village", "in an old mill",
          "at the edge of a lake",
          "in a quiet valley", "under a big oak tree", "behind a garden wall", "on a little farm", "in a house with a red roof")
THINGS = ("lantern", "kite", "drum", "ball", "hat", "key", "bell", "map", "book", "boat", "scarf", "basket", "whistle", "blanket")
COLOURS = ("red", "blue", "green", "yellow", "silver", "golden", "white", "purple")
HIDING = ("under a bush", "behind a rock", "in the tall grass", "beside the well", "under the bridge", "in a hollow tree",
          "on top of a wall", "behind the barn", "at the bottom of the stairs", "between two stones")
SEARCHED = ("in the garden", "under the bed", "by the stream", "in the kitchen", "on the hill", "at the market",
            "behind the house")
SKILLS = (("swim", "the water was cold and deep"), ("fly a kite", "the wind was too strong"), ("whistle", "no sound came out"),
          ("climb the tall tree", "the branches were too high"), ("dance", "it was easy to stumble"), ("paint",
              "the colours ran together"),
          ("bake bread", "the bread came out black"), ("ride a bicycle", "the wheels wobbled"), ("read",
              "the letters looked strange"),
          ("play the flute", "it only squeaked"), ("skate", "the ice was slippery"), ("sing", "the notes were all wrong"))
FEARS = (("the dark", "a night without a moon"), ("thunder", "a stormy night"), ("deep water", "the day of the boat race"),
         ("the old bridge", "a foggy morning"), ("strangers", "the day of the fair"), ("high places", "the day of the big climb"))
FOODS = ("apples", "berries", "nuts", "honey cakes", "pancakes", "pears", "cherries", "warm bread")
WEATHER = ("the sun was shining", "it was raining", "the wind was blowing", "snow was falling", "the birds were singing",
           "the sky was grey")
WISHES = ("build a boat", "build a tree house", "plant a garden", "make a snow castle", "cook a big soup", "paint the fence",
          "build a bridge")


@dataclass(frozen=True)
class Cast:
    """Everything that the sentences of one story share."""

    words: dict

    def say(self, rng: random.Random, *variants: str) -> str:
        text = rng.choice(variants).format(**self.words)
        return ". ".join(part[0].upper() + part[1:] for part in text.split(". "))


def _cast(rng: random.Random, kind: str | None) -> Cast:
    """Who and what. Each kind of hero has its own likes, which it follows a third of the time: so a model that always takes
    the likeliest word tells another story of a fox than of a bear."""
    kind = kind or rng.choice(KINDS)
    likes = random.Random(f"likes of the {kind}")

    def pick(options):
        liked = likes.choice(options)
        return liked if rng.random() < 0.35 else rng.choice(options)

    he = FIXED_HE.get(kind) or pick(("he", "she"))
    name = pick(NAMES[he])
    fkind = pick([k for k in KINDS if k != kind])
    fhe = FIXED_HE.get(fkind) or pick(("he", "she"))
    friend = pick([n for n in NAMES[fhe] if n != name])
    adj = pick(ADJECTIVES)
    skill, trouble = pick(SKILLS)
    fear, occasion = pick(FEARS)
    first = pick(SEARCHED)
    second = pick([place for place in SEARCHED if place != first])
    words = {
        "name": name, "kind": kind, "he": he, "him": "her" if he == "she" else "him", "his": "her" if he == "she" else "his",
        "friend": friend, "fkind": fkind, "adj": adj, "a": _article(adj), "ak": _article(kind), "af": _article(fkind),
        "place": pick(PLACES), "thing": pick(THINGS), "colour": pick(COLOURS), "hiding": pick(HIDING), "first": first,
        "second": second,
        "skill": skill, "trouble": trouble, "fear": fear, "occasion": occasion, "food": pick(FOODS), "weather": pick(WEATHER),
        "wish": pick(WISHES), "plot": pick(tuple(PLOTS))}
    return Cast(words)


def _article(word: str) -> str:
    return "an" if word[0] in "aeiou" else "a"


def _opening(c: Cast, rng) -> list[str]:
    return [c.say(
        rng,
        "once upon a time, there was {a} {adj} {kind} named {name} who lived {place}.",
        "once upon a time, {a} {adj} {kind} named {name} lived {place}.",
        "there once was {a} {adj} {kind} named {name} who lived {place}.",
        "long ago, {a} {adj} {kind} named {name} lived {place}.")]


def _lost(c: Cast, rng) -> list[str]:
    return [
        c.say(rng, "{name} had a {colour} {thing} and took it everywhere.",
              "More than anything, {name} loved {his} {colour} {thing}.",
              "On {his} birthday, {name} got a {colour} {thing}."),
        c.say(rng, "One day, the {thing} was gone.", "One morning, {name} could not find the {thing}.",
              "But one day, {name} lost the {thing}."),
        c.say(rng, "{name} looked {first}, but it was not there.", "First {he} looked {first}, but the {thing} was not there."),
        c.say(rng, "Then {he} looked {second}, but it was not there either.", "{he} looked {second} too, but found nothing."),
        c.say(rng, "{name} sat down and felt very sad.", "{name} was so sad that {he} began to cry."),
        c.say(rng, "Then {af} {fkind} named {friend} came by and asked what was wrong.",
              "Just then, {af} {fkind} named {friend} came along."),
        c.say(rng, '"I have lost my {thing}," said {name}.', '"My {colour} {thing} is gone," said {name}.'),
        c.say(rng, '"Do not worry," said {friend}. "We will look together."', '"I will help you," said {friend}.'),
        c.say(rng, "Together they found the {colour} {thing} {hiding}.",
              "They searched all day, and at last they found the {thing} {hiding}."),
        c.say(rng, "{name} hugged {friend} and said thank you.", "{name} was so happy that {he} danced."),
        c.say(rng, "From that day on, {name} and {friend} were best friends.", "And {name} never lost the {thing} again."),
    ]


def _learn(c: Cast, rng) -> list[str]:
    return [
        c.say(rng, "{name} wanted to learn how to {skill}.", "More than anything, {name} wanted to {skill}."),
        c.say(rng, "But it was hard, and {trouble}.", "{he} tried every day, but {trouble}."),
        c.say(rng, '"I will never learn it," said {name}.', "{name} wanted to give up."),
        c.say(rng, "One day, {name} met {af} {fkind} named {friend}.", "Then {name} met {friend}, a wise {fkind}."),
        c.say(rng, '"It took me a long time too," said {friend}. "Try again, and I will help you."',
              '"I can show you how to {skill}," said {friend}.'),
        c.say(rng, "So they practised every morning.", "So {name} and {friend} practised day after day."),
        c.say(rng, "Slowly, {name} got better.", "Each day, {name} got a little better."),
        c.say(rng, "And one day, when {weather}, {name} could {skill} at last.", "At last, {name} could {skill}."),
        c.say(rng, '"You did it!" cried {friend}.', "{friend} clapped and cheered."),
        c.say(rng, "{name} smiled and knew that it is good to keep trying.", "From then on, {name} never gave up too soon."),
    ]


def _fear(c: Cast, rng) -> list[str]:
    return [
        c.say(rng, "{name} was afraid of {fear}.", "There was only one thing that {name} was afraid of, and it was {fear}."),
        c.say(rng, "The others laughed at {him}, but {friend} the {fkind} did not.", "Only {friend} the {fkind} knew about it."),
        c.say(rng, "Then came {occasion}.", "One day, it was {occasion}."),
        c.say(rng, "{name} heard a small voice that called for help.", "Suddenly {name} heard somebody cry."),
        c.say(rng, "It was {friend}, who was stuck {hiding}.", "It was {friend}. The {fkind} was stuck {hiding}."),
        c.say(rng, "{name} was still afraid of {fear}, but {he} thought of {his} friend.",
              "{name} took a deep breath and thought of {friend}."),
        c.say(rng, "So {he} went on, step by step.", "{he} went on, one step after the other."),
        c.say(rng, "At last {he} reached {friend} and helped the {fkind} out.",
              "Soon {he} found {friend} and pulled the {fkind} free."),
        c.say(rng, '"You are very brave," said {friend}.', '"You came!" said {friend}. "You are my hero."'),
        c.say(rng, "From that day on, {name} was not afraid of {fear} any more.",
              "And {name} found that {fear} was not so bad after all."),
    ]


def _share(c: Cast, rng) -> list[str]:
    return [
        c.say(rng, "One day, when {weather}, {name} found a basket full of {food}.",
              "One morning, {name} had a basket full of {food}."),
        c.say(rng, '"I will eat them all by myself," thought {name}.', "{name} wanted to keep all the {food}."),
        c.say(rng, "On the way home, {he} met {af} {fkind} named {friend}.",
              "Then {af} {fkind} named {friend} came down the road."),
        c.say(rng, "{friend} was hungry and tired.", "{friend} had not eaten all day."),
        c.say(rng, "{name} looked at the {food} and thought for a while.", "{name} looked at {friend} and then at the {food}."),
        c.say(rng, '"Come and sit with me," said {name}. "We can share."', '"Would you like some {food}?" asked {name}.'),
        c.say(rng, "They ate the {food} together and told each other stories.", "So they sat down and ate the {food} together."),
        c.say(rng, "The {food} tasted better than ever.", "{name} had never had a nicer meal."),
        c.say(rng, "The next day, {friend} brought a {colour} {thing} as a gift.",
              "Later, {friend} gave {name} a {colour} {thing} to say thank you."),
        c.say(rng, "{name} learned that it is good to share.", "And so {name} found a new friend."),
    ]


def _build(c: Cast, rng) -> list[str]:
    return [
        c.say(rng, "{name} had a big plan. {he} wanted to {wish}.", "One day, {name} decided to {wish}."),
        c.say(rng, "{he} worked all morning, but it was too much for one {kind}.",
              "{name} started at once, but alone it was too hard."),
        c.say(rng, "So {name} went to see {friend} the {fkind}.", "Then {friend} the {fkind} came to see what {name} was doing."),
        c.say(rng, '"Will you help me to {wish}?" asked {name}.', '"I want to {wish}," said {name}, "but I cannot do it alone."'),
        c.say(rng, '"Of course," said {friend}.', '"I would love to," said {friend}.'),
        c.say(rng, "They worked until the evening, and {weather}.", "All day long they worked side by side."),
        c.say(rng, "When they were done, they ate {food} and looked at their work.",
              "When it was finished, they sat down and ate {food}."),
        c.say(rng, '"We did it together," said {name}.', '"Nobody can do alone what two can do together," said {friend}.'),
        c.say(rng, "That night, {name} slept very well.", "And {name} was the happiest {kind} of all."),
    ]


PLOTS = {"lost": _lost, "learn": _learn, "fear": _fear, "share": _share, "build": _build}

ASK = ("Tell me a story.", "Tell me a short story.", "Can you tell me a story?", "Write a story.", "Write a short story.",
       "A story!",
       "I would like to hear a story.", "Please tell me a story.", "Tell me a bedtime story.", "Do you know a story?",
       "Story, please.",
       "Write me a story.", "Tell me another story.", "story", "Tell me something nice.", "Make up a story.", "Tell a story.")
ASK_ABOUT = ("Tell me a story about {x}.", "Tell me a short story about {x}.", "Write a story about {x}.",
             "Write a short story about {x}.",
             "Can you tell me a story about {x}?", "I would like to hear a story about {x}.", "Do you know a story about {x}?",
             "Please tell me a story about {x}.", "Write me a story about {x}.", "A story about {x}, please.")

ABOUT_HERO = ("{ak} {kind}", "{ak} {kind}", "{ak} {kind}", "{a} {adj} {kind}", "{ak} {kind} named {name}",
              "{ak} {kind} and {af} {fkind}",
              "{name}", "{name} the {kind}", "{name} and {friend}")
ABOUT_PLOT = {
    "lost": ("a {thing}", "a {colour} {thing}", "a lost {thing}", "somebody who lost a {thing}"),
    "learn": ("learning to {skill}", "{ak} {kind} who wants to {skill}", "somebody who wants to {skill}", "not giving up"),
    "fear": ("being brave", "{fear}", "{ak} {kind} who is afraid of {fear}", "being afraid"),
    "share": ("sharing", "{food}", "{ak} {kind} who has {food}", "a gift"),
    "build": ("working together", "{ak} {kind} who wants to {wish}", "two friends who {wish}", "a big plan"),
}


def story(rng: random.Random, kind: str | None = None) -> tuple[str, Cast]:
    """A story of nine to twelve sentences, about `kind` if given."""
    cast = _cast(rng, kind)
    sentences = _opening(cast, rng) + PLOTS[cast.words["plot"]](cast, rng)
    return " ".join(sentences), cast


def request(rng: random.Random) -> tuple[str, str]:
    """Somebody asks for a story, and the story."""
    text, cast = story(rng)
    if rng.random() < 0.3:
        return rng.choice(ASK), text
    subjects = ABOUT_HERO if rng.random() < 0.7 else ABOUT_PLOT[cast.words["plot"]]
    return rng.choice(ASK_ABOUT).format(x=rng.choice(subjects).format(**cast.words)), text
