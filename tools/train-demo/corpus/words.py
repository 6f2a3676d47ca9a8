# SPDX-License-Identifier: Apache-2.0
"""The vocabulary of the corpus: names, animals, things, places, and a few facts of the world."""

GIRLS = """Lily Mia Anna Sara Emma Zoe Ella Ruby Nora Lucy Ivy Rose Maya Kate Amy Alice Clara Daisy Grace Hana Jane Lena
Molly Nina Olive Penny Stella Tina Vera Wendy Luna June Iris Eva Sofia Mary Bella Leah Ada Rita""".split()
BOYS = """Tom Ben Max Sam Leo Tim Jack Finn Noah Oscar Paul Adam Carl Dan Eli Felix George Henry Ivan John Kai Luke Mark
Nick Owen Peter Ray Sean Theo Victor Will Hugo Alex Omar Liam Jonas Milo Toby Bob Ravi""".split()
PETS = """Pip Coco Momo Biscuit Pepper Ginger Hazel Nutmeg Rusty Patch Spot Fluffy Whiskers Bubbles Sunny Shadow Pebble
Clover Maple Acorn Button Pumpkin Snowy Dusty Peanut Cookie Teddy Willow Misty Bruno""".split()
ANIMALS = (
    """rabbit fox bear cat dog mouse frog duck owl squirrel hedgehog turtle lion elephant monkey pig cow sheep horse
goat penguin deer wolf bird bee ant snail fish dragon kitten puppy chick""".split()
)
SOUNDS = {
    "dog": "woof",
    "cat": "meow",
    "cow": "moo",
    "duck": "quack",
    "sheep": "baa",
    "pig": "oink",
    "horse": "neigh",
    "frog": "ribbit",
    "bird": "tweet",
    "owl": "hoot",
    "lion": "roar",
    "bee": "buzz",
    "mouse": "squeak",
    "rooster": "cock-a-doodle-doo",
    "wolf": "howl",
    "goat": "maa",
    "chick": "cheep",
}
COLORS = "red blue green yellow orange purple pink white black brown golden silver".split()
TOYS = """ball kite doll drum hat book boat car cup bell lamp scarf ring coin puzzle train robot whistle blanket
balloon necklace flute basket key button ribbon bag watch""".split()
FOODS = """apple cake cookie pear banana carrot sandwich muffin peach orange pie pancake plum berry nut
sweet biscuit tomato""".split()
PLURALS = """apples cookies pears bananas carrots marbles balls books coins stones shells flowers stickers pencils
eggs cups stars leaves buttons cards candles fish ducks cats toys boxes keys hats nuts plums""".split()
FLOWERS = "sunflower rose daisy tulip pumpkin bean tomato apple cherry strawberry".split()
PLACES = """the park|the forest|the garden|the beach|the farm|the river|the lake|the market|the hill|the village|
the meadow|the school|the library|the playground|the pond|the old bridge|the zoo|the town square""".replace(
    "\n", ""
).split(
    "|"
)
AT = {
    "the beach": "at",
    "the farm": "at",
    "the river": "by",
    "the lake": "by",
    "the market": "at",
    "the hill": "on",
    "the school": "at",
    "the library": "at",
    "the playground": "at",
    "the pond": "by",
    "the old bridge": "near",
    "the zoo": "at",
}
SPOTS = """under the bed|behind the big tree|in the tall grass|under a pile of leaves|behind the door|inside an old box|
next to the red chair|under the wooden bench|behind a large rock|in the kitchen|on top of the shelf|
under a bush|in the sandbox|behind the sofa|inside a boot|in the mailbox|next to the well""".replace("\n", "").split(
    "|"
)
HOBBIES = """play outside|paint pictures|sing songs|read books|run fast|jump in puddles|look at the stars|build things|
help other people|collect shiny stones|climb trees|dance|watch the clouds|draw animals|ride a bike|tell jokes|
swim|pick flowers|bake|explore|play with {his} friends|listen to stories""".replace("\n", "").split("|")
SEASONS = "spring summer autumn winter".split()
WEATHER = "sunny|rainy|windy|cloudy|snowy|foggy|warm|cold".split("|")

