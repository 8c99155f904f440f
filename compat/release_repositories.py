# SPDX-License-Identifier: Apache-2.0
"""Model repositories as the releases 0.5 to 1.2 of the TensorRT-LLM backend had them, made from tables of their tensors.

A release is its minor number: 5 is 0.5.0, 6 is 0.6.1; V1 are 1.0 to 1.2; OURS is the last one with the tensors that only
this server has. The tables say what `all_models/inflight_batcher_llm/*/config.pbtxt` of each release's tag declares in
triton-inference-server/tensorrtllm_backend, from 0.20 on `triton_backend/` of NVIDIA/TensorRT-LLM. Placeholders are left as
`${name}` unless `fill` names them.
"""

import pathlib
import re

RELEASES = (5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 30)
V1 = 30
OURS = 90
ALWAYS = 99

# Ours under one name at the LLM and at the text models.
OUR_INPUTS = {
    "min_p": "FP32", "typical_p": "FP32", "prompt_ignore_length": "INT32", "no_repeat_ngram_size": "INT32",
    "num_top_log_probs": "INT32", "return_num_input_tokens": "BOOL", "return_num_output_tokens": "BOOL",
    "return_num_cached_tokens": "BOOL", "return_finish_reason": "BOOL",
}  # fmt: skip

# name, datatype, dims, first release, last release, flags: r required, s scalar (empty reshape), g ragged
LLM_INPUTS = [
    ("input_ids", "INT32", "-1", 5, 5, "r"),
    ("input_ids", "INT32", "-1", 6, 14, "rg"),
    ("input_ids", "INT32", "-1", 15, ALWAYS, "g"),
    ("input_lengths", "INT32", "1", 5, ALWAYS, "rs"),
    ("request_output_len", "UINT32", "1", 5, 6, "r"),
    ("request_output_len", "INT32", "1", 7, 11, "r"),
    ("request_output_len", "INT32", "1", 12, ALWAYS, "rs"),
    ("decoder_input_ids", "INT32", "-1", 11, ALWAYS, "g"),
    ("decoder_input_lengths", "INT32", "1", 11, ALWAYS, "s"),
    ("draft_input_ids", "INT32", "-1", 7, ALWAYS, "g"),
    ("draft_logits", "FP32", "-1, -1", 9, 16, "g"),
    ("draft_logits", "${logits_datatype}", "-1, -1", 17, ALWAYS, "g"),
    ("draft_acceptance_threshold", "FP32", "1", 10, ALWAYS, "s"),
    ("end_id", "UINT32", "1", 5, 6, "s"),
    ("end_id", "INT32", "1", 7, ALWAYS, "s"),
    ("pad_id", "UINT32", "1", 5, 6, "s"),
    ("pad_id", "INT32", "1", 7, ALWAYS, "s"),
    ("stop_words_list", "INT32", "2, -1", 6, ALWAYS, "g"),
    ("bad_words_list", "INT32", "2, -1", 6, ALWAYS, "g"),
    ("embedding_bias", "FP32", "-1", 6, ALWAYS, "g"),
    ("beam_width", "UINT32", "1", 5, 6, "s"),
    ("beam_width", "INT32", "1", 7, ALWAYS, "s"),
    ("temperature", "FP32", "1", 5, ALWAYS, "s"),
    ("runtime_top_k", "UINT32", "1", 5, 6, "s"),
    ("runtime_top_k", "INT32", "1", 7, ALWAYS, "s"),
    ("runtime_top_p", "FP32", "1", 5, ALWAYS, "s"),
    ("runtime_top_p_min", "FP32", "1", 10, ALWAYS, "s"),
    ("runtime_top_p_decay", "FP32", "1", 10, ALWAYS, "s"),
    ("runtime_top_p_reset_ids", "INT32", "1", 10, ALWAYS, "s"),
    ("len_penalty", "FP32", "1", 5, ALWAYS, "s"),
    ("repetition_penalty", "FP32", "1", 5, ALWAYS, "s"),
    ("presence_penalty", "FP32", "1", 5, ALWAYS, "s"),
    ("frequency_penalty", "FP32", "1", 8, ALWAYS, "s"),
    ("min_length", "UINT32", "1", 5, 6, "s"),
    ("min_length", "INT32", "1", 7, 29, "s"),
    ("min_tokens", "INT32", "1", V1, V1, "s"),
    ("min_length", "INT32", "1", OURS, ALWAYS, "s"),
    ("random_seed", "UINT64", "1", 5, 29, "s"),
    ("seed", "UINT64", "1", V1, V1, "s"),
    ("random_seed", "UINT64", "1", OURS, ALWAYS, "s"),
    ("early_stopping", "BOOL", "1", 10, ALWAYS, "s"),
    ("beam_search_diversity_rate", "FP32", "1", 10, ALWAYS, "s"),
    ("return_log_probs", "BOOL", "1", 6, ALWAYS, "s"),
    ("return_context_logits", "BOOL", "1", 8, ALWAYS, "s"),
    ("return_generation_logits", "BOOL", "1", 8, ALWAYS, "s"),
    ("stop", "BOOL", "1", 5, 11, ""),
    ("stop", "BOOL", "1", 12, ALWAYS, "s"),
    ("streaming", "BOOL", "1", 5, 11, ""),
    ("streaming", "BOOL", "1", 12, ALWAYS, "s"),
    ("prompt_embedding_table", "FP16", "-1, -1", 6, 29, "g"),
    ("prompt_embedding_table", "${prompt_embedding_table_data_type}", "-1, -1", V1, ALWAYS, "g"),
    ("prompt_table_extra_ids", "UINT64", "-1", 13, ALWAYS, "g"),
    ("prompt_vocab_size", "UINT32", "1", 6, 6, "s"),
    ("prompt_vocab_size", "INT32", "1", 7, ALWAYS, "s"),
    ("lora_task_id", "UINT64", "1", 9, ALWAYS, "s"),
    ("lora_weights", "FP16", "-1, -1", 8, ALWAYS, "g"),
    ("lora_config", "INT32", "-1, 3", 8, ALWAYS, "g"),
    ("num_return_sequences", "INT32", "1", 14, ALWAYS, "s"),
    ("exclude_input_in_output", "BOOL", "1", 14, ALWAYS, "s"),
    ("context_phase_params", "UINT8", "-1", 14, ALWAYS, "g"),
    ("encoder_input_features", "${encoder_input_features_data_type}", "-1, -1", 15, ALWAYS, "g"),
    ("encoder_output_lengths", "INT32", "1", 15, ALWAYS, "s"),
    ("cross_attention_mask", "BOOL", "-1, -1", 15, ALWAYS, "g"),
    ("skip_cross_attn_blocks", "BOOL", "1", 16, ALWAYS, "g"),
    ("return_kv_cache_reuse_stats", "BOOL", "1", 16, 18, "s"),
    ("return_perf_metrics", "BOOL", "1", 19, ALWAYS, "s"),
    ("return_num_input_tokens", "BOOL", "1", 20, V1, "s"),
    ("return_num_output_tokens", "BOOL", "1", 20, V1, "s"),
    ("retention_token_range_starts", "INT32", "-1", 17, ALWAYS, "g"),
    ("retention_token_range_ends", "INT32", "-1", 17, ALWAYS, "g"),
    ("retention_token_range_priorities", "INT32", "-1", 17, ALWAYS, "g"),
    ("retention_token_range_durations_ms", "INT32", "-1", 17, ALWAYS, "g"),
    ("retention_decode_priority", "INT32", "1", 17, ALWAYS, "g"),
    ("retention_decode_duration_ms", "INT32", "1", 17, ALWAYS, "g"),
    ("mrope_rotary_cos_sin", "FP32", "-1", 19, ALWAYS, ""),
    ("mrope_position_deltas", "INT64", "1", 19, ALWAYS, ""),
    ("guided_decoding_guide_type", "STRING", "1", 19, ALWAYS, "g"),
    ("guided_decoding_guide", "STRING", "1", 19, ALWAYS, "g"),
    ("lookahead_window_size", "INT32", "1", 19, ALWAYS, "g"),
    ("lookahead_ngram_size", "INT32", "1", 19, ALWAYS, "g"),
    ("lookahead_verification_set_size", "INT32", "1", 19, ALWAYS, "g"),
    *((name, datatype, "1", OURS, ALWAYS, "s") for name, datatype in OUR_INPUTS.items()),
]
FACTS = [  # outputs of the LLM and of both pipelines
    ("kv_cache_reused_blocks", "INT32", "1", 16, ALWAYS, ""),
    ("kv_cache_alloc_new_blocks", "INT32", "1", 16, ALWAYS, ""),
    ("kv_cache_alloc_total_blocks", "INT32", "1", 16, ALWAYS, ""),
    ("arrival_time_ns", "INT64", "1", 19, ALWAYS, ""),
    ("first_scheduled_time_ns", "INT64", "1", 19, ALWAYS, ""),
    ("first_token_time_ns", "INT64", "1", 19, ALWAYS, ""),
    ("last_token_time_ns", "INT64", "1", 19, ALWAYS, ""),
    ("acceptance_rate", "FP32", "1", 19, ALWAYS, ""),
    ("total_accepted_draft_tokens", "INT32", "1", 19, ALWAYS, ""),
    ("total_draft_tokens", "INT32", "1", 19, ALWAYS, ""),
    ("num_input_tokens", "INT32", "1", 20, ALWAYS, ""),
    ("num_output_tokens", "INT32", "1", 20, ALWAYS, ""),
    ("num_cached_tokens", "INT32", "1", OURS, ALWAYS, ""),
    ("finish_reason", "STRING", "-1", OURS, ALWAYS, ""),
    ("top_log_prob_ids", "INT32", "-1, -1, -1", OURS, ALWAYS, ""),
    ("top_log_probs", "FP32", "-1, -1, -1", OURS, ALWAYS, ""),
]
LLM_OUTPUTS = [
    ("output_ids", "INT32", "-1, -1", 5, ALWAYS, ""),
    ("sequence_length", "INT32", "-1", 6, ALWAYS, ""),
    ("cum_log_probs", "FP32", "-1", 6, ALWAYS, ""),
    ("output_log_probs", "FP32", "-1, -1", 6, ALWAYS, ""),
    ("context_logits", "FP32", "-1, -1", 8, 16, ""),
    ("context_logits", "${logits_datatype}", "-1, -1", 17, ALWAYS, ""),
    ("generation_logits", "FP32", "-1, -1, -1", 8, 16, ""),
    ("generation_logits", "${logits_datatype}", "-1, -1, -1", 17, ALWAYS, ""),
    ("batch_index", "INT32", "1", 12, ALWAYS, ""),
    ("sequence_index", "INT32", "1", 14, ALWAYS, ""),
    ("context_phase_params", "UINT8", "-1", 14, ALWAYS, ""),
    *FACTS,
]
PREPROCESSING_INPUTS = [
    ("QUERY", "STRING", "-1", 5, 11, "r"),
    ("QUERY", "STRING", "1", 12, ALWAYS, "r"),
    ("DECODER_QUERY", "STRING", "-1", 11, 11, ""),
    ("DECODER_QUERY", "STRING", "1", 12, ALWAYS, ""),
    ("REQUEST_OUTPUT_LEN", "UINT32", "-1", 5, 6, "r"),
    ("REQUEST_OUTPUT_LEN", "INT32", "-1", 7, 11, "r"),
    ("REQUEST_OUTPUT_LEN", "INT32", "1", 12, ALWAYS, "r"),
    ("BAD_WORDS_DICT", "STRING", "-1", 5, 5, "r"),
    ("BAD_WORDS_DICT", "STRING", "-1", 6, ALWAYS, ""),
    ("STOP_WORDS_DICT", "STRING", "-1", 5, 5, "r"),
    ("STOP_WORDS_DICT", "STRING", "-1", 6, ALWAYS, ""),
    ("EMBEDDING_BIAS_WORDS", "STRING", "-1", 6, ALWAYS, ""),
    ("EMBEDDING_BIAS_WEIGHTS", "FP32", "-1", 6, ALWAYS, ""),
    ("END_ID", "INT32", "-1", 8, 11, ""),
    ("END_ID", "INT32", "1", 12, ALWAYS, ""),
    ("PAD_ID", "INT32", "-1", 8, 11, ""),
    ("PAD_ID", "INT32", "1", 12, ALWAYS, ""),
    ("IMAGE", "FP16", "3, 224, 224", 12, 12, ""),
    ("PROMPT_EMBEDDING_TABLE", "FP16", "-1, -1", 12, 12, "g"),
    ("PROMPT_TABLE_EXTRA_ID", "UINT64", "1", 13, ALWAYS, ""),
    ("IMAGE_BYTES", "UINT8", "-1, -1, -1, -1", 15, ALWAYS, ""),
    ("IMAGE_URL", "STRING", "1", 15, ALWAYS, ""),
    ("IMAGES", "STRING", "-1", V1, ALWAYS, ""),
    ("VIDEO_BYTES", "UINT8", "-1, -1, -1, -1", 16, ALWAYS, ""),
]
PREPROCESSING_OUTPUTS = [
    ("INPUT_ID", "INT32", "-1", 5, ALWAYS, ""),
    ("REQUEST_INPUT_LEN", "INT32", "1", 5, ALWAYS, ""),
    ("DECODER_INPUT_ID", "INT32", "-1", 11, ALWAYS, ""),
    ("REQUEST_DECODER_INPUT_LEN", "INT32", "1", 11, ALWAYS, ""),
    ("BAD_WORDS_IDS", "INT32", "2, -1", 5, ALWAYS, ""),
    ("STOP_WORDS_IDS", "INT32", "2, -1", 5, ALWAYS, ""),
    ("EMBEDDING_BIAS", "FP32", "-1", 6, ALWAYS, ""),
    ("REQUEST_OUTPUT_LEN", "UINT32", "-1", 5, 6, ""),
    ("REQUEST_OUTPUT_LEN", "INT32", "-1", 7, ALWAYS, ""),
    ("OUT_END_ID", "INT32", "-1", 8, 11, ""),
    ("OUT_END_ID", "INT32", "1", 12, ALWAYS, ""),
    ("OUT_PAD_ID", "INT32", "-1", 8, 11, ""),
    ("OUT_PAD_ID", "INT32", "1", 12, ALWAYS, ""),
    ("OUT_PROMPT_EMBEDDING_TABLE", "FP16", "-1, -1", 12, 12, ""),
    ("OUT_PROMPT_TABLE_EXTRA_IDS", "UINT64", "-1", 13, ALWAYS, ""),
    ("PIXEL_VALUES", "FP16", "-1, -1, -1, -1", 15, ALWAYS, ""),
    ("ASPECT_RATIO_IDS", "INT64", "-1", 15, ALWAYS, ""),
    ("ASPECT_RATIO_MASK", "INT64", "-1, -1", 15, ALWAYS, ""),
    ("CROSS_ATTENTION_MASK", "INT64", "-1, -1, -1", 15, ALWAYS, ""),
    ("IMAGE_SIZES", "INT64", "2", 16, 29, ""),
    ("IMAGE_SIZES", "INT64", "-1, 2", V1, ALWAYS, ""),
    ("IS_VIDEO_INPUT", "BOOL", "1", 16, ALWAYS, ""),
    ("ATTENTION_MASK", "INT64", "-1", 19, ALWAYS, ""),
    ("IMAGE_GRID_THW", "INT64", "3", 19, ALWAYS, ""),
    ("VISION_INPUT_ID", "INT32", "-1", 19, ALWAYS, ""),
]
POSTPROCESSING_INPUTS = [
    ("TOKENS_BATCH", "INT32", "-1, -1", 5, ALWAYS, "r"),
    ("SEQUENCE_LENGTH", "INT32", "-1", 6, ALWAYS, "r"),
    ("CUM_LOG_PROBS", "FP32", "-1", 6, 8, "r"),
    ("CUM_LOG_PROBS", "FP32", "-1", 9, 13, ""),
    ("OUTPUT_LOG_PROBS", "FP32", "-1, -1", 6, 8, "r"),
    ("OUTPUT_LOG_PROBS", "FP32", "-1, -1", 9, 13, ""),
    ("CONTEXT_LOGITS", "FP32", "-1, -1", 8, 13, ""),
    ("GENERATION_LOGITS", "FP32", "-1, -1, -1", 8, 13, ""),
    ("BATCH_INDEX", "INT32", "1", 12, 13, ""),
]
POSTPROCESSING_OUTPUTS = [
    ("OUTPUT", "STRING", "-1, -1", 5, 5, ""),
    ("OUTPUT", "STRING", "-1", 6, ALWAYS, ""),
    ("OUT_CUM_LOG_PROBS", "FP32", "-1", 6, 13, ""),
    ("OUT_OUTPUT_LOG_PROBS", "FP32", "-1, -1", 6, 13, ""),
    ("OUT_CONTEXT_LOGITS", "FP32", "-1, -1", 8, 13, ""),
    ("OUT_GENERATION_LOGITS", "FP32", "-1, -1, -1", 8, 13, ""),
    ("OUT_BATCH_INDEX", "INT32", "1", 12, 13, ""),
]
TEXT_INPUTS = [  # of the ensemble, most of them of BLS too
    ("text_input", "STRING", "-1", 5, 11, "r"),
    ("text_input", "STRING", "1", 12, ALWAYS, "r"),
    ("decoder_text_input", "STRING", "-1", 11, 11, ""),
    ("decoder_text_input", "STRING", "1", 12, ALWAYS, ""),
    ("max_tokens", "UINT32", "-1", 5, 6, "r"),
    ("max_tokens", "INT32", "-1", 7, 11, "r"),
    ("max_tokens", "INT32", "1", 12, ALWAYS, "r"),
    ("bad_words", "STRING", "-1", 5, 5, "r"),
    ("bad_words", "STRING", "-1", 6, ALWAYS, ""),
    ("stop_words", "STRING", "-1", 5, 5, "r"),
    ("stop_words", "STRING", "-1", 6, ALWAYS, ""),
    ("end_id", "UINT32", "1", 5, 6, ""),
    ("end_id", "INT32", "1", 7, ALWAYS, ""),
    ("pad_id", "UINT32", "1", 5, 6, ""),
    ("pad_id", "INT32", "1", 7, ALWAYS, ""),
    ("top_k", "UINT32", "1", 5, 6, ""),
    ("top_k", "INT32", "1", 7, ALWAYS, ""),
    ("top_p", "FP32", "1", 5, ALWAYS, ""),
    ("temperature", "FP32", "1", 5, ALWAYS, ""),
    ("length_penalty", "FP32", "1", 5, ALWAYS, ""),
    ("repetition_penalty", "FP32", "1", 5, ALWAYS, ""),
    ("min_length", "UINT32", "1", 5, 6, ""),
    ("min_length", "INT32", "1", 7, 29, ""),
    ("min_tokens", "INT32", "1", V1, V1, ""),
    ("min_length", "INT32", "1", OURS, ALWAYS, ""),
    ("presence_penalty", "FP32", "1", 5, ALWAYS, ""),
    ("frequency_penalty", "FP32", "1", 8, ALWAYS, ""),
    ("random_seed", "UINT64", "1", 5, 29, ""),
    ("seed", "UINT64", "1", V1, V1, ""),
    ("random_seed", "UINT64", "1", OURS, ALWAYS, ""),
    ("return_log_probs", "BOOL", "1", 6, ALWAYS, ""),
    ("return_context_logits", "BOOL", "1", 8, ALWAYS, ""),
    ("return_generation_logits", "BOOL", "1", 8, ALWAYS, ""),
    ("beam_width", "UINT32", "1", 5, 6, ""),
    ("beam_width", "INT32", "1", 7, ALWAYS, ""),
    ("stream", "BOOL", "1", 5, ALWAYS, ""),
    ("prompt_embedding_table", "FP16", "-1, -1", 6, ALWAYS, ""),
    ("prompt_vocab_size", "UINT32", "1", 6, 6, ""),
    ("prompt_vocab_size", "INT32", "1", 7, ALWAYS, ""),
    ("embedding_bias_words", "STRING", "-1", 6, ALWAYS, ""),
    ("embedding_bias_weights", "FP32", "-1", 6, ALWAYS, ""),
    ("num_return_sequences", "INT32", "1", 14, ALWAYS, ""),
    ("image_input", "FP16", "3, 224, 224", 12, 12, ""),
    ("prompt_table_extra_id", "UINT64", "1", 13, ALWAYS, ""),
    ("lora_task_id", "UINT64", "1", 15, ALWAYS, ""),
    ("lora_weights", "FP16", "-1, -1", 15, ALWAYS, "g"),
    ("lora_config", "INT32", "-1, 3", 15, ALWAYS, "g"),
    ("exclude_input_in_output", "BOOL", "1", 16, ALWAYS, ""),
    ("return_kv_cache_reuse_stats", "BOOL", "1", 16, 18, ""),
    ("return_perf_metrics", "BOOL", "1", 19, ALWAYS, ""),
    ("return_num_input_tokens", "BOOL", "1", 20, V1, ""),
    ("return_num_output_tokens", "BOOL", "1", 20, V1, ""),
    ("guided_decoding_guide_type", "STRING", "1", 19, ALWAYS, "g"),
    ("guided_decoding_guide", "STRING", "1", 19, ALWAYS, "g"),
    ("top_p_min", "FP32", "1", OURS, ALWAYS, ""),
    ("top_p_decay", "FP32", "1", OURS, ALWAYS, ""),
    ("top_p_reset_ids", "INT32", "1", OURS, ALWAYS, ""),
    ("early_stopping", "BOOL", "1", OURS, ALWAYS, ""),
    ("beam_search_diversity_rate", "FP32", "1", OURS, ALWAYS, ""),
    *((name, datatype, "1", OURS, ALWAYS, "") for name, datatype in OUR_INPUTS.items()),
]
SCALARS_OF_BLS = {  # from which release on its reshape is empty, unlike the ensemble's
    "return_log_probs": 9, "return_context_logits": 8, "return_generation_logits": 8, "num_return_sequences": 14,
    "lora_task_id": 15, "return_kv_cache_reuse_stats": 16, "return_perf_metrics": 19, "return_num_input_tokens": 20,
    "return_num_output_tokens": 20,
}  # fmt: skip


