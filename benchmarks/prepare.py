"""How fast and in how much memory a corpus is prepared, and a prepared one is opened.

    python benchmarks/prepare.py [--databases 500] [--workers 2] [--quick]

1. ``prepare`` on a generated set in SQaLe's shape (113 tables of 69 rows a database, 19 questions each): questions
   and rows a second, peak memory; memory must not grow with the number of shards.
2. The index of 169,277 questions, as published: time and memory to open it and to read what training reads of all
   questions. There are no databases in that folder, so none can be touched.
3. The same set with a counter-database for each question and without, a few databases of it: processor time that the
   choice takes a question, and memory.
4. SynSQL's loader over a JSON array of 400 MB: memory must not depend on the length of the file.
Prints a JSON line a figure and one with all of them at the end; exits 0 only when every limit holds.
"""

import argparse
import json
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import sqale

from sqale_grpo.corpus.prepared import DATABASES_SCHEMA, GROUP, INDEX_SCHEMA, write_parquet

ROOT = Path(__file__).resolve().parent.parent

TABLES, ROWS, QUESTIONS, SHARDS = 113, 69, 19, 4
PUBLISHED_QUESTIONS, PUBLISHED_DATABASES = 169_277, 8_836
LIMITS = {
    "index_seconds": 3.0,
    "index_mb": 400,
    "synsql_mb": 1000,
    "shard_growth": 1.25,
    "copy_seconds": 0.15,  # of a processor, a question
    "copy_growth": 1.25,  # of a worker's memory
}

MEASURED = """
import json, os, sys, threading, time
from pathlib import Path

def high_water(process):
    # getrusage would start at the memory of the process that forked this one
    lines = Path(f"/proc/{{process}}/status").read_text().splitlines()
    return max([int(line.split()[1]) // 1024 for line in lines if line.startswith("VmHWM")], default=0)

workers = {{}}
def watch():
    while True:
        for children in Path("/proc/self/task").glob("*/children"):
            try:
                workers.update({{child: high_water(child) for child in children.read_text().split()}})
            except OSError:
                pass
        time.sleep(0.2)

threading.Thread(target=watch, daemon=True).start()
start = time.perf_counter()
{body}
result["seconds"] = round(time.perf_counter() - start, 2)
result["processor_seconds"] = round(sum(os.times()[:4]), 2)  # of this process and of those that it has waited for
result["mb"] = high_water("self")
result["worker_mb"] = max(workers.values(), default=0)
print(json.dumps(result))
"""


def measure(imports: str, body: str, *arguments: object) -> dict[str, Any]:
    """Run code in a fresh process; it sets ``result``. Returns that, the seconds it took and peak memory in MB."""
    code = imports + MEASURED.format(body=body)
    command = [sys.executable, "-c", code, *map(str, arguments)]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def schema_row(chance: random.Random, name: str) -> dict[str, Any]:
    """A database of TABLES tables with ROWS rows each, every table but the first referencing an earlier one."""
    ddl, content = [], {}
    for n in range(TABLES):
        parent = chance.randrange(max(n, 1))
        ddl.append(
            f"CREATE TABLE table_{n} (id int8 PRIMARY KEY, parent_id int8, label Varchar(40), amount Numeric, day date,"
            f" FOREIGN KEY (parent_id) REFERENCES table_{parent} (id));"
        )
        content[f"table_{n}"] = [
            {
                "id": row,
                "parent_id": chance.randrange(ROWS),
                "label": f"label {chance.randrange(30)} of {name}",
                "amount": chance.randrange(10**6) / 100,
                "day": f"20{chance.randrange(10, 25)}-0{chance.randrange(1, 10)}-1{chance.randrange(10)}",
            }
            for row in range(ROWS)
        ]
    return {
        "schema_id": name,
        "full_schema": "\n".join(ddl),
        "schema_content": json.dumps(content),
        "number_of_tables": TABLES,
    }


