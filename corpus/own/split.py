"""Which questions train and which test: by a hash of the query, so that a question never moves when others come."""

import hashlib
import re


def is_test(db_id: str, sql: str, share: float) -> bool:
    """Whether a question is held out. Questions of one query, whatever their wording, go the same way."""
    folded = re.sub(r"\s+", " ", sql).strip(" ;").lower()
    digest = hashlib.blake2b(f"{db_id}\0{folded}".encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big") < share * 2**64


def new_id(db_id: str, question: str, sql: str) -> str:
    """A name for a question that depends on nothing but itself."""
    digest = hashlib.blake2b(f"{db_id}\0{question}\0{sql}".encode("utf-8", "surrogatepass"), digest_size=5)
    return digest.hexdigest()