def of_bls(row):
    name, datatype, dims, first, last, flags = row
    if name.startswith("guided"):
        return [(name, datatype, dims, first, last, "")]
    scalar_from = SCALARS_OF_BLS.get(name, ALWAYS + 1)
    before = [(name, datatype, dims, first, scalar_from - 1, flags)] if first < scalar_from <= last else []
    return [*before, (name, datatype, dims, max(first, scalar_from), last, "s") if scalar_from <= last else row]


BLS_INPUTS = [
    *(of_bls_row for row in TEXT_INPUTS if row[0] != "image_input" for of_bls_row in of_bls(row)),
    ("num_draft_tokens", "INT32", "1", 9, ALWAYS, ""),
    ("use_draft_logits", "BOOL", "1", 9, ALWAYS, "s"),
    ("image_input", "FP16", "3, 224, 224", 12, 12, ""),
    ("image_input", "FP16", "3, -1, -1", 13, 14, ""),
    ("image_input", "FP16", "-1, 3, -1, -1", 15, ALWAYS, ""),
    ("image_bytes_input", "UINT8", "-1, -1, -1, -1", 16, ALWAYS, ""),
    ("image_url_input", "STRING", "1", 16, ALWAYS, ""),
    ("video_bytes_input", "UINT8", "-1, -1, -1, -1", 16, ALWAYS, ""),
]
TEXT_OUTPUTS = [
    ("text_output", "STRING", "-1, -1", 5, 5, ""),
    ("text_output", "STRING", "-1", 6, ALWAYS, ""),
    ("cum_log_probs", "FP32", "-1", 6, ALWAYS, ""),
    ("output_log_probs", "FP32", "-1, -1", 6, ALWAYS, ""),
    ("context_logits", "FP32", "-1, -1", 8, 16, ""),
    ("context_logits", "${logits_datatype}", "-1, -1", 17, ALWAYS, ""),
    ("generation_logits", "FP32", "-1, -1, -1", 8, 16, ""),
    ("generation_logits", "${logits_datatype}", "-1, -1, -1", 17, ALWAYS, ""),
    ("batch_index", "INT32", "1", 12, ALWAYS, ""),
    ("sequence_index", "INT32", "1", 14, ALWAYS, ""),
    *FACTS,
]

