"""The tests must catch mistakes: each is made in a copy of foci, and the tests named beside it must fail.

A mutant names a function and the form of the code in it that is replaced (tests/support/mutation.py). Its tests run
against the copy in a process of their own, and only those that should notice: `python -m pytest tests/mutants -k NAME`
shows whether they do.
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import cache_from_source
from pathlib import Path
from typing import NamedTuple

import pytest
from mutation import change

from foci.functional.kernels import status

ROOT = Path(__file__).parents[2]


class Mutant(NamedTuple):
    """A mistake in Python: ``good`` is the form of one part of the function ``where``; ``tests`` catch ``bad``."""

    where: str
    good: str
    bad: str
    tests: str

    def broken(self, package: Path) -> tuple[Path, str]:
        """Return the file of a copy of foci that has the mistake, and its text with it."""
        return change(package, self.where, self.good, self.bad)


class KernelMutant(NamedTuple):
    """A mistake in C++: ``good`` stands once in the file ``where``; ``tests`` catch ``bad``."""

    where: str
    good: str
    bad: str
    tests: str

    def broken(self, package: Path) -> tuple[Path, str]:
        """Return the file of a copy of foci that has the mistake, and its text with it."""
        path = package / "functional" / "kernels" / "cpp" / self.where
        text = path.read_text(encoding="utf-8")
        assert text.count(self.good) == 1, f"{path.name}: {text.count(self.good)} matches, expected 1: mend the mutant"
        return path, text.replace(self.good, self.bad)


CONTRACT = "tests/contract"
DEFINED = f"{CONTRACT}/test_by_definition.py::test_output_and_weights_by_definition"
DROPPED = f"{CONTRACT}/test_dropout.py::test_the_share_of_the_weights_that_is_dropped"
DEAD = f"{CONTRACT}/test_attend_family.py::test_dead_rows_give_zeros_and_finite_gradients"
NORMALIZE = "tests/functional/test_normalize.py"
BEAM, SAMPLING = "tests/decoding/test_beam_search.py", "tests/decoding/test_sampling.py"
COPYING = "tests/layers/test_copying.py"
CTC = "tests/decoding/test_ctc_prefix.py"
EVERY_TASK = f"{CONTRACT}/test_every_task.py"

MUTANTS = {
    # --- copying and summaries
    "copying: a row without attention copies": Mutant(
        "CopyHead._gates", "_1.masked_fill(~_2, 0.0)", "_1", f"{COPYING}::test_the_mixture_is_the_papers"
    ),
    "copying: the target of another row": Mutant(
        "CopyHead.predict",
        "_1.div(_2, rounding_mode='floor')",
        "_1.div(_2 + 1, rounding_mode='floor')",
        f"{COPYING}::test_loss_and_log_probabilities_agree[luong]",
    ),
    "copying: the logarithm of 0": Mutant(
        "copying._safe_log",
        "_1.masked_fill(_2 == 0, -torch.inf)",
        "_1",
        f"{COPYING}::test_a_padded_batch_equals_each_alone[luong]",
    ),
    "copying: unknown words of targets stay unknown": Mutant(
        "CopyIds._extended",
        "_1.get(_2, UNK)",
        "UNK",
        "tests/tasks/summarize/test_reader.py::test_unknown_words_are_numbered_by_source_and_found_in_the_target",
    ),
    "copying: a copied word is read as the last of the vocabulary": Mutant(
        "CopyHead.readable",
        "_1.masked_fill(_2, self.unknown)",
        "_1.masked_fill(_2, self.vocabulary - 1)",
        f"{COPYING}::test_a_copied_word_is_read_as_unknown[luong]",
    ),
    "copying: by another head": Mutant(
        "copying.copying_head", "_1.heads(0)", "_1.heads(1)", f"{COPYING}::test_the_first_head_copies[transformer]"
    ),
    "coverage: without a gradient": Mutant(
        "RecurrentDecoder._read",
        "_1 + _2.dense().squeeze(1)",
        "_1 + _2.dense().squeeze(1).detach()",
        "tests/models/test_seq2seq_rnn.py::test_gradients_pass_through_the_coverage[luong coverage]",
    ),
    # --- masks
    "cache: the mask of the first positions": Mutant(
        "clear_unreadable",
        "_1[..., _1.shape[-1] - _2.shape[-2] :]",
        "_1[..., : _2.shape[-2]]",
        "tests/mechanisms/test_heads.py::test_what_the_padding_of_new_positions_holds_has_no_effect",
    ),
    "softmax: mask dropped": Mutant("masks.masked_softmax", "_1 is None", "True", f"{DEFINED}[additive-keys-fused]"),
    "softmax: mask inverted": Mutant(
        "masks.masked_softmax", "check_mask(*__)", "~check_mask(*__)", f"{DEFINED}[additive-keys-fused]"
    ),
    "softmax: a row of -inf alone": Mutant(
        "masks.masked_softmax",
        "_1.masked_fill(_2, -torch.inf).masked_fill(*__)",
        "_1.masked_fill(_2, -torch.inf)",
        f"{DEAD}[additive-keys]",
    ),
    "softmax: wrong axis": Mutant(
        "masks.masked_softmax",
        "torch.softmax(_1, dim=-1).masked_fill(*__)",
        "torch.softmax(_1, dim=-2).masked_fill(*__)",
        f"{DEFINED}[additive-keys-fused]",
    ),
    "causal: aligned to the first key": Mutant(
        "masks.window", "within(*__, offset=_1)", "within(*__, offset=0)", f"{DEFINED}[additive/causal-none-fused]"
    ),
    "window: one key too many": Mutant(
        "masks.within", "_1 >= _2 - _3", "_1 >= _2 - _3 - 1", f"{DEFINED}[additive/sliding_window-none-fused]"
    ),
    "a bias of -inf does not close": Mutant(
        "mask_and_bias",
        "_1 == -torch.inf",
        "_1 == torch.inf",
        f"{CONTRACT}/test_padding.py::test_a_bias_of_minus_infinity_is_a_mask",
    ),
    "padding is not cleared": Mutant(
        "clear_unreadable",
        "_1.masked_fill(~_2, 0.0)",
        "_1",
        f"{CONTRACT}/test_padding.py::test_attend[general-NaN-keys]",
    ),
    # --- normalizers
    "sparsemax: masked cells keep their weight": Mutant(
        "sparse._within_mask", "_1.masked_fill(_2, -torch.inf)", "_1", f"{DEFINED}[sparsemax-keys-fused]"
    ),
    "sparsemax: NaN as an index": Mutant(
        "sparse._count",
        "_1.clamp_min(1)",
        "_1",
        f"{NORMALIZE}::test_a_row_with_nan_gives_nan_unless_the_mask_closes_it",
    ),
    "entmax15: infinite second derivatives": Mutant(
        "sparse._root",
        "_1.masked_fill(_2, 1.0).sqrt().masked_fill(_2, 0.0)",
        "_1.sqrt()",
        f"{NORMALIZE}::test_second_derivatives_are_exact_also_where_a_weight_is_zero",
    ),
    "entmax15: the threshold is not halved": Mutant(
        "sparse._entmax15", "_1 / 2", "_1 / 1", f"{DEFINED}[entmax-none-fused]"
    ),
    "sigmoid: softmax instead": Mutant(
        "normalize.sigmoid", "_.logsigmoid(_1)", "_1", f"{DEFINED}[general/sigmoid-none-fused]"
    ),
    "sampling: noise in half precision": Mutant(
        "sample._with_noise",
        "_1 - _2.log()",
        "_1 - _2.log().to(_1.dtype)",
        f"{NORMALIZE}::test_samples_in_half_precision_are_unbiased",
    ),
    "REINFORCE: a gradient passes to the reward": Mutant(
        "sample.reinforce",
        "(_1 - _2).detach()",
        "_1 - _2",
        f"{NORMALIZE}::test_no_gradient_passes_to_the_reward_or_the_baseline",
    ),
    "local_p: centers in half precision": Mutant(
        "predicted_center",
        "at_least_float32(_1)",
        "_1",
        "tests/mechanisms/test_focus.py::test_centers_of_half_precision_are_of_single_precision",
    ),
    "median: one position late at exact halves": Mutant(
        "near_median",
        "_1.cumsum(dim=-1) < _2",
        "_1.cumsum(dim=-1) <= _2",
        "tests/mechanisms/test_focus.py::test_the_median_is_the_first_position_that_reaches_one_half",
    ),
    "gradients of a source: sums are kept between passes": Mutant(
        "_Shared.backward",
        "_1.pop(_2, None)",
        "_1.get(_2)",
        "tests/functional/kernels/test_source_gradients.py::test_each_backward_pass_has_its_own_sums",
    ),
    "gumbel: the gradient of the noise-free softmax": Mutant(
        "sample.gumbel",
        "masked_softmax(_1, _2)",
        "masked_softmax(scores, _2)",
        f"{NORMALIZE}::test_gumbel_is_hard_forward_and_soft_backward",
    ),
    # --- paths of attend
    "fused: mask dropped": Mutant(
        "attend_dots", "combine(_1, *__)", "combine(None, *__)", f"{DEFINED}[scaled_dot-keys-fused]"
    ),
    "fused: dead rows keep what they read": Mutant(
        "attend_dots", "_1.masked_fill(~_2, 0.0)", "_1", f"{DEAD}[scaled_dot-per query]"
    ),
    "fused: dropout lost": Mutant(
        "attend._sdpa", "_1(*__, dropout_p=_2)", "_1(*__, dropout_p=0.0)", f"{DROPPED}[fused-scaled_dot/dropout]"
    ),
    "fused: sharpening lost": Mutant(
        "Reading.fused_scale", "_1.scale * self.sharpening", "_1.scale", f"{DEFINED}[general/sharpening-none-fused]"
    ),
    "short: dropout lost": Mutant("attend_dots", "F.dropout(_1, _2)", "_1", f"{DROPPED}[short-scaled_dot/dropout]"),
    "short: grouped values in the wrong order": Mutant(
        "functional.attend._repeated",
        "_1.repeat_interleave(_2, dim=1)",
        "_1.repeat(1, _2, 1, 1)",
        f"{DEFINED}[multi_head/grouped-none-short]",
    ),
    "keep_weights: grouped values in the wrong order": Mutant(
        "functional.attend._repeated",
        "_1.repeat_interleave(_2, dim=1)",
        "_1.repeat(1, _2, 1, 1)",
        f"{DEFINED}[multi_head/grouped_keep_weights-none-fused]",
    ),
    "attend_scores: dropout lost": Mutant(
        "attend._read_with", "F.dropout(_1, _2)", "_1", f"{DROPPED}[fused-additive/dropout]"
    ),
    "plain scores: sharpening lost": Mutant(
        "Reading.compare", "_1 * self.sharpening", "_1", f"{DEFINED}[additive/sharpening-none-fused]"
    ),
    "steps: dropout lost": Mutant(
        "scores.score.read_weights", "F.dropout(_1, _2)", "_1", f"{DROPPED}[fused-location_aware/dropout]"
    ),
    "steps: sharpening lost": Mutant(
        "stepwise._weigh", "_1 * _2.sharpening", "_1", f"{DEFINED}[location_aware/sharpening-none-fused]"
    ),
    "steps: the previous weights are not passed on": Mutant(
        "stepwise._location_scores",
        "add_location(_1, _2, *__)",
        "add_location(_1, torch.zeros_like(_2), *__)",
        f"{DEFINED}[location_aware-none-fused]",
    ),
    "steps: the window does not follow the median": Mutant(
        "stepwise._readable",
        "near_median(_1, *__)",
        "near_median(torch.zeros_like(_1), *__)",
        f"{DEFINED}[additive/median_window-none-fused]",
    ),
    "steps: the mask of a query dropped": Mutant(
        "stepwise._readable", "(*_1, *_2)", "_2", f"{DEFINED}[location_aware/median_window-per query-fused]"
    ),
    "local: mask dropped": Mutant(
        "windows._window",
        "_.LocalWindow(_1, _2, _3, *__)",
        "window_plain.LocalWindow(_1, _2, None, *__)",
        f"{DEFINED}[local_m-keys-fused]",
    ),
    "local: sharpening lost": Mutant(
        "Reading.fused_scale", "_1.scale * self.sharpening", "_1.scale", f"{DEFINED}[local_m/sharpening-none-fused]"
    ),
    "local: dropout lost": Mutant("window_plain.read", "F.dropout(_1, _2)", "_1", f"{DROPPED}[fused-local_p/dropout]"),
    "local: the Gaussian lost": Mutant(
        "window_plain.read", "_1 * _2.unsqueeze(2).to(*__)", "_1", f"{DEFINED}[local_p/additive-none-fused]"
    ),
    "local: row lengths of the first query's mask": Mutant(
        "windows.row_lengths",
        "_1.any(dim=1).expand(*__)",
        "_1[:, 0].expand(*__)",
        f"{DEFINED}[local_p-per query-fused]",
    ),
    # --- mechanisms
    "additive: score vector dropped": Mutant(
        "TanhScore.compare",
        "additive_scores(_1, _2, _3, *__)",
        "additive_scores(_1, _2, _3.detach() * 0 + 1, *__)",
        f"{DEFINED}[additive-none-fused]",
    ),
    "gradients taken through other inputs": Mutant(
        "gradients.differentiate", "_1.view_as(_1)", "_1", "tests/functional/test_dependent_inputs.py"
    ),
    "location_aware: only one step's gradient of the keys": Mutant(
        "_LocationAware.backward",
        "_1(*__, key_sum=_2)",
        "_1(*__, key_sum=None)",
        "tests/functional/kernels/test_source_gradients.py::test_steps_give_the_gradients_of_the_loop",
    ),
    "state kept on the module": Mutant(
        "Attention.read",
        "_1.project_query(_2)",
        "setattr(self, 'projected', _1.project_query(_2)) or self.projected",
        f"{CONTRACT}/test_every_row.py::test_forward_changes_nothing_on_the_module[general]",
    ),
    "multi_head: mask not passed on": Mutant(
        "MultiHeadAttention._read_heads",
        "attend_dots(_1, _2, _3, _4, *__)",
        "attend_dots(_1, _2, _3, None, *__)",
        f"{DEFINED}[multi_head-keys-fused]",
    ),
    "multi_head: masks of heads combined by all": Mutant(
        "MultiHeadAttention._join",
        "_1.any(dim=-1).any(dim=1)",
        "_1.any(dim=-1).all(dim=1)",
        f"{CONTRACT}/test_by_definition.py::test_masks_of_each_head[multi_head-fused]",
    ),
    "multi_head: not causal": Mutant(
        "MultiHeadAttention.read", "causal_window(_1)", "_1", f"{DEFINED}[multi_head/causal-none-fused]"
    ),
    "multi_head: grouped heads in the wrong order": Mutant(
        "MultiHeadAttention._read_heads",
        "_1.repeat_interleave(_2, dim=1)",
        "_1.repeat(1, _2, 1, 1)",
        f"{DEFINED}[multi_head/grouped_sparsemax-none-fused]",
    ),
    "multi_head: queries turned from position 0": Mutant(
        "MultiHeadAttention.read",
        "rotary(projected, start=_1, *__)",
        "rotary(projected, start=0, *__)",
        f"{DEFINED}[multi_head/rotary-none-fused]",
    ),
    "multi_head: the cache behind the new keys": Mutant(
        "KeyValueCache.extend",
        "torch.cat([_1.key, _2], dim=2)",
        "torch.cat([_2, _1.key], dim=2)",
        f"{CONTRACT}/test_attend_family.py::test_decoding_with_a_cache_equals_reading_at_once",
    ),
    "alibi: far cells favored": Mutant(
        "positions.alibi_bias", "-_1.view(*__)", "_1.view(*__)", f"{DEFINED}[multi_head/alibi-none-fused]"
    ),
    "alibi: the default dtype": Mutant(
        "positions.alibi_slopes",
        "torch.tensor(*__, dtype=_1)",
        "torch.tensor(*__)",
        "tests/mechanisms/test_heads.py::test_alibi_has_the_dtype_it_is_asked_for_whatever_the_default",
    ),
    "multi_step: not scaled by the length": Mutant(
        "MultiStepAttention.read",
        "not self.scale_by_length",
        "True",
        f"{DEFINED}[multi_step/scale_by_length-keys-fused]",
    ),
    "handle: grouped heads in the wrong order": Mutant(
        "DotSoftmax.heads",
        "_1.repeat_interleave(_2, dim=1)",
        "_1.repeat(1, _2, 1, 1)",
        "tests/weights/test_handle.py::test_heads[grouped]",
    ),
    "handle: in-place changes unnoticed": Mutant(
        "ByWeights.check_unchanged",
        "_1._version != _2",
        "_1._version < _2",
        f"{CONTRACT}/test_changed_in_place.py::test_the_error_names_what_was_changed",
    ),
    "pool: mask dropped": Mutant(
        "mechanisms.pool.pool._pool",
        "masked_softmax(_1, _2)",
        "masked_softmax(_1)",
        f"{CONTRACT}/test_other_families.py::test_pool_weights_are_shares[pool]",
    ),
    "pair: the right side's mask dropped": Mutant(
        "AttentionOverAttention.forward",
        "_1.unsqueeze(2) & _2",
        "(_1 | ~_1).unsqueeze(2) & _2",
        f"{CONTRACT}/test_other_families.py::test_pair_masked_cells_cannot_change_anything",
    ),
    "ntm: shifted the other way": Mutant(
        "addressing.shift",
        "torch.roll(_1, _2, -1)",
        "torch.roll(_1, -_2, -1)",
        "tests/functional/test_addressing.py::test_shift_is_the_papers_at_any_odd_width",
    ),
    # --- layers and models
    "ConvS2S: gradients not scaled by the number of attentions": Mutant(
        "ConvolutionalTextEncoder.forward",
        "scale_gradient(_1, _2)",
        "_1",
        "tests/models/test_seq2seq_conv.py::test_the_encoders_gradient_is_a_third_of_the_true_one",
    ),
    "bridge: tanh on an LSTM's cells": Mutant(
        "Bridge.forward",
        "self.cell(_1)",
        "torch.tanh(self.cell(_1))",
        "tests/models/test_seq2seq_rnn.py::test_the_bridge_squashes_hidden_states_and_not_cells",
    ),
    "coverage: the keys prepared before it": Mutant(
        "Coverage.forward",
        "_1._replace(*__, prepared=None)",
        "_1._replace(*__)",
        "tests/models/test_seq2seq_rnn.py::test_coverage_in_single_precision_does_not_read_the_keys_of_the_first_step",
    ),
    "loss: label smoothing lost": Mutant(
        "token_loss._from_logits",
        "F.cross_entropy(*__, label_smoothing=_1)",
        "F.cross_entropy(*__)",
        "tests/layers/test_token_loss.py",
    ),
    "int8: a scale that leaves seven steps unused": Mutant(
        "QuantizedLinear.__init__",
        "_1 / 127",
        "_1 / 120",
        "tests/models/test_transformer.py::test_quantized_weights_use_all_of_their_eight_bits",
    ),
    "Transformer: dropout of the weights lost": Mutant(
        "layers.transformer._attention",
        "_1(*__, dropout=_2)",
        "_1(*__, dropout=0.0)",
        "tests/models/test_transformer.py::test_every_dropout_acts_in_training_and_there_alone",
    ),
    "tree of hypotheses: paths not reordered": Mutant(
        "TreeCache.select",
        "self._path.index_select(0, _1)",
        "self._path[: _1.shape[0]]",
        "tests/models/test_transformer.py::test_steps_after_reordering_and_dropping",
    ),
    # --- decoding
    "beam: coverage not reordered": Mutant(
        "beam_search.beam",
        "coverage.index_select(0, _1.flatten())",
        "coverage.repeat_interleave(_1.numel() // len(coverage), dim=0)",
        f"{BEAM}::test_coverage_follows_its_hypothesis",
    ),
    "beam: the tail of the vocabulary dropped": Mutant(
        "beam_search.top", "torch.cat([_1, _2], dim=1)", "_1", f"{BEAM}::test_top_finds_the_best_wherever_they_stand"
    ),
    "beam: no coverage penalty of what is not finished": Mutant(
        "beam_search.beam",
        "ranked(_1, _2, _3, _4, finished=False)",
        "ranked(_1, _2, _3, _4, finished=False)._replace(score=_3 / _4)",
        f"{BEAM}::test_coverage_follows_its_hypothesis",
    ),
    "search: log-probabilities in half precision": Mutant(
        "SearchState.next",
        "torch.promote_types(_1.dtype, torch.float32)",
        "_1.dtype",
        "tests/decoding/test_search_state.py::test_log_prob_of_a_model_in_half_precision_has_single_precision",
    ),
    "constraints: the prefix of another source": Mutant(
        "GenerationConstraints._forced",
        "enumerate(_1)",
        "enumerate(range(len(_1)))",
        "tests/decoding/test_constraints.py::test_a_prefix_is_of_its_source_after_others_have_ended",
    ),
    "CTC: sums in single precision": Mutant(
        "CtcJoinedDecoder.start", "_1.double()", "_1", f"{CTC}::test_sums_over_a_long_recording_are_exact"
    ),
    "CTC: tokens in padded frames": Mutant(
        "CtcJoinedDecoder.start",
        "_1.masked_fill(~_2.unsqueeze(2), -torch.inf)",
        "_1",
        f"{CTC}::test_padded_frames_change_no_score",
    ),
    "CTC: one step too few": Mutant(
        "CtcJoinedDecoder.start", "int(_1) + 1", "int(_1)", f"{CTC}::test_as_many_tokens_as_frames_and_the_end"
    ),
    "sampling: temperature after the cut": Mutant(
        "Sampler.chooser",
        "truncate(_1 / _2, *__)",
        "truncate(_1, *__) / _2",
        f"{SAMPLING}::test_the_temperature_comes_before_the_cut",
    ),
    "decoding past the model's positions": Mutant(
        "DecoderInputs.steps_per_row", "min(_1, _2)", "_1", "tests/decoding/test_model_length.py"
    ),
    # --- training
    "checkpoints: the oldest averaged": Mutant(
        "Checkpoints.to_average",
        "_1[-_2:]",
        "_1[:_2]",
        "tests/training/test_engine.py::test_average_of_the_last_though_more_are_kept",
    ),
    "processes: one seed for all": Mutant(
        "_Trainer.__init__",
        "seed_everything(_1 + _2)",
        "seed_everything(_1)",
        "tests/training/test_processes.py::test_every_process_draws_random_numbers_of_its_own",
    ),
    "weights that are not finite are saved": Mutant(
        "_Trainer._write",
        "not _1.isfinite().all()",
        "False",
        "tests/training/test_engine.py::test_weights_that_are_not_finite_are_never_saved",
    ),
    "the speed counts validations": Mutant(
        "_Trainer.train",
        "time.monotonic() - began",
        "times.now",
        "tests/training/test_engine.py::test_the_speed_does_not_count_validations",
    ),
    "a restart resumes any run": Mutant(
        "begun_by_launch",
        "any(_1)",
        "True",
        "tests/training/test_run_folder.py::test_a_restarted_worker_goes_on_with_what_its_launch_has_begun",
    ),
    "a process without rows runs an empty batch": Mutant(
        "BatchStream._share",
        "self.rank < rows",
        "True",
        "tests/data/test_batching.py::test_the_ranks_together_hold_the_batch_of_one_process",
    ),
    "workers draw from the global generator": Mutant(
        "batching._ordered_map",
        "_1(*__, generator=_2)",
        "_1(*__)",
        "tests/data/test_batching.py::test_workers_leave_the_global_random_numbers_alone",
    ),
    # --- metrics
    "errors: insertions count as deletions": Mutant(
        "error_rates.differences",
        "('equal', 'substitute', 'delete', 'insert')",
        "('equal', 'substitute', 'insert', 'delete')",
        "tests/metrics/test_error_rates.py::test_differences_are_marked_worst_first",
    ),
    "ROUGE: the best reference by ROUGE-L": Mutant(
        "rouge.against_all",
        "_1['rouge1'].f",
        "_1['rougeL'].f",
        "tests/metrics/test_rouge.py::test_the_best_reference_is_chosen_by_rouge_1_and_the_mean_is_over_all",
    ),
    "detection: the first of objects with equal IoU": Mutant(
        "detection._taken",
        "len(_1) - 1 - _2[..., ::-1].argmax(axis=-1)",
        "_2.argmax(axis=-1)",
        "tests/metrics/test_detection.py::test_only_the_best_boxes_of_a_class_in_an_image_count",
    ),
    "detection: crowds are taken before other objects": Mutant(
        "detection._taken",
        "np.where(is_right[..., None], _1, _2)",
        "_2",
        "tests/metrics/test_detection.py::test_all_numbers_are_those_of_pycocotools",
    ),
    "detection: boxes take objects of other classes first": Mutant(
        "matched_boxes.matched",
        "np.where(same & ~_1, shares, 0.0)",
        "np.where(~_1, shares, 0.0)",
        "tests/metrics/test_matched_boxes.py::test_the_diagonal_is_what_ap50_counts_as_right",
    ),
    "boxes: points are those of the first head": Mutant(
        "points_of",
        "_1[[selection.place]]",
        "_1[[0]]",
        "tests/viz/views/test_boxes.py::test_points_are_dots_whose_areas_are_their_weights",
    ),
    # --- tasks
    "generation: the last whole window is left out": Mutant(
        "WindowBatches._plan",
        "np.arange(_1, len(_2) - _3 + 1, _3)",
        "np.arange(_1, len(_2) - _3, _3)",
        "tests/tasks/generate/test_reader.py::test_no_whole_window_of_an_epoch_is_left_out",
    ),
    "resuming changes anything": Mutant(
        "resumed_config",
        "_1 not in RESUMABLE | _2",
        "False",
        f"{EVERY_TASK}::test_resuming_changes_what_may_change_and_refuses_the_rest",
    ),
    "resuming does not look at the data": Mutant(
        "frame.train._train",
        "_check_same_data(*__)",
        "None",
        "tests/tasks/frame/test_train.py::test_changed_data_is_refused_on_resuming_and_nothing_is_written",
    ),
    "the trial of the longest batch keeps its statistics": Mutant(
        "_try_longest_batch",
        "_1.copy_(_2)",
        "None",
        "tests/tasks/frame/test_train.py::test_the_trial_of_the_longest_batch_changes_nothing",
    ),
    "the folder of a failed run stays": Mutant(
        "frame.train._train",
        "_1.remove_if_unused()",
        "None",
        "tests/tasks/frame/test_train.py::test_a_failure_in_the_first_step_leaves_no_folder",
    ),
    "the best checkpoint by the wrong direction": Mutant(
        "frame.train.train",
        "_with_direction(_1, _2)",
        "_2",
        "tests/tasks/frame/test_train.py::test_the_direction_of_the_chosen_figure_is_known",
    ),
    "an empty input is predicted": Mutant(
        "frame.task.is_empty", "any(_1)", "False", f"{EVERY_TASK}::test_inputs_of_the_wrong_kind[classify]"
    ),
    "a prediction depends on the batch": Mutant(
        "LabelTask.predict",
        "_1.logits.float()",
        "(_1.logits - _1.logits.mean(dim=0)).float()",
        f"{EVERY_TASK}::test_a_prediction_depends_on_nothing_else_in_the_batch[entail]",
    ),
    "predictions in the order of their lengths": Mutant(
        "predict_in_batches",
        "[_1[_2] for _2 in range(_3)]",
        "list(_1.values())",
        f"{EVERY_TASK}::test_a_prediction_depends_on_nothing_else_in_the_batch[translate]",
    ),
    "paths as they were typed": Mutant(
        "files.expanded",
        "os.path.abspath(os.path.expandvars(os.path.expanduser(_1)))",
        "_1",
        "tests/tasks/frame/test_train.py::test_paths_in_a_run_are_absolute",
    ),
    "a given mapping is merged into the default one": Mutant(
        "settings.merge",
        "merged[_1] = value",
        "merged[_1] = {**(old or {}), **value} if isinstance(value, Mapping) else value",
        "tests/tasks/translate/test_task.py::test_what_sticks_at_the_full_rate_learns_slower",
    ),
    "escapes are printed": Mutant(
        "printable._visible",
        "'^' + _1",
        "character",
        f"{EVERY_TASK}::test_labels_and_texts_with_escapes_come_out_as_themselves[classify]",
    ),
    "ragged rows are read": Mutant(
        "tables._columns",
        "len(_1) != _2",
        "False",
        "tests/tasks/classify/test_reader.py::test_faults_are_told_with_file_and_line",
    ),
    "text that stands in held-out text is trained on": Mutant(
        "Overlap.without",
        "key in self.known",
        "False",
        "tests/tasks/generate/test_passages.py::test_a_chapter_inside_another_is_on_one_side",
    ),
    "copies that differ in case are held out": Mutant(
        "splits.text_key",
        "map(folded, _1)",
        "_1",
        "tests/data/test_splits.py::test_keys_of_near_duplicates_are_equal",
    ),
    # --- cloze reading
    "reader: words that are no candidates are read": Mutant(
        "Reader.read",
        "_1 & (_2 >= 0)",
        "_1",
        "tests/models/test_cloze_reader.py::test_the_attention_sum_is_the_paper",
    ),
    "reader: the blank is not where it is": Mutant(
        "Reader._point",
        "_1.clamp_min(0)",
        "0 * _1",
        "tests/models/test_cloze_reader.py::test_the_attention_sum_is_the_paper",
    ),
    "reader: a hop adds instead of gating": Mutant(
        "Reader.read",
        "encoded * _1",
        "encoded + _1",
        "tests/models/test_cloze_reader.py::test_a_hop_gates_each_word_by_what_it_reads_of_the_question",
    ),
    "reader: a document gates itself by padding too": Mutant(
        "Reader.read",
        "self.gates[_1](*__, mask=_2)",
        "self.gates[_1](*__)",
        "tests/models/test_cloze_reader.py::test_padding_changes_nothing",
    ),
    "reader: entities of one question are drawn apart": Mutant(
        "Reader._drawn",
        "_1.gather(1, _2)",
        "_1.gather(1, _2 // 2)",
        "tests/models/test_cloze_reader.py::test_entities_are_drawn_anew_and_differ_within_a_question",
    ),
    "cloze: short candidates first": Mutant(
        "places_of",
        "sorted(_1, reverse=True)",
        "sorted(_1)",
        "tests/tasks/cloze/test_reader.py::test_places_by_brute_force",
    ),
    "cloze: the share of right answers at k": Mutant(
        "Cloze.evaluate",
        "1 <= _1 <= _2",
        "_1 <= _2",
        "tests/tasks/cloze/test_task.py::test_what_cannot_be_answered_is_not_trained_on_and_counts_as_wrong",
    ),
    "stories: the first event counts": Mutant(
        "builtin._questions",
        "facts['where is someone'][_1] = _2",
        "facts['where is someone'].setdefault(_1, _2)",
        "tests/tasks/cloze/test_reader.py::test_the_answer_is_that_of_the_latest_event",
    ),
}

KERNEL_MUTANTS = {
    "crf: nothing is negligible": KernelMutant(
        "crf.cpp",
        "NEGLIGIBLE = -40;",
        "NEGLIGIBLE = 0;",
        "tests/functional/kernels/test_crf.py::test_what_was_dropped_must_be_negligible",
    ),
    "additive: tanh cut off too soon": KernelMutant(
        "additive_entries.h",
        "x > all(15.0f) ? all(15.0f)",
        "x > all(6.0f) ? all(6.0f)",
        "tests/functional/kernels/test_additive.py",
    ),
    "word_by_word: padding ends the gradient of the memory": KernelMutant(
        "word_by_word.cpp",
        "            if (given.exists[i * R + t]) std::copy_n(at.next",
        "            std::copy_n(at.next",
        "tests/functional/kernels/test_word_by_word.py::test_rows_of_the_batch_do_not_affect_each_other",
    ),
    "location_aware: mask dropped": KernelMutant(
        "location_aware.cpp",
        "j < s.S && (!readable || readable[j])",
        "j < s.S",
        "tests/functional/kernels/test_location_aware.py::test_options",
    ),
}
"""Mistakes in C++, one in each kernel: they are compiled together, once."""


@contextmanager
def mistakes(folder: Path, *mutants: Mutant) -> Iterator[Path]:
    """Make the mistakes in the copy of foci in this folder, and take them back."""
    changed = []
    try:
        for mutant in mutants:
            path, broken = mutant.broken(folder / "foci")
            changed.append((path, path.read_text(encoding="utf-8")))
            write(path, broken)
        yield folder
    finally:
        for path, text in reversed(changed):
            write(path, text)


def write(path: Path, text: str) -> None:
    """Write a source file, and forget how it was compiled: Python may not notice a change within one second."""
    path.write_text(text, encoding="utf-8")
    Path(cache_from_source(path)).unlink(missing_ok=True)


@pytest.fixture(scope="module")
def copied(tmp_path_factory):
    """A copy of foci for all mutants: what they do not change is compiled once."""
    folder = tmp_path_factory.mktemp("copied")
    shutil.copytree(ROOT / "src" / "foci", folder / "foci", ignore=shutil.ignore_patterns("__pycache__"))
    return folder


class Result(NamedTuple):
    code: int
    output: str


@pytest.fixture(scope="module")
def run():
    """A function that runs tests against a copy of foci, each time in a process of its own."""
    command = [sys.executable, str(ROOT / "tests" / "support" / "forked_pytest.py")]
    # The options of pyproject.toml are left out: they collect doctests.
    options = ["-q", "-o", "addopts=--import-mode=importlib", "-p", "no:cacheprovider", "-p", "no:xdist"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:

        def ask(folder: Path, *arguments: str, **environment: str) -> Result:
            task = {"folder": str(folder), "environment": environment, "arguments": [*options, *arguments]}
            process.stdin.write(json.dumps(task) + "\n")
            process.stdin.flush()
            return Result(**json.loads(process.stdout.readline()))

        yield ask
        process.stdin.close()


@pytest.mark.slow
@pytest.mark.parametrize("mistake", MUTANTS)
def test_a_mistake_is_caught(mistake, run, copied):
    mutant = MUTANTS[mistake]
    with mistakes(copied, mutant) as folder:
        code, output = run(folder, "-x", mutant.tests)
    assert code == 1, output[-2000:]
    assert f"FAILED {mutant.tests.partition('::')[0]}" in output, output[-2000:]


@pytest.mark.slow
@pytest.mark.skipif(not all(kernel.active for kernel in status()), reason="the kernels cannot be compiled here")
def test_mistakes_in_the_kernels_are_caught(run, copied, tmp_path):
    cache = tmp_path / "cache"
    cache.mkdir(mode=0o700)
    with mistakes(copied, *KERNEL_MUTANTS.values()) as folder:
        code, output = run(folder, *(mutant.tests for mutant in KERNEL_MUTANTS.values()), FOCI_KERNEL_CACHE=str(cache))
    assert code == 1, output[-2000:]
    for mutant in KERNEL_MUTANTS.values():
        assert f"FAILED {mutant.tests}" in output, output[-2000:]


def test_every_mutant_finds_what_it_breaks():
    problems = {}
    for name, mutant in {**MUTANTS, **KERNEL_MUTANTS}.items():
        try:
            path, text = mutant.broken(ROOT / "src" / "foci")
            if path.suffix == ".py":
                compile(text, name, "exec")
        except AssertionError as error:
            problems[name] = str(error)
    assert not problems


def test_a_form_matches_by_placeholders(tmp_path):
    (tmp_path / "one.py").write_text("class A:\n    def f(self, x, y):\n        return g(x, y, mask=x) + g(y, x)\n")
    (tmp_path / "two.py").write_text("def f(x):\n    return x + x - 1\n")
    assert "g(x, y, mask=None) + g(y, x)" in change(tmp_path, "A.f", "g(*__, mask=_1)", "g(*__, mask=None)")[1]
    assert "return x * 2 - 1" in change(tmp_path, "two.f", "_1 + _1", "_1 * 2")[1]
    for symbol, good, problem in (
        ("f", "_1 + _2", "2 functions"),
        ("A.f", "g(*__)", "2 times"),
        ("A.f", "_1 + _1", "0 times"),
    ):
        with pytest.raises(AssertionError, match=problem):
            change(tmp_path, symbol, good, "0")


def test_a_mistake_is_taken_back(copied):
    mutant = MUTANTS["softmax: mask dropped"]
    path = copied / "foci" / "masks.py"
    before = path.read_bytes()
    with mistakes(copied, mutant):
        assert path.read_bytes() != before
    assert path.read_bytes() == before == (ROOT / "src" / "foci" / "masks.py").read_bytes()
    assert not Path(cache_from_source(path)).exists()


def test_the_tests_see_the_copy(run, copied, tmp_path):
    """The copy is what is imported, and a test of it passes: a mutant that survives really survived."""
    seen = tmp_path / "test_seen.py"
    seen.write_text("import foci\n\ndef test_seen():\n    assert foci.attend\n    print(foci.__file__)\n")
    code, output = run(copied, "-s", str(seen))
    assert code == 0, output
    assert f"{copied}/foci/__init__.py" in output
    assert len(MUTANTS) + len(KERNEL_MUTANTS) >= 40
