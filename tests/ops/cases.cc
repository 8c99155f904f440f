// SPDX-License-Identifier: Apache-2.0
#include "cases.h"

namespace inflight::ops {

const std::vector<LinearCase>& LinearCases() {
  using enum ActivationKind;
  static const std::vector<LinearCase> cases = {
      {"one_by_one", 1, 1, 1},
      {"empty_batch", 0, 64, 32},
      {"one_panel", 1, 64, 64},
      {"odd_features", 3, 65, 33, true, kNone, DType::kF32, 1},
      {"odd_vocabulary", 2, 1013, 40, false},
      {"narrow", 5, 7, 2, true, kRelu},
      {"hidden_not_of_64", 6, 200, 88, true, kGeluTanh, DType::kBF16, 3},
      {"tile_remainders_7", 7, 130, 48, true, kSilu},
      {"tile_remainders_8", 8, 96, 100, false, kSilu, DType::kBF16},
      {"tile_remainders_13", 13, 64, 256, true, kGeluTanh},
      {"deep_passes", 17, 72, 1537, true},
      {"full_call", 64, 128, 320, true, kNone, DType::kBF16},
      {"row_blocks", 129, 70, 130, true, kRelu, DType::kF32, 1},
      {"largest", 9, 320, 8192, false},
      {"rows_cut_for_threads", 300, 40, 64, true},
  };
  return cases;
}

const std::vector<AttentionCase>& AttentionCases() {
  static const std::vector<AttentionCase> cases = {
      {"first_token", 1, 1, 64, 16, {{1, 1}}},
      {"decode_mha", 4, 4, 64, 64, {{1, 5}, {1, 64}, {1, 65}, {1, 200}}},
      {"decode_group_2", 4, 2, 8, 16, {{1, 17}, {1, 16}, {1, 33}}},
      {"decode_group_4", 8, 2, 64, 32, {{1, 100}, {1, 31}}, DType::kBF16},
      {"decode_group_8_mqa", 8, 1, 128, 128, {{1, 129}, {1, 300}}},
      {"prefill_from_start", 4, 2, 24, 16, {{37, 37}}},
      {"prefill_chunk", 4, 1, 80, 32, {{50, 170}}, DType::kBF16},
      {"mixed", 8, 2, 40, 64, {{1, 70}, {33, 33}, {1, 1}, {19, 147}, {2, 65}}},
      {"wide_head", 2, 1, 256, 16, {{9, 90}, {1, 77}}},
      {"head_not_of_16", 3, 3, 72, 16, {{1, 15}, {18, 66}}},
      {"group_wider_than_a_call", 71, 1, 16, 16, {{3, 40}, {1, 7}}},
      {"long", 2, 1, 64, 64, {{1, 2050}, {3, 1027}}},
      {"no_rows", 2, 1, 64, 64, {}},
  };
  return cases;
}

const std::vector<NormCase>& NormCases() {
  static const std::vector<NormCase> cases = {
      {"one_element", 1, 1, false, true, DType::kF32},
      {"empty_batch", 0, 64, false, true, DType::kF32},
      {"rms_64", 3, 64, false, true, DType::kF32},
      {"rms_odd_bf16", 5, 37, false, true, DType::kBF16},
      {"rms_first_f16", 2, 72, false, false, DType::kF16},
      {"layer_norm_odd", 4, 51, true, true, DType::kF32},
      {"layer_norm_768_bf16", 7, 768, true, false, DType::kBF16},
      {"rms_largest", 33, 8192, false, true, DType::kBF16},
  };
  return cases;
}

const std::vector<ModelLinear>& OneBillionLinears() {
  static const std::vector<ModelLinear> linears = {
      {"qkv", 3072, 2048, false, 16},      {"dense", 2048, 2048, false, 16},
      {"gate_up", 8192, 2048, true, 16},   {"proj", 2048, 8192, false, 16},
      {"lm_head", 128256, 2048, false, 1},
  };
  return linears;
}

}  // namespace inflight::ops