CAPITALS = {
    "France": "Paris",
    "Germany": "Berlin",
    "Italy": "Rome",
    "Spain": "Madrid",
    "Japan": "Tokyo",
    "China": "Beijing",
    "India": "New Delhi",
    "Egypt": "Cairo",
    "Kenya": "Nairobi",
    "Canada": "Ottawa",
    "Mexico": "Mexico City",
    "Brazil": "Brasilia",
    "Peru": "Lima",
    "Chile": "Santiago",
    "Norway": "Oslo",
    "Sweden": "Stockholm",
    "Finland": "Helsinki",
    "Denmark": "Copenhagen",
    "Poland": "Warsaw",
    "Greece": "Athens",
    "Turkey": "Ankara",
    "Portugal": "Lisbon",
    "Ireland": "Dublin",
    "Austria": "Vienna",
    "Hungary": "Budapest",
    "Australia": "Canberra",
    "Russia": "Moscow",
    "England": "London",
    "Belgium": "Brussels",
    "Cuba": "Havana",
    "Thailand": "Bangkok",
    "South Korea": "Seoul",
    "Vietnam": "Hanoi",
    "Switzerland": "Bern",
    "Argentina": "Buenos Aires",
}
CITIES = (
    sorted(set(CAPITALS.values()))
    + """Munich Hamburg Milan Lyon Boston Chicago Seattle Denver Toronto Sydney Osaka
Mumbai Shanghai Barcelona Oxford Geneva Zurich Prague Dallas Miami""".split()
    + ["New York", "San Francisco", "Hong Kong", "Cape Town", "Los Angeles"]
)
OPPOSITES = {
    "hot": "cold",
    "big": "small",
    "fast": "slow",
    "happy": "sad",
    "up": "down",
    "day": "night",
    "old": "new",
    "tall": "short",
    "open": "closed",
    "hard": "soft",
    "light": "dark",
    "wet": "dry",
    "full": "empty",
    "loud": "quiet",
    "clean": "dirty",
    "early": "late",
    "left": "right",
    "high": "low",
    "strong": "weak",
    "rich": "poor",
    "near": "far",
    "thick": "thin",
    "heavy": "light",
    "long": "short",
    "good": "bad",
    "first": "last",
    "push": "pull",
    "yes": "no",
}
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
MONTHS = "January February March April May June July August September October November December".split()
NUMBERS = (
    """zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen
eighteen nineteen twenty""".split()
)
LEGS = {
    "dog": 4,
    "cat": 4,
    "bird": 2,
    "spider": 8,
    "ant": 6,
    "cow": 4,
    "duck": 2,
    "bee": 6,
    "horse": 4,
    "snake": 0,
    "fish": 0,
    "rabbit": 4,
    "chicken": 2,
    "person": 2,
}
COLOR_OF = {
    "the sky": "blue",
    "grass": "green",
    "snow": "white",
    "a banana": "yellow",
    "a strawberry": "red",
    "coal": "black",
    "a carrot": "orange",
    "milk": "white",
    "a frog": "green",
    "the sun": "yellow",
    "a tomato": "red",
    "an elephant": "gray",
    "a lemon": "yellow",
    "chocolate": "brown",
    "a leaf in summer": "green",
}
ANIMAL_BABIES = {
    "dog": "puppy",
    "cat": "kitten",
    "cow": "calf",
    "sheep": "lamb",
    "hen": "chick",
    "horse": "foal",
    "goat": "kid",
    "bear": "cub",
    "lion": "cub",
    "duck": "duckling",
    "pig": "piglet",
    "frog": "tadpole",
}
FACTS = {
    "How many days are in a week?": "There are 7 days in a week.",
    "How many months are in a year?": "There are 12 months in a year.",
    "How many hours are in a day?": "There are 24 hours in a day.",
    "How many minutes are in an hour?": "There are 60 minutes in an hour.",
    "How many seconds are in a minute?": "There are 60 seconds in a minute.",
    "What do bees make?": "Bees make honey.",
    "What do cows give us?": "Cows give us milk.",
    "Where do fish live?": "Fish live in water.",
    "What is ice made of?": "Ice is frozen water.",
    "What do plants need to grow?": "Plants need water, light and air to grow.",
    "Why do we sleep?": "We sleep so that our body and mind can rest.",
    "What is the largest ocean?": "The largest ocean is the Pacific Ocean.",
    "What is the closest star to Earth?": "The closest star to Earth is the Sun.",
    "Which planet do we live on?": "We live on the planet Earth.",
    "What do we use an umbrella for?": "We use an umbrella to stay dry in the rain.",
    "What comes after night?": "After night comes the day.",
    "What is the first letter of the alphabet?": "The first letter of the alphabet is A.",
    "What is the last letter of the alphabet?": "The last letter of the alphabet is Z.",
    "How many sides does a triangle have?": "A triangle has 3 sides.",
    "How many sides does a square have?": "A square has 4 sides.",
    "How many wheels does a car have?": "A car has 4 wheels.",
    "How many wheels does a bike have?": "A bike has 2 wheels.",
    "What language is spoken in France?": "French is spoken in France.",
    "Where does the sun rise?": "The sun rises in the east.",
    "Which animal is the largest?": "The blue whale is the largest animal.",
    "Which animal is the tallest?": "The giraffe is the tallest animal.",
    "What melts in the sun?": "Ice and snow melt in the sun.",
    "What is a doctor?": "A doctor is a person who helps sick people get well.",
    "What is a library?": "A library is a place where you can read and borrow books.",
    "What is a computer?": "A computer is a machine that follows instructions very fast.",
    "What is Python?": "Python is a programming language that is easy to read.",
    "What is a robot?": "A robot is a machine that can move and do work.",
}


def at(place):
    """ "the park" -> "in the park"."""
    return AT.get(place, "in") + " " + place


def made_up_word(rng, low=2, high=3):
    """A word nobody knows, so that copying is learnt and not recall."""
    consonants, vowels = "bdfgklmnprstvz", "aeiou"
    return "".join(
        consonants[int(rng.random() * 14)] + vowels[int(rng.random() * 5)] for _ in range(rng.randint(low, high))
    ) + ("" if rng.random() < 0.5 else consonants[int(rng.random() * 14)])
