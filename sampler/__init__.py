"""Which tables an episode's database holds, and the database built from them."""
