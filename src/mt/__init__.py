"""From raw parallel text to a translator: the `mt` command and the library behind it."""
