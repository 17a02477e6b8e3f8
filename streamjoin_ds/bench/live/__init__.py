"""Live queries, measured trigger by trigger and tuple by tuple."""
