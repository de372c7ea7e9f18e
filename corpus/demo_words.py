"""The demo corpus' vocabulary: what its tables, columns and values are called, and how a question asks for them."""


def _words(text: str) -> list[str]:
    return text.split()


NOUNS = _words("""
customers orders products stores employees invoices payments shipments suppliers warehouses books authors loans
members branches accounts cards claims policies agents flights airports pilots tickets hotels rooms guests
bookings courses students teachers classes exams schools teams players matches stadiums coaches leagues songs
albums artists concerts venues movies actors studios trucks drivers routes stations trains bridges roads parks
museums paintings galleries auctions bids farms fields crops tractors animals zoos doctors patients nurses
clinics drugs trials labs samples devices sensors alerts meters readings plants turbines mines ports ships
captains cargos boats lakes rivers dams wells pumps pipes valves bakers recipes menus dishes chefs meals
kitchens lawyers courts judges cases laws parties votes towns mayors projects tasks budgets grants donors
charities events sponsors banks funds bonds traders brokers clubs gyms races horses riders dogs owners cats
shelters planets moons rockets
""")

# concept -> (what its column may be called, the words of its values)
TEXT_CONCEPTS = {
    "color": (_words("color hue shade"), _words("red blue green black white gray")),
    "city": (_words("city town place"), _words("paris rome oslo berlin madrid vienna")),
    "status": (_words("status state phase"), _words("open closed pending active expired blocked")),
    "kind": (_words("kind type category"), _words("basic premium standard gold silver bronze")),
    "size": (_words("size format scale"), _words("small medium large tiny huge wide")),
    "lang": (_words("language lang tongue"), _words("english french german spanish italian dutch")),
    "season": (_words("season period term"), _words("spring summer autumn winter early late")),
    "mood": (_words("mood tone style"), _words("calm happy angry dull bright formal")),
}
NUMBER_CONCEPTS = {
    "price": _words("price cost amount fee"),
    "weight": _words("weight mass load heft"),
    "score": _words("score rating points grade"),
    "stock": _words("stock quantity volume supply"),
}
AGGREGATES = {"average": "avg", "highest": "max", "lowest": "min", "total": "sum"}

# Naming habits, one of each a schema: they are what a policy cannot know before it looks.
TABLE_PREFIXES = ("", "tbl_", "app_", "main_", "dim_")
TABLE_SUFFIXES = ("", "_data", "_info", "_list")
KEY_STYLES = ("id", "{}_id", "key")
REFERENCE_STYLES = ("{}_id", "ref_{}", "{}_key", "fk_{}")
TYPE_NAMES = (("INTEGER", "TEXT"), ("INT", "VARCHAR"))

# question form -> style -> text; x: the noun asked for, c: a concept, v: a value of it, n: a number's concept, a: an
# aggregate, p: the parent's noun
PHRASINGS = {
    "count": {
        "verbose": "How many {x} have {c} {v}?",
        "evidence_supported": "How many {x} have {c} {v}? Count rows.",
        "structured": "Count {x} with {c} {v}.",
        "requirements_list": "- count\n- {x}\n- {c} {v}",
        "short_ambiguous": "{x}, {c} {v}?",
        "short_high_level": "count {x} of {c} {v}",
        "casual": "hey, how many {x} have {c} {v}",
        "spelling_grammar_mistakes": "how mny {x} has {c} {v}",
    },
    "aggregate": {
        "verbose": "What is the {a} {n} of {x} with {c} {v}?",
        "evidence_supported": "What is the {a} {n} of {x} with {c} {v}? One number.",
        "structured": "Give the {a} {n} of {x} with {c} {v}.",
        "requirements_list": "- {a} {n}\n- {x}\n- {c} {v}",
        "short_ambiguous": "{a} {n}, {x}, {c} {v}?",
        "short_high_level": "{a} {n} of {x} of {c} {v}",
        "casual": "hey, what is the {a} {n} of {x} with {c} {v}",
        "spelling_grammar_mistakes": "what are {a} {n} of {x} with {c} {v}",
    },
    "join_count": {
        "verbose": "How many {x} belong to {p} with {c} {v}?",
        "evidence_supported": "How many {x} belong to {p} with {c} {v}? Count rows.",
        "structured": "Count {x} that belong to {p} with {c} {v}.",
        "requirements_list": "- count\n- {x}\n- belong to {p}, {c} {v}",
        "short_ambiguous": "{x} belong to {p}, {c} {v}?",
        "short_high_level": "count {x} belong to {p} of {c} {v}",
        "casual": "hey, how many {x} belong to {p} with {c} {v}",
        "spelling_grammar_mistakes": "how mny {x} belongs to {p} with {c} {v}",
    },
    "join_aggregate": {
        "verbose": "What is the {a} {n} of {x} that belong to {p} with {c} {v}?",
        "evidence_supported": "What is the {a} {n} of {x} that belong to {p} with {c} {v}? One number.",
        "structured": "Give the {a} {n} of {x} that belong to {p} with {c} {v}.",
        "requirements_list": "- {a} {n}\n- {x}\n- belong to {p}, {c} {v}",
        "short_ambiguous": "{a} {n}, {x} belong to {p}, {c} {v}?",
        "short_high_level": "{a} {n} of {x} belong to {p} of {c} {v}",
        "casual": "hey, what is the {a} {n} of {x} that belong to {p} with {c} {v}",
        "spelling_grammar_mistakes": "what are {a} {n} of {x} that belongs to {p} with {c} {v}",
    },
}
DIFFICULTIES = {"simple": ("count", "aggregate"), "moderate": ("join_count",), "hard": ("join_aggregate",)}
PLACEHOLDERS = ("...", "<string>", "**{difficulty}**")
