"""What everything else stands on: errors, compiled loops and threads, files, progress, texts."""