# key, value as the template ships it, first release, last release
LLM_PARAMETERS = [
    ("FORCE_CPU_ONLY_INPUT_TENSORS", "no", 5, ALWAYS),
    ("max_beam_width", "1", 5, 5),
    ("max_beam_width", "${max_beam_width}", 6, ALWAYS),
    ("gpt_model_type", "inflight_fused_batching", 5, 5),
    ("gpt_model_type", "${batching_strategy}", 6, ALWAYS),
    ("gpt_model_path", "${engine_dir}", 5, ALWAYS),
    ("encoder_model_path", "${encoder_engine_dir}", 11, ALWAYS),
    ("max_tokens_in_paged_kv_cache", "${max_tokens_in_paged_kv_cache}", 5, ALWAYS),
    ("max_kv_cache_length", "${max_kv_cache_length}", 6, 6),
    ("max_attention_window_size", "${max_attention_window_size}", 7, ALWAYS),
    ("sink_token_length", "${sink_token_length}", 10, ALWAYS),
    ("batch_scheduler_policy", "${batch_scheduler_policy}", 5, ALWAYS),
    ("kv_cache_free_gpu_mem_fraction", "${kv_cache_free_gpu_mem_fraction}", 5, ALWAYS),
    ("kv_cache_host_memory_bytes", "${kv_cache_host_memory_bytes}", 10, ALWAYS),
    ("kv_cache_onboard_blocks", "${kv_cache_onboard_blocks}", 10, ALWAYS),
    ("exclude_input_in_output", "${exclude_input_in_output}", 6, ALWAYS),
    ("cancellation_check_period_ms", "${cancellation_check_period_ms}", 10, ALWAYS),
    ("stats_check_period_ms", "${stats_check_period_ms}", 10, ALWAYS),
    ("iter_stats_max_iterations", "${iter_stats_max_iterations}", 10, ALWAYS),
    ("request_stats_max_iterations", "${request_stats_max_iterations}", 10, ALWAYS),
    ("enable_kv_cache_reuse", "${enable_kv_cache_reuse}", 7, ALWAYS),
    ("normalize_log_probs", "${normalize_log_probs}", 8, ALWAYS),
    ("enable_chunked_context", "${enable_chunked_context}", 8, ALWAYS),
    ("gpu_device_ids", "${gpu_device_ids}", 8, ALWAYS),
    ("participant_ids", "${participant_ids}", 13, ALWAYS),
    ("num_nodes", "${num_nodes}", 19, ALWAYS),
    ("lora_cache_optimal_adapter_size", "${lora_cache_optimal_adapter_size}", 9, ALWAYS),
    ("lora_cache_max_adapter_size", "${lora_cache_max_adapter_size}", 9, ALWAYS),
    ("lora_cache_gpu_memory_fraction", "${lora_cache_gpu_memory_fraction}", 9, ALWAYS),
    ("lora_cache_host_memory_bytes", "${lora_cache_host_memory_bytes}", 9, ALWAYS),
    ("decoding_mode", "${decoding_mode}", 9, ALWAYS),
    ("medusa_choices", "${medusa_choices}", 9, ALWAYS),
    ("eagle_choices", "${eagle_choices}", 16, ALWAYS),
    ("gpu_weights_percent", "${gpu_weights_percent}", 10, ALWAYS),
    ("enable_trt_overlap", "${enable_trt_overlap}", 5, 9),
    ("max_num_sequences", "${max_num_sequences}", 5, 7),
    ("worker_path", "/opt/tritonserver/backends/tensorrtllm/triton_tensorrtllm_worker", 9, 9),
    ("executor_worker_path", "/opt/tritonserver/backends/tensorrtllm/trtllmExecutorWorker", 10, ALWAYS),
    ("enable_context_fmha_fp32_acc", "${enable_context_fmha_fp32_acc}", 12, ALWAYS),
    ("multi_block_mode", "${multi_block_mode}", 12, ALWAYS),
    ("cross_kv_cache_fraction", "${cross_kv_cache_fraction}", 14, ALWAYS),
    ("cuda_graph_mode", "${cuda_graph_mode}", 15, ALWAYS),
    ("cuda_graph_cache_size", "${cuda_graph_cache_size}", 15, ALWAYS),
    ("speculative_decoding_fast_logits", "${speculative_decoding_fast_logits}", 15, ALWAYS),
    ("lookahead_window_size", "${lookahead_window_size}", 19, ALWAYS),
    ("lookahead_ngram_size", "${lookahead_ngram_size}", 19, ALWAYS),
    ("lookahead_verification_set_size", "${lookahead_verification_set_size}", 19, ALWAYS),
    ("lora_prefetch_dir", "${lora_prefetch_dir}", 19, ALWAYS),
    ("tokenizer_dir", "${tokenizer_dir}", 19, ALWAYS),
    ("guided_decoding_backend", "${guided_decoding_backend}", 19, ALWAYS),
    ("xgrammar_tokenizer_info_path", "${xgrammar_tokenizer_info_path}", 19, ALWAYS),
]
PREPROCESSING_PARAMETERS = [
    ("tokenizer_dir", "${tokenizer_dir}", 5, ALWAYS),
    ("tokenizer_type", "${tokenizer_type}", 5, 8),
    ("add_special_tokens", "False", 7, 8),
    ("add_special_tokens", "${add_special_tokens}", 9, ALWAYS),
    ("visual_model_path", "${visual_model_path}", 12, 18),
    ("gpt_model_path", "${engine_dir}", 12, ALWAYS),
    ("max_num_images", "${max_num_images}", 15, ALWAYS),
    ("multimodal_model_path", "${multimodal_model_path}", 19, ALWAYS),
    ("hf_model_path", "${hf_model_path}", V1, ALWAYS),
]
POSTPROCESSING_PARAMETERS = [
    ("tokenizer_dir", "${tokenizer_dir}", 5, ALWAYS),
    ("tokenizer_type", "${tokenizer_type}", 5, 8),
    ("skip_special_tokens", "True", 7, 10),
    ("skip_special_tokens", "${skip_special_tokens}", 11, ALWAYS),
]
BLS_PARAMETERS = [
    ("accumulate_tokens", "${accumulate_tokens}", 7, ALWAYS),
    ("tensorrt_llm_model_name", "${tensorrt_llm_model_name}", 9, ALWAYS),
    ("tensorrt_llm_draft_model_name", "${tensorrt_llm_draft_model_name}", 9, ALWAYS),
    ("multimodal_encoders_name", "${multimodal_encoders_name}", 13, ALWAYS),
]

