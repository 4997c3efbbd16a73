"""Everything around the core; the core never imports it."""
