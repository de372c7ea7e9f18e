"""A corpus of one's own: made from what a company has, checked, and kept up. ``corpus.command`` runs it."""
