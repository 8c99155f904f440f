// SPDX-License-Identifier: Apache-2.0
#include "cases.h"

#include <numeric>

namespace inflight::ops {
namespace {

template <typename Case>
std::vector<Case> WithoutGpuOnly(std::vector<Case> cases) {
  std::erase_if(cases, [](const Case& c) { return c.gpu_only; });
  return cases;
}

std::vector<int> Descending(int n) {
  std::vector<int> rows(static_cast<size_t>(n));
  std::iota(rows.rbegin(), rows.rend(), 0);
  return rows;
}

}  // namespace

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
      {"tile_remainders_13", 13, 64, 256, true, kGelu},
      {"deep_passes", 17, 72, 1537, true},
      {"full_call", 64, 128, 320, true, kNone, DType::kBF16},
      {"row_blocks", 129, 70, 130, true, kRelu, DType::kF32, 1},
      {"largest", 9, 320, 8192, false},
      {"rows_cut_for_threads", 300, 40, 64, true},
      {"parts_of_rows_and_features", 70, 330, 4700, true},
      {"one_row_of_remainders", 1, 1016, 272, true, kGeluTanh},
      {"misaligned", 5, 66, 64, true, kSilu, DType::kBF16, 1},
      {"tile_remainders_33", 33, 136, 272, true, kRelu, DType::kBF16},
      {"largest_layer", 33, 14336, 4096, false, kNone, DType::kBF16, 0, /*gpu_only=*/true},
  };
  return cases;
}

std::vector<LinearCase> CpuLinearCases() { return WithoutGpuOnly(LinearCases()); }

const std::vector<LmHeadCase>& LmHeadCases() {
  static const std::vector<LmHeadCase> cases = {
      {"one_row", 1, 1013, 64, {0}},
      {"no_rows", 4, 130, 64, {}, true},
      {"repeated_rows", 9, 131, 96, {8, 0, 0, 5}, true},
      {"misaligned", 6, 131, 64, {5, 1, 4}, true, 1},
      {"tile_remainders", 40, 1016, 272, Descending(40), true},
      {"largest", 3, 128256, 4096, {2, 0}, false, 0, /*gpu_only=*/true},
  };
  return cases;
}

const std::vector<EmbedCase>& EmbedCases() {
  static const std::vector<EmbedCase> cases = {
      {"one_row", 1, 131, 64},           {"no_rows", 0, 131, 64, true},
      {"odd_width", 4, 131, 37, true},   {"misaligned", 5, 70, 64, true, 1},
      {"many_rows", 70, 131, 136, true}, {"largest", 3, 130, 9000, true},
  };
  return cases;
}

const std::vector<QkvCase>& QkvCases() {
  using enum RopeStyle;
  const std::vector<SequenceRow> rows = {{5, 5}, {1, 18}, {3, 34}};
  static const std::vector<QkvCase> cases = {
      {"no_rope", 4, 2, 24, 40, kNone, 0, 16, rows},
      {"neox", 4, 2, 24, 40, kNeox, 24, 16, rows},
      {"neox_part", 4, 2, 24, 40, kNeox, 16, 16, rows},
      {"gptj", 4, 2, 24, 40, kGptj, 24, 16, rows},
      {"gptj_part", 4, 2, 24, 40, kGptj, 10, 16, rows},
      {"one_token", 1, 1, 64, 64, kNeox, 64, 16, {{1, 1}}},
      {"no_rows", 2, 1, 64, 64, kNeox, 64, 16, {}},
      {"tile_remainders", 3, 1, 80, 48, kNeox, 80, 32, {{1, 33}, {18, 20}}, false},
      {"misaligned", 3, 1, 80, 48, kNeox, 80, 32, {{1, 33}, {4, 20}}, true, 1},
      {"largest",
       32,
       8,
       128,
       4096,
       kNeox,
       128,
       64,
       {{1, 4000}, {40, 77}},
       true,
       0,
       /*gpu_only=*/true},
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
      {"mixed_128", 8, 2, 128, 64, {{1, 70}, {1, 1}, {9, 9}, {5, 147}, {2, 65}}},
      {"head_of_96", 3, 3, 96, 16, {{1, 15}, {18, 66}}},
      {"largest", 32, 8, 128, 64, {{1, 30001}, {1, 4097}, {150, 3000}}, DType::kF32, true},
  };
  return cases;
}

std::vector<AttentionCase> CpuAttentionCases() { return WithoutGpuOnly(AttentionCases()); }

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
      {"one_row_4096", 1, 4096, false, true, DType::kBF16},
      {"layer_norm_widest", 2, 16392, true, true, DType::kF32},
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