# Tensors that only change their name between the ensemble and the LLM.
RENAMED = {
    "runtime_top_k": "top_k", "runtime_top_p": "top_p", "runtime_top_p_min": "top_p_min", "runtime_top_p_decay": "top_p_decay",
    "runtime_top_p_reset_ids": "top_p_reset_ids", "len_penalty": "length_penalty", "streaming": "stream",
}  # fmt: skip
SAME_NAME = (
    "temperature", "repetition_penalty", "min_length", "presence_penalty", "frequency_penalty", "random_seed",
    "return_log_probs", "return_context_logits", "return_generation_logits", "beam_width", "prompt_embedding_table",
    "prompt_vocab_size", "num_return_sequences", "lora_task_id", "exclude_input_in_output", "guided_decoding_guide_type",
    "return_kv_cache_reuse_stats", "return_perf_metrics", "early_stopping", "beam_search_diversity_rate", "lora_weights",
    "lora_config", "guided_decoding_guide", "min_tokens", "seed", *OUR_INPUTS,
)  # fmt: skip


# Outputs of preprocessing that every ensemble passes on under one name.
OF_TEXT = (
    "REQUEST_INPUT_LEN", "INPUT_ID", "REQUEST_DECODER_INPUT_LEN", "DECODER_INPUT_ID", "REQUEST_OUTPUT_LEN", "STOP_WORDS_IDS",
    "BAD_WORDS_IDS", "EMBEDDING_BIAS", "OUT_PROMPT_TABLE_EXTRA_IDS",
)  # fmt: skip


