"""The bound join: a join whose columns' types are known, with bounds that are exact for these types."""
