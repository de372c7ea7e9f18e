"""Training and evaluating a text-to-SQL agent: GRPO on multi-turn tool episodes over live SQLite databases."""
