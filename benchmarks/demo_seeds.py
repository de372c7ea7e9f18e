"""The demo over several seeds and roundings: one line a run, and the table of docs/demo.md.

    python benchmarks/demo_seeds.py --seeds 101,102 --roundings native,avx2,default [section.key=value ...]

Each run is the whole ``sqale-grpo demo`` in processes of its own. ``--out FOLDER`` holds ``seeds.jsonl``, to which a
line is added as each run ends, so that a benchmark which was stopped goes on with the runs that have none, and
``seeds.md``, the table over all lines. ``native`` is what this processor has; ``avx2`` and ``default`` have torch sum
in other orders. Limits: worst difference +30 points, mean +42, lower end of each interval +20, every gold table opened
in 85% of the episodes in the mean, no rate at temperature 1 that is lower over the last five updates than over updates
3 to 7, 60% of the values that were looked up and not stated in the answer, 3 GB.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

AVX2 = {"ONEDNN_MAX_CPU_ISA": "AVX2"}  # with less than what oneDNN would choose, or its kernels end in an error
ROUNDINGS = {
    "native": {},
    "avx2": {"ATEN_CPU_CAPABILITY": "avx2", **AVX2},
    "default": {"ATEN_CPU_CAPABILITY": "default", **AVX2},
}
LINES, TABLE = "seeds.jsonl", "seeds.md"
LOOK_SECONDS = 2.0
GIB = 2**30
WORST, MEAN, LOWER, RECALL, USED, BYTES = 0.30, 0.42, 0.20, 0.85, 0.60, 3e9


def main(words: list[str]) -> int:
    """Play the runs that have no line yet, then print the table; 0 when the limits hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="101", help="whole numbers with commas between")
    parser.add_argument("--roundings", default="native", help=", ".join(ROUNDINGS))
    parser.add_argument("--questions", type=int, default=200)
    parser.add_argument("--out", type=Path, default=Path("runs/seeds"))
    parser.add_argument("overrides", nargs="*", metavar="section.key=value")
    given = parser.parse_args(words)
    roundings = given.roundings.split(",")
    if unknown := set(roundings) - set(ROUNDINGS):
        parser.error(f"no rounding {', '.join(sorted(unknown))}; there are {', '.join(ROUNDINGS)}")
    given.out.mkdir(parents=True, exist_ok=True)
    for rounding in roundings:
        for seed in map(int, given.seeds.split(",")):
            if not any((line["rounding"], line["seed"]) == (rounding, seed) for line in read_lines(given.out)):
                line = play(rounding, seed, given.questions, given.out, given.overrides)
                with (given.out / LINES).open("a", encoding="utf-8") as file:
                    file.write(json.dumps(line) + "\n")
                print(json.dumps(line), flush=True)
    lines = read_lines(given.out)
    text = table(lines)
    (given.out / TABLE).write_text(text, encoding="utf-8")
    missed = misses(lines)
    print(text)
    print(json.dumps({"benchmark": "demo_seeds", "runs": len(lines), "missed": missed, "ok": not missed}))
    return 1 if missed else 0


def read_lines(out: Path) -> list[dict[str, Any]]:
    """The lines of the runs that have ended."""
    path = out / LINES
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def play(rounding: str, seed: int, questions: int, out: Path, overrides: list[str]) -> dict[str, Any]:
    """One whole demo in processes of its own; its line."""
    words = [f"seed={seed}", f"evaluate.questions={questions}", f"output={out}", f"name={rounding}", *overrides]
    started = time.monotonic()
    with (out / f"{rounding}-{seed}.log").open("ab") as log:
        demo = subprocess.Popen(
            [sys.executable, "-m", "sqale_grpo.demo", "demo", *words],
            env={**os.environ, **ROUNDINGS[rounding]},
            stdout=log,
            stderr=log,
        )
        peak = [0]
        watch = threading.Thread(target=watch_memory, args=(demo, peak), daemon=True)
        watch.start()
        if demo.wait():
            raise SystemExit(f"the demo of seed {seed} failed under {rounding}; see {log.name}")
    watch.join()
    folder = out / f"{rounding}-seed{seed}"
    return {
        "rounding": rounding,
        "seed": seed,
        "seconds": round(time.monotonic() - started, 1),
        "peak_bytes": peak[0],
        **figures(folder),
    }