def of_release(table, release):
    """The rows of a table that the release has; those with a first and a last release at 3 and 4, or 2 and 3."""
    at = 3 if len(table[0]) == 6 else 2
    return [row for row in table if row[at] <= release <= row[at + 1]]


def names(table, release):
    return [row[0] for row in of_release(table, release)]


def io_text(kind, table, release):
    blocks = []
    for name, datatype, dims, _, _, flags in of_release(table, release):
        kind_text = datatype if datatype.startswith("$") else f"TYPE_{datatype}"
        text = f'  {{\n    name: "{name}"\n    data_type: {kind_text}\n    dims: [ {dims} ]\n'
        text += "    reshape: { shape: [ ] }\n" if "s" in flags else ""
        text += "    allow_ragged_batch: true\n" if "g" in flags else ""
        text += "    optional: true\n" if kind == "input" and "r" not in flags else ""
        blocks.append(text + "  }")
    return f"{kind} [\n" + ",\n".join(blocks) + "\n]\n"


def parameters_text(table, release):
    return "".join(
        f'parameters: {{\n  key: "{key}"\n  value: {{\n    string_value: "{value}"\n  }}\n}}\n'
        for key, value, *_ in of_release(table, release)
    )


def maps_text(kind, links):
    return "".join(f'      {kind}_map {{\n        key: "{k}"\n        value: "{v}"\n      }}\n' for k, v in links)


