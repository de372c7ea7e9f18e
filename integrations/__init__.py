"""The environment and reward in other trainers: each module is an adapter to one framework's own interface."""
