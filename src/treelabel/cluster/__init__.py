"""The same verbs on many machines: every input file is a shard, which any process may work on."""