def question_row(chance: random.Random, number: int, schema_id: str) -> dict[str, Any]:
    """A join of two tables with a condition, an aggregate and an order."""
    a, b = chance.sample(range(TABLES), 2)
    sql = (
        f"SELECT x.label, count(*) AS n, avg(y.amount) FROM table_{a} AS x JOIN table_{b} AS y ON y.parent_id = x.id"
        f" WHERE y.day >= '2015-01-01' AND x.amount > {chance.randrange(5000)}"
        " GROUP BY x.label ORDER BY n DESC, x.label"
    )
    text = (
        f"For every label of table {a}, how many entries of table {b} since 2015 belong to it, and what is their mean?"
    )
    return {
        "question_id": f"q{number}",
        "schema_id": schema_id,
        "sql": sql,
        "difficulty": chance.choice(("simple", "moderate", "hard")),
        "questions": {style: f"{text} ({style})" for style in sqale.STYLES},
        "relevant_tables": json.dumps([f"table_{a}", f"table_{b}"]),
        "number_of_relevant_tables": 2,
        "execution_result": json.dumps([["label", 3, 1.5]] * 20),
    }


def write_sqale(folder: Path, databases: int, shards: int) -> None:
    """A training split in SQaLe's layout."""
    chance = random.Random(databases)
    for part in ("queries", "schemas"):
        (folder / part).mkdir(parents=True)
    names = [f"schema_{n}" for n in range(databases)]
    questions = [question_row(chance, n, names[n % databases]) for n in range(databases * QUESTIONS)]
    pq.write_table(pa.Table.from_pylist(questions), folder / "queries" / "train.parquet")
    per_shard = -(-databases // shards)
    for shard in range(shards):
        rows = [schema_row(chance, name) for name in names[shard * per_shard : (shard + 1) * per_shard]]
        path = folder / "schemas" / f"train-{shard:05d}-of-{shards:05d}.parquet"
        pq.write_table(pa.Table.from_pylist(rows), path)


def prepare_sqale(folder: Path, databases: int, shards: int, workers: int, copies: int = 0) -> dict[str, Any]:
    """Prepare a generated set, with ``copies`` counter-databases a question; figures of the run."""
    write_sqale(folder / "in", databases, shards)
    body = """
limits = {"workers": int(sys.argv[3]), "counter_databases": int(sys.argv[4])}
corpus = prepare("sqale", sys.argv[1], sys.argv[2], progress=False, **limits)
result = dict(kept=len(corpus), rows=sum(record["rows"] for record in corpus.databases()))
"""
    found = measure("from sqale_grpo.corpus import prepare", body, folder / "in", folder / "out", workers, copies)
    assert found["kept"] == databases * QUESTIONS, found
    return found | {
        "databases": databases,
        "shards": shards,
        "workers": workers,
        "questions_a_second": round(found["kept"] / found["seconds"]),
        "rows_a_second": round(found["rows"] / found["seconds"]),
    }


def open_index(folder: Path, questions: int) -> dict[str, Any]:
    """Write an index of the published size, and open it in a fresh process."""
    chance = random.Random(0)
    folder.mkdir()

    def rows() -> Iterator[tuple]:
        for number in range(questions):
            row = question_row(chance, number, f"schema_{number % PUBLISHED_DATABASES}")
            asked = (row["question_id"], row["schema_id"], list(row["questions"].values()), "")
            yield (
                *asked,
                row["sql"],
                json.loads(row["relevant_tables"]),
                row["difficulty"],
                10,
                "",
                "sqale",
                [3],
                [0.1, 0.0],
            )

    write_parquet(folder / "index.parquet", INDEX_SCHEMA, rows(), GROUP)
    facts = ((f"schema_{n}", TABLES, TABLES - 1, TABLES * ROWS, 10**6) for n in range(PUBLISHED_DATABASES))
    write_parquet(folder / "databases.parquet", DATABASES_SCHEMA, facts, 10_000)
    marker = {"key": {"corpus": "sqale", "split": "train"}, "summary": {}}
    (folder / "prepared.json").write_text(json.dumps(marker))
    body = """
corpus = open_prepared(sys.argv[1])
opened = time.perf_counter() - start
columns = [corpus.gold_sqls(), corpus.unstable(), corpus.column("difficulty"), corpus.column("question_id")]
loaded = time.perf_counter() - start
for index in range(0, len(corpus), len(corpus) // 180):
    corpus.question(index)
each = (time.perf_counter() - start - loaded) / 180
result = dict(questions=len(corpus), open_seconds=round(opened, 4), question_ms=round(1000 * each, 2))
"""
    return measure("from sqale_grpo.corpus import open_prepared", body, folder)


def stream_synsql(folder: Path, megabytes: int) -> dict[str, Any]:
    """Read a SynSQL file of about ``megabytes`` through its loader."""
    folder.mkdir()
    (folder / "databases").mkdir()
    record = {
        "db_id": "farmer's_market",
        "sql_complexity": "Complex",
        "question_style": "Formal",
        "question": "Which stalls sold more than the mean of their market? " * 3,
        "external_knowledge": "more than the mean: above avg(sales) " * 3,
        "cot": "First the mean of each market is needed. " * 60,
        "sql": "SELECT a.name FROM stall AS a JOIN market AS b ON a.market_id = b.id WHERE a.sales > 3 " * 3,
    }
    text = json.dumps(record, indent=2)
    with (folder / "data.json").open("w") as file:
        count = megabytes * 1_000_000 // len(text)
        file.write("[\n" + ",\n".join([text] * 1000))
        for _ in range(count // 1000 - 1):
            file.write(",\n" + ",\n".join([text] * 1000))
        file.write("\n]\n")
    body = """
result = dict(questions=sum(1 for _ in open_source(Path(sys.argv[1]), "train").questions()))
"""
    found = measure("from sqale_grpo.corpus.synsql import open_source", body, folder)
    size = (folder / "data.json").stat().st_size / 1e6
    return found | {"file_mb": round(size), "mb_a_second": round(size / found["seconds"])}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--databases", type=int, default=500)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="a tenth of every size, to try the program itself")
    options = parser.parse_args()
    scale = 10 if options.quick else 1
    databases = max(SHARDS, options.databases // scale)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        one = prepare_sqale(folder / "one", databases // SHARDS, 1, options.workers)
        print(json.dumps({"prepare_one_shard": one}), flush=True)
        all_ = prepare_sqale(folder / "all", databases, SHARDS, options.workers)
        print(json.dumps({"prepare": all_}), flush=True)
        few = max(SHARDS, databases // 20)
        plain, copied = (prepare_sqale(folder / f"{n}-copies", few, 1, options.workers, n) for n in (0, 1))
        more = (copied["processor_seconds"] - plain["processor_seconds"]) / copied["kept"]
        copies = {"copy_seconds": round(more, 4), "copy_growth": round(copied["worker_mb"] / plain["worker_mb"], 3)}
        print(json.dumps({"copies": copies | {"questions": copied["kept"]}}), flush=True)
        index = open_index(folder / "index", PUBLISHED_QUESTIONS // scale)
        print(json.dumps({"index": index}), flush=True)
        synsql = stream_synsql(folder / "synsql", 400 // scale)
        print(json.dumps({"synsql": synsql}), flush=True)
    growth = round(all_["mb"] / one["mb"], 3)
    measured = {
        "index_seconds": index["seconds"],
        "index_mb": index["mb"],
        "synsql_mb": synsql["mb"],
        "shard_growth": growth,
        **copies,
    }
    # At a tenth of the size memory is the imports', and its growth says nothing.
    limits = {name: limit for name, limit in LIMITS.items() if not (options.quick and name == "shard_growth")}
    ok = all(measured[name] <= limit for name, limit in limits.items())
    figures = {"prepare": all_, "copies": copies, "index": index, "synsql": synsql, "shard_growth": growth}
    print(json.dumps({"benchmark": "prepare", **figures, "limits": limits, "ok": ok}))
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
