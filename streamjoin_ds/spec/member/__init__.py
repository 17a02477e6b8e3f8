"""The members of a join: its streams and tables, where their rows come from, and their options."""
