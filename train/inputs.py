"""What a run reads beside its configuration: its fingerprints lie in the run's folder, so that a resume meets the same.

A configuration names files. When one of them changes between a stop and a resume, the names are still equal and the
experiment is another one.
"""

import dataclasses
import hashlib
import json
from pathlib import Path

import pyarrow.parquet as pq

from corpus import PreparedCorpus
from corpus.prepared import INDEX
from env.prompts import load_prompts
from train.config import Config
from train.config_check import ConfigError
from train.shape import is_main_process

FILE = "inputs.json"


def input_digests(config: Config, corpus: PreparedCorpus) -> dict[str, str]:
    """Digest of each input's content: every word of the prompts, every row of the prepared corpus' index.

    Rows and not bytes: the same questions, prepared in other steps, may lie in another file.
    """
    prompts = json.dumps(dataclasses.asdict(load_prompts(config.env.prompts)), sort_keys=True)
    rows = hashlib.blake2b(digest_size=16)
    for batch in pq.ParquetFile(corpus.directory / INDEX).iter_batches(4_096):
        for row in batch.to_pylist():
            rows.update(json.dumps(row, sort_keys=True).encode())
    return {"prompts": hashlib.blake2b(prompts.encode(), digest_size=16).hexdigest(), "corpus": rows.hexdigest()}


def check_inputs(config: Config, corpus: PreparedCorpus, folder: Path, resume: bool) -> None:
    """Write the digests where a run begins; ConfigError where one that is resumed began with other content."""
    path, now = folder / FILE, input_digests(config, corpus)
    if resume and path.exists():
        began = json.loads(path.read_text(encoding="utf-8"))
        changed = [name for name, digest in now.items() if began.get(name, digest) != digest]
        if changed:
            places = {"prompts": f"env.prompts={config.env.prompts}", "corpus": str(corpus.directory)}
            named = " and ".join(f"the {name} ({places[name]})" for name in changed)
            raise ConfigError(
                f"{named} changed since the run in {folder} began; restore what was there, or set "
                "another name=... to start a new run"
            )
    elif is_main_process():
        partial = path.with_suffix(".partial")
        partial.write_text(json.dumps(now, indent=2), encoding="utf-8")
        partial.replace(path)
