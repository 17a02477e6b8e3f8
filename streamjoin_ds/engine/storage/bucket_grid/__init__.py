"""The bucket grid: a large window in memory whose rows lie in chunks by cell, added to and never sorted."""
