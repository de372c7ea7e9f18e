"""The agent: a trained checkpoint answers questions over a SQLite file, and the single file that it is shipped as."""
