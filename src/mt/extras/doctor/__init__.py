"""What is wrong with a corpus, before a training shows it."""
