"""The foundation of all rooms: errors, registries, compiled loops and threads, files, progress, strings."""
