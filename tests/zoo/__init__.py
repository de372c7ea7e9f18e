"""Database files of every kind that SQLite reads, made on the spot, each with what is right about it."""