def step_text(model, inputs, outputs):
    maps = maps_text("input", inputs) + maps_text("output", outputs)
    return f'    {{\n      model_name: "{model}"\n      model_version: -1\n{maps}    }}'


def ensemble_steps(release, suffix):
    """The graph of the release, {tensor of the member: tensor of the ensemble} for each step."""
    has_text = set(names(TEXT_INPUTS, release))
    pre_inputs = {
        "QUERY": "text_input", "DECODER_QUERY": "decoder_text_input", "REQUEST_OUTPUT_LEN": "max_tokens",
        "BAD_WORDS_DICT": "bad_words", "STOP_WORDS_DICT": "stop_words", "EMBEDDING_BIAS_WORDS": "embedding_bias_words",
        "EMBEDDING_BIAS_WEIGHTS": "embedding_bias_weights", "END_ID": "end_id", "PAD_ID": "pad_id", "IMAGE": "image_input",
        "PROMPT_EMBEDDING_TABLE": "prompt_embedding_table", "PROMPT_TABLE_EXTRA_ID": "prompt_table_extra_id",
    }  # fmt: skip
    pre_in = [(n, pre_inputs[n]) for n in names(PREPROCESSING_INPUTS, release) if n in pre_inputs]
    pre_outputs = {
        "OUT_END_ID": "_PREPROCESSOR_END_ID", "OUT_PAD_ID": "_PREPROCESSOR_PAD_ID",
        "OUT_PROMPT_EMBEDDING_TABLE": "out_prompt_embedding_table",
        **{n: f"_{n}" for n in OF_TEXT if release > 5 or not n.endswith("WORDS_IDS")},
    }  # fmt: skip
    pre_out = [(n, pre_outputs[n]) for n in names(PREPROCESSING_OUTPUTS, release) if n in pre_outputs]
    made = {
        "input_ids": "_INPUT_ID", "decoder_input_ids": "_DECODER_INPUT_ID", "input_lengths": "_REQUEST_INPUT_LEN",
        "decoder_input_lengths": "_REQUEST_DECODER_INPUT_LEN", "request_output_len": "_REQUEST_OUTPUT_LEN",
        "embedding_bias": "_EMBEDDING_BIAS", "stop_words_list": "_STOP_WORDS_IDS", "bad_words_list": "_BAD_WORDS_IDS",
        "end_id": "_PREPROCESSOR_END_ID" if release >= 8 else "end_id",
        "pad_id": "_PREPROCESSOR_PAD_ID" if release >= 8 else "pad_id",
        "prompt_table_extra_ids": "_OUT_PROMPT_TABLE_EXTRA_IDS",
        **{n: n for n in SAME_NAME if n in has_text}, **{core: text for core, text in RENAMED.items() if text in has_text},
        **({"prompt_embedding_table": "out_prompt_embedding_table"} if release == 12 else {}),
    }  # fmt: skip
    llm_in = [(n, made[n]) for n in names(LLM_INPUTS, release) if n in made]
    read = {tensor for _, tensor in llm_in}  # an ensemble has no tensor that nothing reads
    pre_out = [(n, tensor) for n, tensor in pre_out if tensor in read]
    through_post = {n[4:].lower(): n for n in names(POSTPROCESSING_OUTPUTS, release) if n.startswith("OUT_")}
    llm_out = [("output_ids", "_TOKENS_BATCH")]
    for name in names(LLM_OUTPUTS, release):
        if name == "sequence_length":
            llm_out.append((name, "_SEQUENCE_LENGTH"))
        elif name in names(TEXT_OUTPUTS, release):
            llm_out.append((name, f"_{name.upper()}" if name in through_post else name))
    post_in = [(n, f"_{n}") for n in names(POSTPROCESSING_INPUTS, release)]
    post_out = [("OUTPUT", "text_output")] + [(v, k) for k, v in through_post.items()]
    return ",\n".join([
        step_text(f"preprocessing{suffix}", pre_in, pre_out),
        step_text(f"tensorrt_llm{suffix}", llm_in, llm_out),
        step_text(f"postprocessing{suffix}", post_in, post_out),
    ])  # fmt: skip


