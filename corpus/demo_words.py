"""The demo corpus' vocabulary: what its tables, columns and values are called, and how a question asks for them."""

NOUNS = """
customers orders products stores employees invoices payments shipments suppliers warehouses books authors loans members branches
accounts cards claims policies agents flights airports pilots tickets hotels rooms guests bookings courses students teachers
classes exams schools teams players matches stadiums coaches leagues songs albums artists concerts venues movies actors studios
trucks drivers routes stations trains bridges roads parks museums paintings galleries auctions bids farms fields crops tractors
animals zoos doctors patients nurses clinics drugs trials labs samples devices sensors alerts meters readings plants turbines
mines ports ships captains cargos boats lakes rivers dams wells pumps pipes valves bakers recipes menus dishes chefs meals kitchens
lawyers courts judges cases laws parties votes towns mayors projects tasks budgets grants donors charities events sponsors
banks funds bonds traders brokers clubs gyms races horses riders dogs owners cats shelters planets moons rockets
""".split()

# concept -> (what its column may be called, the words of its values)
TEXT_CONCEPTS = {
    "color": ("color hue shade".split(), "red blue green black white gray".split()),
    "city": ("city town place".split(), "paris rome oslo berlin madrid vienna".split()),
    "status": ("status state phase".split(), "open closed pending active expired blocked".split()),
    "kind": ("kind type category".split(), "basic premium standard gold silver bronze".split()),
    "size": ("size format scale".split(), "small medium large tiny huge wide".split()),
    "lang": ("language lang tongue".split(), "english french german spanish italian dutch".split()),
    "season": ("season period term".split(), "spring summer autumn winter early late".split()),
    "mood": ("mood tone style".split(), "calm happy angry dull bright formal".split()),
}
NUMBER_CONCEPTS = {
    "price": "price cost amount fee".split(),
    "weight": "weight mass load heft".split(),
    "score": "score rating points grade".split(),
    "stock": "stock quantity volume supply".split(),
}
AGGREGATES = {"average": "avg", "highest": "max", "lowest": "min", "total": "sum"}

# Naming habits, one of each a schema: they are what a policy cannot know before it looks.
TABLE_PREFIXES = ("", "tbl_", "app_", "main_", "dim_")
TABLE_SUFFIXES = ("", "_data", "_info", "_list")
KEY_STYLES = ("id", "{}_id", "key")
REFERENCE_STYLES = ("{}_id", "ref_{}", "{}_key", "fk_{}")
TYPE_NAMES = (("INTEGER", "TEXT"), ("INT", "VARCHAR"))

# question form -> style -> text; x: the noun asked for, v: a value, n: a number's concept, a: an aggregate, p: the parent's noun
PHRASINGS = {
    "count": {
        "verbose": "How many {x} are {v}?",
        "evidence_supported": "How many {x} are {v}? Count rows.",
        "structured": "Count {x} that are {v}.",
        "requirements_list": "- count\n- {x}\n- {v}",
        "short_ambiguous": "{x} {v}?",
        "short_high_level": "count {v} {x}",
        "casual": "hey, how many {x} are {v}",
        "spelling_grammar_mistakes": "how mny {x} is {v}",
    },
    "aggregate": {
        "verbose": "What is the {a} {n} of {v} {x}?",
        "evidence_supported": "What is the {a} {n} of {v} {x}? One number.",
        "structured": "Give the {a} {n} of {v} {x}.",
        "requirements_list": "- {a} {n}\n- {x}\n- {v}",
        "short_ambiguous": "{a} {n}, {v} {x}?",
        "short_high_level": "{a} {n} of {v} {x}",
        "casual": "hey, what is the {a} {n} of {v} {x}",
        "spelling_grammar_mistakes": "what are {a} {n} of {v} {x}",
    },
    "join_count": {
        "verbose": "How many {x} belong to {v} {p}?",
        "evidence_supported": "How many {x} belong to {v} {p}? Count rows.",
        "structured": "Count {x} that belong to {v} {p}.",
        "requirements_list": "- count\n- {x}\n- belong to {v} {p}",
        "short_ambiguous": "{x} of {v} {p}?",
        "short_high_level": "count {x} of {v} {p}",
        "casual": "hey, how many {x} belong to {v} {p}",
        "spelling_grammar_mistakes": "how mny {x} belongs to {v} {p}",
    },
    "join_aggregate": {
        "verbose": "What is the {a} {n} of {x} that belong to {v} {p}?",
        "evidence_supported": "What is the {a} {n} of {x} that belong to {v} {p}? One number.",
        "structured": "Give the {a} {n} of {x} that belong to {v} {p}.",
        "requirements_list": "- {a} {n}\n- {x}\n- belong to {v} {p}",
        "short_ambiguous": "{a} {n}, {x} of {v} {p}?",
        "short_high_level": "{a} {n} of {x} of {v} {p}",
        "casual": "hey, what is the {a} {n} of {x} that belong to {v} {p}",
        "spelling_grammar_mistakes": "what are {a} {n} of {x} that belongs to {v} {p}",
    },
}
DIFFICULTIES = {"simple": ("count", "aggregate"), "moderate": ("join_count",), "hard": ("join_aggregate",)}
PLACEHOLDERS = ("...", "<string>", "**{difficulty}**")
