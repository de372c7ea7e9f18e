"""A company's database as it grew: 40 tables, dates, views, odd names; and 60 questions of its people."""

import csv
import random
import sqlite3
from contextlib import closing
from datetime import date, timedelta
from pathlib import Path

CITIES = ("Rome", "Oslo", "Bonn", "Köln", "Paris", "Turin", "Ghent", "Porto")
STATUSES = ("open", "paid", "shipped", "returned")
NAMES = ("Ada", "Ben", "Cleo", "Dana", "Emil", "Fay", "Gus", "Hana", "Ivo", "Jana", "Kai", "Lea")
SURNAMES = ("Berg", "Costa", "Dahl", "Evans", "Fischer", "Grant", "Huber", "Ito", "Jansen", "Keller", "Lang")
# Small tables of one form, as every company has dozens of.
PLAIN = (
    *(
        "warehouses",
        "carriers",
        "currencies",
        "tax_rates",
        "campaigns",
        "channels",
        "contracts",
        "vehicles",
        "machines",
    ),
    *("complaints", "audits", "trainings", "meetings", "rooms", "licences", "budgets", "projects", "tasks", "visits"),
    *("surveys", "vouchers", "newsletters", "holidays", "shifts", "incidents", "inspections", "leases"),
)
SCHEMA = """
CREATE TABLE countries (code TEXT PRIMARY KEY, name TEXT NOT NULL, continent TEXT);
CREATE TABLE cities (id INTEGER PRIMARY KEY, name TEXT NOT NULL, country TEXT REFERENCES countries (code),
    people INTEGER);
CREATE TABLE departments (id INTEGER PRIMARY KEY, name TEXT NOT NULL, floor INTEGER);
CREATE TABLE employees (id INTEGER PRIMARY KEY, name TEXT NOT NULL, department_id INTEGER REFERENCES departments (id),
    manager_id INTEGER REFERENCES employees (id), hired DATE, salary REAL);
CREATE TABLE customers (id INTEGER PRIMARY KEY, name TEXT NOT NULL, city_id INTEGER REFERENCES cities (id), since DATE);
CREATE TABLE categories (id INTEGER PRIMARY KEY, name TEXT NOT NULL);
CREATE TABLE products (id INTEGER PRIMARY KEY, name TEXT NOT NULL, category_id INTEGER REFERENCES categories (id),
    price REAL);
CREATE TABLE "order" (id INTEGER PRIMARY KEY, customer_id INTEGER REFERENCES customers (id),
    status TEXT, placed DATETIME);
CREATE TABLE "Order Details" (order_id INTEGER REFERENCES "order" (id), product_id INTEGER REFERENCES products (id),
    quantity INTEGER NOT NULL, PRIMARY KEY (order_id, product_id));
CREATE TABLE "log.events" (id INTEGER PRIMARY KEY, at DATETIME, kind TEXT,
    employee_id INTEGER REFERENCES employees (id));
CREATE TABLE "2023_targets" (id INTEGER PRIMARY KEY, department_id INTEGER REFERENCES departments (id), amount REAL);
CREATE TABLE "Straße" (id INTEGER PRIMARY KEY, "Länge" REAL, city_id INTEGER REFERENCES cities (id));
CREATE TABLE invoices (id INTEGER PRIMARY KEY, order_id INTEGER REFERENCES "order" (id), due DATE, total REAL);
"""
VIEWS = """
CREATE VIEW open_orders AS SELECT o.id, c.name AS customer, o.placed FROM "order" o
    JOIN customers c ON c.id = o.customer_id WHERE o.status = 'open';
CREATE VIEW revenue AS SELECT p.name AS product, sum(d.quantity * p.price) AS amount FROM "Order Details" d
    JOIN products p ON p.id = d.product_id GROUP BY p.id;
"""


def company_database(path: Path) -> Path:
    """The SQLite file; the same rows each time."""
    rng = random.Random(7)
    path.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(SCHEMA)
        for name, rows in _rows(rng).items():
            marks = ", ".join("?" * len(rows[0]))
            connection.executemany(f'INSERT INTO "{name}" VALUES ({marks})', rows)
        for name in PLAIN:
            connection.execute(
                f"CREATE TABLE {name} (id INTEGER PRIMARY KEY, name TEXT, city_id INTEGER REFERENCES "
                "cities (id), started DATE, cost REAL)"
            )
            rows = [
                (n, f"{name[:-1]} {n}", rng.randint(1, 8), _day(rng), round(rng.uniform(5, 900), 2))
                for n in range(1, 16)
            ]
            connection.executemany(f"INSERT INTO {name} VALUES (?, ?, ?, ?, ?)", rows)
        connection.executescript(VIEWS)
        connection.commit()
    return path


def _day(rng: random.Random) -> str:
    return (date(2020, 1, 1) + timedelta(days=rng.randrange(1_800))).isoformat()


