"""Names that were changed before the first release, for "did you mean" where no similarity would find the new one."""

from typing import Final

# Old name to new name, of settings and of anything that is looked up by name.
RENAMED: Final[dict[str, str]] = {
    "accumulate": "gradient_accumulation_steps",
    "batch": "batch_size",
    "beta": "loss_params",
    "bits": "n_features",
    "checkpoints": "checkpoint_dir",
    "clip": "max_grad_norm",
    "cost": "C",
    "dimension": "vector_size",
    "encoder_share": "encoder_weight",
    "folds": "cv",
    "freeze": "frozen_layers",
    "held_out": "validation_fraction",
    "hidden": "hidden_size",
    "label_pull": "label_prior_strength",
    "lambda_parameters": "loss_params",
    "lambda_probabilities": "loss_params",
    "layer_decay": "layerwise_lr_decay",
    "models": "estimators",
    "most_passes": "max_iter",
    "parent_pull": "parent_prior_strength",
    "pieces": "char_ngram_range",
    "rate": "learning_rate",
    "rates": "learning_rates",
    "save_memory": "gradient_checkpointing",
    "schedule": "lr_scheduler",
    "tau": "loss_params",
    "tfidf_width": "lsa_components",
    "warm_up": "warmup_ratio",
    "words": "ngram_range",
}
