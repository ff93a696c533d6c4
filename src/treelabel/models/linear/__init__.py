"""The default model: tf-idf, linear outputs, calibrated probabilities."""