def figures(folder: Path) -> dict[str, Any]:
    """What a finished demo's folder says."""
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    updates = [json.loads(line) for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    rates = [line["equivalent_rate"] for line in updates]
    after = summary["after"]
    return {
        "questions": after["n"],
        "before": summary["before"]["equivalent"],
        "after": after["equivalent"],
        "difference": summary["difference"],
        "interval": summary["interval"],
        "recall": after["table_recall"],
        "unstated_used_of_seen": after["unstated_literals_used_of_seen"],
        "rate_3_7": statistics.mean(rates[3:8]),
        "rate_last_5": statistics.mean(rates[-5:]),
        "seconds_by_stage": summary["seconds"],
        "rates": rates,
        "entropy": [line["entropy"] for line in updates],
        "zero_variance_groups": [line["zero_variance_groups"] for line in updates],
    }


def watch_memory(demo: subprocess.Popen, peak: list[int]) -> None:
    """Keep the largest sum of the proportional set sizes of the demo and all that it started, in bytes."""
    while demo.poll() is None:
        peak[0] = max(peak[0], sum(map(proportional_bytes, descendants(demo.pid))))
        time.sleep(LOOK_SECONDS)


def descendants(pid: int) -> list[int]:
    """``pid`` and every process below it."""
    found = [pid]
    for process in found:
        try:
            for task in Path(f"/proc/{process}/task").iterdir():
                found += [int(child) for child in (task / "children").read_text().split()]
        except OSError:
            continue  # ended meanwhile
    return found


def proportional_bytes(pid: int) -> int:
    """A process's memory, pages that it shares with others counted in part; 0 where it has ended."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")), 0)


def misses(lines: list[dict[str, Any]]) -> list[str]:
    """The limits that the runs do not hold, in words."""
    checks = {
        f"worst difference {WORST:+.0%}": min(line["difference"] for line in lines) >= WORST,
        f"mean difference {MEAN:+.0%}": mean(lines, "difference") >= MEAN,
        f"lower end of each interval {LOWER:+.0%}": min(line["interval"][0] for line in lines) >= LOWER,
        f"tables opened {RECALL:.0%}": mean(lines, "recall") >= RECALL,
        f"values used {USED:.0%}": mean(lines, "unstated_used_of_seen") >= USED,
        "rate of the last five updates": all(line["rate_last_5"] >= line["rate_3_7"] for line in lines),
        "memory": max(line["peak_bytes"] for line in lines) < BYTES,
    }
    return [name for name, holds in checks.items() if not holds]


def mean(lines: list[dict[str, Any]], name: str) -> float:
    """Mean of a figure over the runs that have it."""
    return statistics.mean(line[name] for line in lines if line[name] is not None)


def table(lines: list[dict[str, Any]]) -> str:
    """The runs and their worst and mean, in Markdown; rates in %, differences in points."""
    rows = [
        "| rounding | seed | before | after | difference | 95% interval | every gold table opened | values used | "
        "updates 3-7 | last 5 | seconds |",
        "|---|---:|---:|---:|---:|---|---:|---:|---:|---:|---:|",
    ]
    for line in sorted(lines, key=lambda line: (list(ROUNDINGS).index(line["rounding"]), line["seed"])):
        low, high = line["interval"]
        rows.append(
            f"| {line['rounding']} | {line['seed']} | {100 * line['before']:.1f} | {100 * line['after']:.1f} | "
            f"{100 * line['difference']:+.1f} | {100 * low:+.1f} to {100 * high:+.1f} | {100 * line['recall']:.1f} | "
            f"{100 * (line['unstated_used_of_seen'] or 0):.1f} | {100 * line['rate_3_7']:.1f} | "
            f"{100 * line['rate_last_5']:.1f} | {line['seconds']:.0f} |"
        )
    differences = [100 * line["difference"] for line in lines]
    rows.append(
        f"\n{len(lines)} runs: worst {min(differences):+.1f}, mean {statistics.mean(differences):+.1f}, "
        f"best {max(differences):+.1f} points; most memory {max(line['peak_bytes'] for line in lines) / GIB:.1f} GiB."
    )
    return "\n".join(rows) + "\n"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
