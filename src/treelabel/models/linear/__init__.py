"""The default model: tf-idf, linear outputs, and calibrated probabilities."""