def config_texts(release, suffix=""):
    """config.pbtxt of each model of the release, as a template."""
    batch = "max_batch_size: " + ("128" if release == 5 else "${triton_max_batch_size}") + "\n"
    backend = '"${triton_backend}"' if release >= 10 else '"tensorrtllm"'

    def group(name):
        count = "1" if release < 7 else "${" + name + "_instance_count}"
        return f"instance_group [\n  {{\n    count: {count}\n    kind: KIND_CPU\n  }}\n]\n"

    def head(name, rest):
        return f'# {name} of release 0.{release}\nname: "{name}{suffix}"\n{rest}{batch}'

    batching = ""
    if release >= 6:
        queue = "  default_queue_policy: { max_queue_size: ${max_queue_size} }\n" if release >= 12 else ""
        batching = (
            "dynamic_batching {\n  preferred_batch_size: [ ${triton_max_batch_size} ]\n"
            "  max_queue_delay_microseconds: ${max_queue_delay_microseconds}\n" + queue + "}\n"
        )
    decoupled = "model_transaction_policy {\n  decoupled: ${decoupled_mode}\n}\n"
    texts = {
        "preprocessing": head("preprocessing", 'backend: "python"\n')
        + io_text("input", PREPROCESSING_INPUTS, release)
        + io_text("output", PREPROCESSING_OUTPUTS, release)
        + parameters_text(PREPROCESSING_PARAMETERS, release)
        + group("preprocessing"),
        "tensorrt_llm": head("tensorrt_llm", f"backend: {backend}\n")
        + decoupled
        + batching
        + io_text("input", LLM_INPUTS, release)
        + io_text("output", LLM_OUTPUTS, release)
        + "instance_group [ { count: 1, kind : KIND_CPU } ]\n"
        + parameters_text(LLM_PARAMETERS, release),
        "postprocessing": head("postprocessing", 'backend: "python"\n')
        + io_text("input", POSTPROCESSING_INPUTS, release)
        + io_text("output", POSTPROCESSING_OUTPUTS, release)
        + parameters_text(POSTPROCESSING_PARAMETERS, release)
        + group("postprocessing"),
        "ensemble": head("ensemble", 'platform: "ensemble"\n')
        + io_text("input", TEXT_INPUTS, release)
        + io_text("output", TEXT_OUTPUTS, release)
        + f"ensemble_scheduling {{\n  step [\n{ensemble_steps(release, suffix)}\n  ]\n}}\n",
    }
    if release >= 7:
        texts["tensorrt_llm_bls"] = (
            head("tensorrt_llm_bls", 'backend: "python"\n')
            + decoupled
            + io_text("input", BLS_INPUTS, release)
            + io_text("output", TEXT_OUTPUTS, release)
            + parameters_text(BLS_PARAMETERS, release)
            + group("bls")
        )
    return texts


def fill_template(text, **values):
    """What upstream's filling script does: known placeholders become their values, others stay."""
    return re.sub(r"\$\{(\w+)\}", lambda match: str(values.get(match[1], match[0])), text)


def write_repository(root, release, suffix="", without=(), **fill):
    """The release's models under `root`, each with an empty version directory 1."""
    for model, text in config_texts(release, suffix).items():
        if model in without:
            continue
        directory = pathlib.Path(root) / (model + suffix)
        (directory / "1").mkdir(parents=True)
        (directory / "config.pbtxt").write_text(fill_template(text, **fill))
    return pathlib.Path(root)
