"""Every other name of a setting or of one of its values: what it is called now. Other names of options are declared
with the option, in `requests`; flags of other programs are in `compat.flag_hints`."""

RENAMED_SETTINGS = {
    "recipe.model.bn_span": "recipe.model.batch_norm_images",
    "recipe.detect.score": "recipe.detect.min_score",
    "recipe.detect.per_class": "recipe.detect.max_per_class",
    "recipe.detect.most": "recipe.detect.max_detections",
    "recipe.optim.trust": "recipe.optim.trust_coefficient",
    "machine.buffers": "machine.batch_norm_statistics",
}
"""Old name -> new name, from the top of the configuration: for files of schema 1, and for the message about a setting
that is given by its old name, which is an error since 0.3.0."""

REMOVED_SETTINGS = {
    "machine.gradient_compression": "It was removed in 0.4.0: gradients are sent as they are. Omit it.",
}
"""What to do about a setting that is gone, in the message about it; files of earlier versions are migrated."""

ALIASES = {"data.workers": "machine.workers", "data.prefetch": "machine.prefetch"}
"""Names people try that are settings of another group; they are understood."""

USUAL_NAMES = {"learning_rate": "optim.lr", "batch_size": "global_batch", "batch": "global_batch"}
"""Last parts of names in other programs, for the suggestion in a message."""

OTHER_VALUES = {
    "machine.device": {"gpu": "cuda", "rocm": "cuda", "gaudi": "hpu", "habana": "hpu"},
    "machine.mode": {"graph": "compile"},
}
"""Values by setting, in files, assignments and the options that change the setting; they are understood."""
