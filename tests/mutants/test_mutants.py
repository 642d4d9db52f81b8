"""The tests must catch mistakes: each is made in a copy of foci, and the tests named beside it must fail.

A mutant is a piece of a source file and what it is replaced by. Its tests run against the copy in a process of their
own, and only those that should notice: `python -m pytest tests/mutants -k NAME` shows whether they do.
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

from foci.functional.kernels import status

ROOT = Path(__file__).parents[2]


class Mutant(NamedTuple):
    """A mistake: ``good`` stands once in one file of foci that ``where`` matches; ``tests`` should catch ``bad``."""

    where: str
    good: str
    bad: str
    tests: str


CONTRACT = "tests/contract"
DEFINED = f"{CONTRACT}/test_by_definition.py::test_output_and_weights_by_definition"
DROPPED = f"{CONTRACT}/test_dropout.py::test_the_share_of_the_weights_that_is_dropped"
DEAD = f"{CONTRACT}/test_attend_family.py::test_dead_rows_give_zeros_and_finite_gradients"
NORMALIZE = "tests/functional/test_normalize.py"
SEARCH = "tests/decoding/test_search.py"
COPYING = "tests/layers/test_copying.py"
EVERY_TASK = f"{CONTRACT}/test_every_task.py"

MUTANTS = {
    # --- copying and summaries
    "copying: a row without attention copies": Mutant(
        "layers/copying.py", ".masked_fill(~reads, 0.0)", "", f"{COPYING}::test_the_mixture_is_the_papers"
    ),
    "copying: the target of another row": Mutant(
        "layers/copying.py",
        "targets.tokens.shape[1], rounding_mode",
        "targets.tokens.shape[1] + 1, rounding_mode",
        f"{COPYING}::test_loss_and_log_probabilities_agree[luong]",
    ),
    "copying: the logarithm of 0": Mutant(
        "layers/copying.py",
        ".masked_fill(mass == 0, -torch.inf)",
        "",
        f"{COPYING}::test_a_padded_batch_equals_each_alone[luong]",
    ),
    "copying: unknown words of targets stay unknown": Mutant(
        "data/copy_ids.py",
        "own.get(text[start:end], UNK)",
        "UNK",
        "tests/tasks/summarize/test_reader.py::test_unknown_words_are_numbered_by_source_and_found_in_the_target",
    ),
    # --- masks
    "softmax: mask dropped": Mutant(
        "masks.py",
        "    if mask is None:\n        return torch.softmax(scores, dim=-1)",
        "    return torch.softmax(scores, dim=-1)",
        f"{DEFINED}[additive-keys-fused]",
    ),
    "softmax: mask inverted": Mutant(
        "masks.py",
        'mask = check_mask("softmax", mask, scores.shape, scores.device)\n    dead',
        'mask = ~check_mask("softmax", mask, scores.shape, scores.device)\n    dead',
        f"{DEFINED}[additive-keys-fused]",
    ),
    "softmax: a row of -inf alone": Mutant("masks.py", ".masked_fill(dead, 0.0)\n", "\n", f"{DEAD}[additive-keys]"),
    "softmax: wrong axis": Mutant(
        "masks.py",
        "return torch.softmax(filled, dim=-1)",
        "return torch.softmax(filled, dim=-2)",
        f"{DEFINED}[additive-keys-fused]",
    ),
    "causal: aligned to the first key": Mutant(
        "masks.py", "offset=S - L).unsqueeze(0)", "offset=0).unsqueeze(0)", f"{DEFINED}[additive/causal-none-fused]"
    ),
    "window: one key too many": Mutant(
        "masks.py",
        "(columns >= own - left)",
        "(columns >= own - left - 1)",
        f"{DEFINED}[additive/sliding_window-none-fused]",
    ),
    "a bias of -inf does not close": Mutant(
        "functional/attend.py",
        "closed = check_bias(bias, shape) == -torch.inf",
        "closed = check_bias(bias, shape) == torch.inf",
        f"{CONTRACT}/test_padding.py::test_a_bias_of_minus_infinity_is_a_mask",
    ),
    "padding is not cleared": Mutant(
        "masks.py",
        "return cells.masked_fill(~readable.unsqueeze(-1), 0.0)",
        "return cells",
        f"{CONTRACT}/test_padding.py::test_attend[general-NaN-keys]",
    ),
    # --- normalizers
    "sparsemax: masked cells keep their weight": Mutant(
        "functional/sparse.py",
        "scores = scores.masked_fill(closed, -torch.inf)",
        "pass",
        f"{DEFINED}[sparsemax-keys-fused]",
    ),
    "sparsemax: NaN as an index": Mutant(
        "functional/sparse.py",
        "inside.sum(dim=-1, keepdim=True).clamp_min(1)",
        "inside.sum(dim=-1, keepdim=True)",
        f"{NORMALIZE}::test_a_row_with_nan_gives_nan_unless_the_mask_closes_it",
    ),
    "entmax15: infinite second derivatives": Mutant(
        "functional/sparse.py",
        "weights.masked_fill(closed, 1.0).sqrt().masked_fill(closed, 0.0)",
        "weights.sqrt()",
        f"{NORMALIZE}::test_second_derivatives_are_exact_also_where_a_weight_is_zero",
    ),
    "entmax15: the threshold is not halved": Mutant(
        "functional/sparse.py", "halved = scores / 2", "halved = scores / 1", f"{DEFINED}[entmax-none-fused]"
    ),
    "sigmoid: softmax instead": Mutant(
        "functional/normalize.py",
        "torch.nn.functional.logsigmoid(scores)",
        "scores",
        f"{DEFINED}[general/sigmoid-none-fused]",
    ),
    "sampling: noise in half precision": Mutant(
        "functional/sample.py",
        "return scores - (-uniform.clamp_min(tiny).log()).clamp_min(tiny).log()",
        "return scores - (-uniform.clamp_min(tiny).log()).clamp_min(tiny).log().to(scores.dtype)",
        f"{NORMALIZE}::test_samples_in_half_precision_are_unbiased",
    ),
    "gumbel: the gradient of the noise-free softmax": Mutant(
        "functional/sample.py",
        "soft = masked_softmax(noisy, mask)",
        "soft = masked_softmax(scores, mask)",
        f"{NORMALIZE}::test_gumbel_is_hard_forward_and_soft_backward",
    ),
    # --- paths of attend
    "fused: mask dropped": Mutant(
        "functional/attend.py",
        "        allowed = combine(mask, window,",
        "        allowed = combine(None, window,",
        f"{DEFINED}[scaled_dot-keys-fused]",
    ),
    "fused: dead rows keep what they read": Mutant(
        "functional/attend.py", "output.masked_fill(~alive, 0.0)", "output", f"{DEAD}[scaled_dot-per query]"
    ),
    "fused: dropout lost": Mutant(
        "functional/attend.py", "dropout_p=dropout,", "dropout_p=0.0,", f"{DROPPED}[fused-scaled_dot/dropout]"
    ),
    "fused: sharpening lost": Mutant(
        "mechanisms/attention.py",
        "scale = score.scale * self.sharpening\n            return",
        "scale = score.scale\n            return",
        f"{DEFINED}[general/sharpening-none-fused]",
    ),
    "short: dropout lost": Mutant(
        "functional/attend.py",
        "return AttentionOutput(dropped @ value, Weights.from_tensor(weights))",
        "return AttentionOutput(weights @ value, Weights.from_tensor(weights))",
        f"{DROPPED}[short-scaled_dot/dropout]",
    ),
    "short: grouped values in the wrong order": Mutant(
        "functional/attend.py",
        "value = value.repeat_interleave(query.shape[1] // value.shape[1], dim=1)",
        "value = value.repeat(1, query.shape[1] // value.shape[1], 1, 1)",
        f"{DEFINED}[multi_head/grouped-none-short]",
    ),
    "keep_weights: grouped values in the wrong order": Mutant(
        "functional/attend.py",
        "value = value.repeat_interleave(query.shape[1] // value.shape[1], dim=1)",
        "value = value.repeat(1, query.shape[1] // value.shape[1], 1, 1)",
        f"{DEFINED}[multi_head/grouped_keep_weights-none-fused]",
    ),
    "attend_scores: dropout lost": Mutant(
        "functional/attend.py",
        "output = F.dropout(weights, dropout) @ value\n",
        "output = weights @ value\n",
        f"{DROPPED}[fused-additive/dropout]",
    ),
    "plain scores: sharpening lost": Mutant(
        "mechanisms/attention.py",
        "return scores if self.sharpening == 1.0 else scores * self.sharpening",
        "return scores",
        f"{DEFINED}[additive/sharpening-none-fused]",
    ),
    "steps: dropout lost": Mutant(
        "mechanisms/attention.py",
        "F.dropout(weights, self.dropout if self.training else 0.0) @ memory.value",
        "weights @ memory.value",
        f"{DROPPED}[fused-location_aware/dropout]",
    ),
    "steps: sharpening lost": Mutant(
        "functional/stepwise.py",
        "scores = scores if options.sharpening == 1.0 else scores * options.sharpening",
        "pass",
        f"{DEFINED}[location_aware/sharpening-none-fused]",
    ),
    "steps: the previous weights are not passed on": Mutant(
        "functional/stepwise.py",
        "add_location(key, previous, filters, projection)",
        "add_location(key, torch.zeros_like(previous), filters, projection)",
        f"{DEFINED}[location_aware-none-fused]",
    ),
    "steps: the window does not follow the median": Mutant(
        "functional/stepwise.py",
        "near_median(previous, *options.reach)",
        "near_median(torch.zeros_like(previous), *options.reach)",
        f"{DEFINED}[additive/median_window-none-fused]",
    ),
    "steps: the mask of a query dropped": Mutant(
        "functional/stepwise.py",
        "masks = (*given, *near)",
        "masks = near",
        f"{DEFINED}[location_aware/median_window-per query-fused]",
    ),
    "local: mask dropped": Mutant(
        "functional/windows.py",
        "return window_plain.LocalWindow(center, start, mask, radius, sigma)",
        "return window_plain.LocalWindow(center, start, None, radius, sigma)",
        f"{DEFINED}[local_m-keys-fused]",
    ),
    "local: sharpening lost": Mutant(
        "mechanisms/attention.py",
        "scale = self.score.scale * self.sharpening\n            read = local_dots",
        "scale = self.score.scale\n            read = local_dots",
        f"{DEFINED}[local_m/sharpening-none-fused]",
    ),
    "local: dropout lost": Mutant(
        "functional/window_plain.py",
        "F.dropout(weights, dropout) @ gather_cells",
        "weights @ gather_cells",
        f"{DROPPED}[fused-local_p/dropout]",
    ),
    "local: the Gaussian lost": Mutant(
        "functional/window_plain.py",
        "weights = weights * gaussian.unsqueeze(2).to(weights.dtype)",
        "pass",
        f"{DEFINED}[local_p/additive-none-fused]",
    ),
    "local: row lengths of the first query's mask": Mutant(
        "functional/windows.py",
        "torch.arange(1, size + 1, device=key.device) * mask.any(dim=1)",
        "torch.arange(1, size + 1, device=key.device) * mask[:, 0]",
        f"{DEFINED}[local_p-per query-fused]",
    ),
    # --- mechanisms
    "additive: score vector dropped": Mutant(
        "mechanisms/scores/score.py",
        "return additive(query, key, self.vector, prepared)",
        "return additive(query, key, self.vector.detach() * 0 + 1, prepared)",
        f"{DEFINED}[additive-none-fused]",
    ),
    "gradients taken through other inputs": Mutant(
        "functional/kernels/gradients.py",
        "tensor.view_as(tensor) if tensor.requires_grad else tensor for",
        "tensor for",
        "tests/functional/test_dependent_inputs.py",
    ),
    "location_aware: only one step's gradient of the keys": Mutant(
        "functional/kernels/location_aware.py",
        "key_sum=None if sums is None else sums.key",
        "key_sum=None",
        "tests/functional/kernels/test_source_gradients.py::test_steps_give_the_gradients_of_the_loop",
    ),
    "state kept on the module": Mutant(
        "mechanisms/attention.py",
        "        projected = score.project_query(query)\n",
        "        projected = self.projected = score.project_query(query)\n",
        f"{CONTRACT}/test_every_row.py::test_forward_changes_nothing_on_the_module[general]",
    ),
    "multi_head: mask not passed on": Mutant(
        "mechanisms/heads/multi_head.py",
        "value,\n                mask,\n                scale=self.scale,",
        "value,\n                None,\n                scale=self.scale,",
        f"{DEFINED}[multi_head-keys-fused]",
    ),
    "multi_head: masks of heads combined by all": Mutant(
        "mechanisms/heads/multi_head.py",
        "mask.any(dim=-1).any(dim=1)",
        "mask.any(dim=-1).all(dim=1)",
        f"{CONTRACT}/test_by_definition.py::test_masks_of_each_head[multi_head-fused]",
    ),
    "multi_head: not causal": Mutant(
        "mechanisms/heads/multi_head.py",
        "        if self.causal:\n            window = causal_window(window)\n",
        "",
        f"{DEFINED}[multi_head/causal-none-fused]",
    ),
    "multi_head: grouped heads in the wrong order": Mutant(
        "mechanisms/heads/multi_head.py",
        "t.repeat_interleave(self.num_heads // self.num_key_heads, dim=1)",
        "t.repeat(1, self.num_heads // self.num_key_heads, 1, 1)",
        f"{DEFINED}[multi_head/grouped_sparsemax-none-fused]",
    ),
    "multi_head: queries turned from position 0": Mutant(
        "mechanisms/heads/multi_head.py",
        "projected = rotary(projected, start=S - L)",
        "projected = rotary(projected, start=0)",
        f"{DEFINED}[multi_head/rotary-none-fused]",
    ),
    "multi_head: the cache behind the new keys": Mutant(
        "mechanisms/heads/multi_head.py",
        "torch.cat([state.key, key], dim=2)",
        "torch.cat([key, state.key], dim=2)",
        f"{CONTRACT}/test_attend_family.py::test_decoding_with_a_cache_equals_reading_at_once",
    ),
    "alibi: far cells favored": Mutant(
        "functional/positions.py", "(-wide.view(", "(wide.view(", f"{DEFINED}[multi_head/alibi-none-fused]"
    ),
    "alibi: the default dtype": Mutant(
        "functional/positions.py",
        "torch.tensor(slopes, device=device, dtype=dtype)",
        "torch.tensor(slopes, device=device)",
        "tests/mechanisms/test_heads.py::test_alibi_has_the_dtype_it_is_asked_for_whatever_the_default",
    ),
    "multi_step: not scaled by the length": Mutant(
        "mechanisms/heads/multi_step.py",
        "if not self.scale_by_length:",
        "if True:",
        f"{DEFINED}[multi_step/scale_by_length-keys-fused]",
    ),
    "handle: grouped heads in the wrong order": Mutant(
        "weights/sources.py",
        "key = key.repeat_interleave(self.query.shape[1] // key.shape[1], dim=1)",
        "key = key.repeat(1, self.query.shape[1] // key.shape[1], 1, 1)",
        f"{CONTRACT}/test_weights.py::test_heads[grouped]",
    ),
    "handle: in-place changes unnoticed": Mutant(
        "weights/sources.py",
        "._version != version:",
        "._version < version:",
        f"{CONTRACT}/test_changed_in_place.py::test_the_error_names_what_was_changed",
    ),
    "pool: mask dropped": Mutant(
        "mechanisms/pool/pool.py",
        "weights = masked_softmax(scores, mask)",
        "weights = masked_softmax(scores)",
        f"{CONTRACT}/test_other_families.py::test_pool_weights_are_shares[pool]",
    ),
    "pair: the right side's mask dropped": Mutant(
        "mechanisms/pair/attention_over_attention.py",
        "mask = right_valid.unsqueeze(2) & left_valid.unsqueeze(1)",
        "mask = (right_valid | ~right_valid).unsqueeze(2) & left_valid.unsqueeze(1)",
        f"{CONTRACT}/test_other_families.py::test_pair_masked_cells_cannot_change_anything",
    ),
    "ntm: shifted the other way": Mutant(
        "functional/addressing.py",
        "torch.roll(weights, j, -1)",
        "torch.roll(weights, -j, -1)",
        "tests/functional/test_addressing.py::test_shift_is_the_papers_at_any_odd_width",
    ),
    # --- layers and models
    "ConvS2S: gradients not scaled by the number of attentions": Mutant(
        "models/**/*.py",
        "1.0 / self.num_readers",
        "1.0",
        "tests/models/test_seq2seq_conv.py::test_the_encoders_gradient_is_a_third_of_the_true_one",
    ),
    "bridge: tanh on an LSTM's cells": Mutant(
        "layers/recurrent.py",
        "self.cell(parts[-1])",
        "torch.tanh(self.cell(parts[-1]))",
        "tests/models/test_seq2seq_rnn.py::test_the_bridge_squashes_hidden_states_and_not_cells",
    ),
    "coverage: the keys prepared before it": Mutant(
        "layers/coverage.py",
        "memory._replace(key=key, prepared=None)",
        "memory._replace(key=key)",
        "tests/models/test_seq2seq_rnn.py::test_coverage_in_single_precision_does_not_read_the_keys_of_the_first_step",
    ),
    "loss: label smoothing lost": Mutant(
        "layers/token_loss.py",
        'reduction="sum", label_smoothing=targets.label_smoothing',
        'reduction="sum"',
        "tests/layers/test_token_loss.py",
    ),
    "int8: a scale that leaves seven steps unused": Mutant(
        "layers/**/*.py",
        ".clamp_min(1e-12).double() / 127",
        ".clamp_min(1e-12).double() / 120",
        "tests/models/test_transformer.py::test_quantized_weights_use_all_of_their_eight_bits",
    ),
    "Transformer: dropout of the weights lost": Mutant(
        "layers/transformer.py",
        "dropout=self.attention_dropout,",
        "dropout=0.0,",
        "tests/models/test_transformer.py::test_every_dropout_acts_in_training_and_there_alone",
    ),
    "tree of hypotheses: paths not reordered": Mutant(
        "layers/**/*.py",
        "chosen._path = None if self._path is None else self._path.index_select(0, index)",
        "chosen._path = None if self._path is None else self._path[: index.shape[0]]",
        "tests/models/test_transformer.py::test_steps_after_reordering_and_dropping",
    ),
    # --- decoding
    "beam: coverage not reordered": Mutant(
        "decoding/*.py",
        "coverage = coverage.index_select(0, rows.flatten())",
        "coverage = coverage.repeat_interleave(rows.numel() // len(coverage), dim=0)",
        f"{SEARCH}::test_coverage_follows_its_hypothesis",
    ),
    "beam: the tail of the vocabulary dropped": Mutant(
        "decoding/*.py",
        "cells = torch.cat([cells, rest], dim=1)",
        "pass",
        f"{SEARCH}::test_top_finds_the_best_wherever_they_stand",
    ),
    "sampling: temperature after the cut": Mutant(
        "decoding/*.py",
        "truncate(logs / self.temperature, self.top_k, self.top_p, self.min_p)",
        "truncate(logs, self.top_k, self.top_p, self.min_p) / self.temperature",
        f"{SEARCH}::test_the_temperature_comes_before_the_cut",
    ),
    "decoding past the model's positions": Mutant(
        "decoding/*.py",
        "return per_row if longest is None else [min(count, longest) for count in per_row]",
        "return per_row",
        "tests/decoding/test_model_length.py",
    ),
    # --- training
    "checkpoints: the oldest averaged": Mutant(
        "training/engine.py",
        "self.store.all()[-self.options.average_last :]",
        "self.store.all()[: self.options.average_last]",
        "tests/training/test_engine.py::test_average_of_the_last_though_more_are_kept",
    ),
    "processes: one seed for all": Mutant(
        "training/engine.py",
        "seed_everything(options.seed + fabric.global_rank)",
        "seed_everything(options.seed)",
        "tests/training/test_processes.py::test_every_process_draws_random_numbers_of_its_own",
    ),
    "weights that are not finite are saved": Mutant(
        "training/engine.py",
        "        if broken:\n            raise TrainingError(",
        "        if broken and False:\n            raise TrainingError(",
        "tests/training/test_engine.py::test_weights_that_are_not_finite_are_never_saved",
    ),
    "the speed counts validations": Mutant(
        "training/engine.py",
        '"seconds": time.monotonic() - began',
        '"seconds": seconds - train_state.seconds',
        "tests/training/test_engine.py::test_the_speed_does_not_count_validations",
    ),
    "a restart resumes any run": Mutant(
        "training/run_folder.py",
        "    return launch is not None and launch in launches",
        "    return True",
        "tests/training/test_run_folder.py::test_a_restarted_worker_goes_on_with_what_its_launch_has_begun",
    ),
    "workers draw from the global generator": Mutant(
        "data/batching.py",
        "        generator=torch.Generator(),\n",
        "",
        "tests/data/test_batching.py::test_workers_leave_the_global_random_numbers_alone",
    ),
    # --- tasks
    "resuming changes anything": Mutant(
        "tasks/frame/train.py",
        "        if path not in RESUMABLE | {*kind.resumable}:",
        "        if path == 'nothing':",
        f"{EVERY_TASK}::test_resuming_changes_what_may_change_and_refuses_the_rest",
    ),
    "resuming does not look at the data": Mutant(
        "tasks/frame/train.py",
        "        _check_same_data(out, batches)\n",
        "        pass\n",
        "tests/tasks/frame/test_train.py::test_changed_data_is_refused_on_resuming_and_nothing_is_written",
    ),
    "the trial of the longest batch keeps its statistics": Mutant(
        "tasks/frame/train.py",
        "            value.copy_(buffers[name])",
        "            pass",
        "tests/tasks/frame/test_train.py::test_the_trial_of_the_longest_batch_changes_nothing",
    ),
    "the folder of a failed run stays": Mutant(
        "tasks/frame/train.py",
        "                run.remove_if_unused()",
        "                pass",
        "tests/tasks/frame/test_train.py::test_a_failure_in_the_first_step_leaves_no_folder",
    ),
    "the best checkpoint by the wrong direction": Mutant(
        "tasks/frame/train.py",
        "    given = _with_direction(kind, given)\n",
        "",
        "tests/tasks/frame/test_train.py::test_the_direction_of_the_chosen_figure_is_known",
    ),
    "an empty input is predicted": Mutant(
        "tasks/frame/task.py",
        "    return any(isinstance(text, str) and not text.strip() for text in texts)",
        "    return False",
        f"{EVERY_TASK}::test_inputs_of_the_wrong_kind[classify]",
    ),
    "a prediction depends on the batch": Mutant(
        "tasks/classify/task.py",
        "probabilities = classified.logits.float().softmax(dim=-1).cpu().numpy()",
        "probabilities = (classified.logits - classified.logits.mean(dim=0)).float().softmax(dim=-1).cpu().numpy()",
        f"{EVERY_TASK}::test_a_prediction_depends_on_nothing_else_in_the_batch[classify]",
    ),
    "predictions in the order of their lengths": Mutant(
        "tasks/translate/task.py",
        "        return [found[i] for i in range(len(records))]",
        "        return list(found.values())",
        f"{EVERY_TASK}::test_a_prediction_depends_on_nothing_else_in_the_batch[translate]",
    ),
    "paths as they were typed": Mutant(
        "tasks/frame/config.py",
        "os.path.abspath(os.path.expandvars(os.path.expanduser(fitted)))",
        "fitted",
        "tests/tasks/frame/test_train.py::test_paths_in_a_run_are_absolute",
    ),
    "a given mapping is merged into the default one": Mutant(
        "tasks/frame/config.py",
        "        merged[name] = {**old, **value} if isinstance(old, dict)",
        "        merged[name] = merge(old, value) if isinstance(old, dict)",
        "tests/tasks/translate/test_task.py::test_what_sticks_at_the_full_rate_learns_slower",
    ),
    "escapes are printed": Mutant(
        "printable.py",
        '        return "^" + chr(number ^ 0x40)',
        "        return character",
        f"{EVERY_TASK}::test_labels_and_texts_with_escapes_come_out_as_themselves[classify]",
    ),
    "ragged rows are read": Mutant(
        "data/tables.py",
        "        elif len(cells) != width:",
        "        elif False:",
        "tests/tasks/classify/test_reader.py::test_faults_are_told_with_file_and_line",
    ),
    "a rare class is held out as a whole": Mutant(
        "data/splits.py",
        "        most = len(order) - 1",
        "        most = len(order)",
        "tests/tasks/classify/test_reader.py::test_parts_hold_every_document_once_and_split_each_class",
    ),
    # --- cloze reading
    "reader: words that are no candidates are read": Mutant(
        "models/cloze_reader.py",
        "valid & (places >= 0), asked",
        "valid, asked",
        "tests/models/test_cloze_reader.py::test_the_attention_sum_is_the_paper",
    ),
    "reader: the blank is not where it is": Mutant(
        "models/cloze_reader.py",
        "at = blank.clamp_min(0)",
        "at = 0 * blank",
        "tests/models/test_cloze_reader.py::test_the_attention_sum_is_the_paper",
    ),
    "reader: a hop adds instead of gating": Mutant(
        "models/cloze_reader.py",
        "words = encoded * gate",
        "words = encoded + gate",
        "tests/models/test_cloze_reader.py::test_a_hop_gates_each_word_by_what_it_reads_of_the_question",
    ),
    "reader: a document gates itself by padding too": Mutant(
        "models/cloze_reader.py",
        "self.gates[number](encoded, compared, mask=masks.keys(asked))",
        "self.gates[number](encoded, compared)",
        "tests/models/test_cloze_reader.py::test_padding_changes_nothing",
    ),
    "reader: entities of one question are drawn apart": Mutant(
        "models/cloze_reader.py",
        "return order.gather(1, wrapped)",
        "return order.gather(1, wrapped // 2)",
        "tests/models/test_cloze_reader.py::test_entities_are_drawn_anew_and_differ_within_a_question",
    ),
    "cloze: short candidates first": Mutant(
        "tasks/cloze/batches.py",
        "lengths = sorted({len(name) for name in known if name}, reverse=True)",
        "lengths = sorted({len(name) for name in known if name})",
        "tests/tasks/cloze/test_reader.py::test_places_by_brute_force",
    ),
    "cloze: the share of right answers at k": Mutant(
        "tasks/cloze/task.py",
        "[1 <= rank <= k for rank in ranks]",
        "[rank <= k for rank in ranks]",
        "tests/tasks/cloze/test_task.py::test_what_cannot_be_answered_is_not_trained_on_and_counts_as_wrong",
    ),
    "stories: the first event counts": Mutant(
        "tasks/cloze/builtin.py",
        'facts["where is someone"][(("person", person),)] = place',
        'facts["where is someone"].setdefault((("person", person),), place)',
        "tests/tasks/cloze/test_reader.py::test_the_answer_is_that_of_the_latest_event",
    ),
}

KERNEL_MUTANTS = {
    "crf: nothing is negligible": Mutant(
        "functional/kernels/crf.cpp",
        "NEGLIGIBLE = -40;",
        "NEGLIGIBLE = 0;",
        "tests/functional/kernels/test_crf.py::test_what_was_dropped_must_be_negligible",
    ),
    "additive: tanh cut off too soon": Mutant(
        "functional/kernels/additive_cells.h",
        "x > all(15.0f) ? all(15.0f)",
        "x > all(6.0f) ? all(6.0f)",
        "tests/functional/kernels/test_additive.py",
    ),
    "word_by_word: padding ends the gradient of the memory": Mutant(
        "functional/kernels/word_by_word.cpp",
        "            if (given.exists[i * R + t]) std::copy_n(at.next",
        "            std::copy_n(at.next",
        "tests/functional/kernels/test_word_by_word.py::test_rows_of_the_batch_do_not_affect_each_other",
    ),
    "location_aware: mask dropped": Mutant(
        "functional/kernels/location_aware.cpp",
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
        for where, good, bad, _ in mutants:
            found = [path for path in (folder / "foci").glob(where) if good in path.read_text(encoding="utf-8")]
            assert len(found) == 1, (
                f"{len(found)} files of {where} have what this mutant breaks, expected 1: mend the mutant"
            )
            path, text = found[0], found[0].read_text(encoding="utf-8")
            assert text.count(good) == 1, f"{path.name} has it {text.count(good)} times, expected once: mend the mutant"
            broken = text.replace(good, bad)
            if path.suffix == ".py":
                compile(broken, path.name, "exec")
            changed.append((path, text))
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


def test_a_mistake_is_taken_back(copied):
    mutant = MUTANTS["softmax: mask dropped"]
    path = copied / "foci" / "masks.py"
    before = path.read_bytes()
    with mistakes(copied, mutant):
        assert mutant.good not in path.read_text(encoding="utf-8")
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