def _rows(rng: random.Random) -> dict[str, list[tuple]]:
    countries = [
        ("IT", "Italy", "Europe"),
        ("NO", "Norway", "Europe"),
        ("DE", "Germany", "Europe"),
        ("FR", "France", "Europe"),
    ]
    people = [f"{first} {last}" for first in NAMES for last in SURNAMES]
    rng.shuffle(people)
    orders = range(1, 241)
    return {
        "countries": countries,
        "cities": [(n, name, countries[n % 4][0], rng.randint(50, 3_000) * 1_000) for n, name in enumerate(CITIES, 1)],
        "departments": [
            (n, name, n % 4) for n, name in enumerate(("Sales", "Support", "Finance", "Research", "Legal"), 1)
        ],
        "employees": [
            (n, people[n], rng.randint(1, 5), rng.randint(1, n - 1) if n > 1 else None, _day(rng), 30_000 + 137.5 * n)
            for n in range(1, 41)
        ],
        "customers": [(n, people[n + 40], rng.randint(1, 8), _day(rng)) for n in range(1, 61)],
        "categories": [(n, name) for n, name in enumerate(("Chairs", "Tables", "Lamps", "Shelves"), 1)],
        "products": [(n, f"Item {n:02d}", rng.randint(1, 4), 4.5 + 7.25 * n) for n in range(1, 31)],
        "order": [
            (n, rng.randint(1, 60), rng.choice(STATUSES), f"{_day(rng)} {n % 24:02d}:{n % 60:02d}:00") for n in orders
        ],
        "Order Details": [(n, p, rng.randint(1, 9)) for n in orders for p in rng.sample(range(1, 31), 2)],
        "log.events": [
            (n, f"{_day(rng)} 12:00:00", rng.choice(("login", "error", "export")), rng.randint(1, 40))
            for n in range(1, 301)
        ],
        "2023_targets": [(n, n, 10_000.5 * n) for n in range(1, 6)],
        "Straße": [(n, 1.5 * n, rng.randint(1, 8)) for n in range(1, 21)],
        "invoices": [(n, n, _day(rng), round(rng.uniform(20, 2_000), 2)) for n in range(1, 201)],
    }


def company_questions() -> list[tuple[str, str]]:
    """Sixty (question, SQL): 57 that train, one over the clock, one whose LIMIT cuts a tie, one that fails."""
    found = [(f"How many {name} are there?", f"SELECT count(*) FROM {name}") for name in PLAIN[:10]]
    found += [
        (f"What do all {name} cost together?", f"SELECT round(sum(cost), 2) FROM {name}") for name in PLAIN[10:18]
    ]
    found += [
        (
            f"How many customers live in {city}?",
            f"SELECT count(*) FROM customers c JOIN cities t ON t.id = c.city_id WHERE t.name = '{city}'",
        )
        for city in CITIES
    ]
    found += [
        (f"How many orders are {status}?", f"SELECT count(*) FROM \"order\" WHERE status = '{status}'")
        for status in STATUSES
    ]
    found += [
        (
            f"Who works in {name}?",
            f"SELECT e.name FROM employees e JOIN departments d ON d.id = e.department_id WHERE d.name = '{name}'",
        )
        for name in ("Sales", "Support", "Finance", "Research", "Legal")
    ]
    found += [
        (f"How many {kind} events are logged?", f"SELECT count(*) FROM \"log.events\" WHERE kind = '{kind}'")
        for kind in ("login", "error", "export")
    ]
    found += [
        (
            f"How many orders were placed in {year}?",
            f"SELECT count(*) FROM \"order\" WHERE strftime('%Y', placed) = '{year}'",
        )
        for year in (2020, 2021, 2022, 2023)
    ]
    return [*found, *_OTHERS]


_OTHERS = [
    ("How many open orders are there, by the view?", "SELECT count(*) FROM open_orders"),
    ("Which customers have open orders?", "SELECT DISTINCT customer FROM open_orders"),
    ("Which product has the highest revenue?", "SELECT product FROM revenue ORDER BY amount DESC LIMIT 1"),
    ("How long are the streets in all?", 'SELECT sum("Länge") FROM "Straße"'),
    (
        "What is the target of Finance for 2023?",
        "SELECT t.amount FROM \"2023_targets\" t JOIN departments d ON d.id = t.department_id WHERE d.name = 'Finance'",
    ),
    ("What is the highest salary?", "SELECT max(salary) FROM employees"),
    ("Who earns most?", "SELECT name FROM employees ORDER BY salary DESC LIMIT 1"),
    ("Which products cost more than 150?", "SELECT name FROM products WHERE price > 150"),
    (
        "How many products has each category?",
        "SELECT c.name, count(*) FROM categories c JOIN products p ON p.category_id = c.id GROUP BY c.id",
    ),
    (
        "How many units of Item 05 were ordered?",
        'SELECT sum(d.quantity) FROM "Order Details" d JOIN products p ON p.id = d.product_id '
        "WHERE p.name = 'Item 05'",
    ),
    (
        "Which cities are in Italy?",
        "SELECT t.name FROM cities t JOIN countries c ON c.code = t.country WHERE c.name = 'Italy'",
    ),
    (
        "What is the total of all invoices due in 2021?",
        "SELECT round(sum(total), 2) FROM invoices WHERE due LIKE '2021%'",
    ),
    ("How many employees have nobody above them?", "SELECT count(*) FROM employees WHERE manager_id IS NULL"),
    ("Which departments are on floor 1?", "SELECT name FROM departments WHERE floor = 1"),
    ("What is the average price of a product?", "SELECT avg(price) FROM products"),
    ("How many invoices are overdue today?", "SELECT count(*) FROM invoices WHERE due < date('now')"),
    (
        "Name one customer of Rome.",
        "SELECT c.name FROM customers c JOIN cities t ON t.id = c.city_id WHERE t.name = 'Rome' LIMIT 1",
    ),
    ("How many parcels are there?", "SELECT count(*) FROM parcels"),
]


def company_csv(path: Path) -> Path:
    """The questions as a CSV file, as people keep them."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("question", "sql"))
        writer.writerows(company_questions())
    return path
