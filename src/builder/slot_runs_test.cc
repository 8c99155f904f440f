// SPDX-License-Identifier: Apache-2.0
#include "builder/slot_runs.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "model/config.h"

namespace inflight::builder {
namespace {

using model::QuantAlgo;
using model::WeightSlot;

struct Slots {
  std::vector<WeightSlot> list;
  std::vector<uint64_t> num_bytes;
};

Slots SlotsOf(const model::ModelConfig& config) {
  Slots slots;
  model::DecoderWeights unused;
  slots.list = model::WeightSlots(config, unused);
  for (const WeightSlot& slot : slots.list)
    slots.num_bytes.push_back(BytesOf(StoredDType(config, slot), slot.shape.num_elements()));
  return slots;
}

model::ModelConfig Llama8B(QuantAlgo algo) {
  return {.architecture = "LlamaForCausalLM",
          .dtype = DType::kBF16,
          .quant_algo = algo,
          .quantize_lm_head = algo == QuantAlgo::kFp8PerChannelPerToken,
          .vocab_size = 128256,
          .hidden_size = 4096,
          .num_layers = 32,
          .num_heads = 32,
          .num_kv_heads = 8,
          .head_dim = 128,
          .intermediate_size = 14336};
}

void ExpectWhole(const Slots& slots, const std::vector<SlotRun>& runs) {
  size_t begin = 0;
  for (const SlotRun& run : runs) {
    EXPECT_EQ(run.begin, begin);
    EXPECT_GT(run.end, run.begin);
    uint64_t num_bytes = 0;
    for (size_t i = run.begin; i < run.end; ++i) num_bytes += slots.num_bytes[i];
    EXPECT_EQ(run.num_bytes, num_bytes);
    begin = run.end;
  }
  EXPECT_EQ(begin, slots.list.size());
}

// Gate and up stand side by side, their scales behind both.
TEST(SlotRunsTest, AMatrixAndItsScalesAreOfOneRun) {
  for (const QuantAlgo algo : {QuantAlgo::kW8A16, QuantAlgo::kFp8PerChannelPerToken}) {
    const Slots slots = SlotsOf(Llama8B(algo));
    for (const uint64_t max_bytes : {uint64_t{1}, uint64_t{60} << 20, uint64_t{1} << 30}) {
      const std::vector<SlotRun> runs = RunsOf(slots.list, slots.num_bytes, max_bytes);
      ExpectWhole(slots, runs);
      std::map<std::string, size_t> run_of;
      for (size_t r = 0; r < runs.size(); ++r)
        for (size_t i = runs[r].begin; i < runs[r].end; ++i) run_of[slots.list[i].name] = r;
      int num_scales = 0;
      for (const WeightSlot& slot : slots.list) {
        if (slot.kind != WeightSlot::Kind::kScales) continue;
        EXPECT_EQ(run_of.at(slot.name), run_of.at(MatrixOfScales(slot))) << slot.name;
        ++num_scales;
      }
      EXPECT_EQ(num_scales, 32 * 5 + (algo == QuantAlgo::kFp8PerChannelPerToken ? 1 : 0));
    }
  }
}

// The embedding of an 8B model takes 1.05 GB in bfloat16, a layer in FP8 218 MB.
TEST(SlotRunsTest, RunsAreFilledUpToTheBound) {
  const Slots slots = SlotsOf(Llama8B(QuantAlgo::kFp8PerChannelPerToken));
  const std::vector<SlotRun> runs = RunsOf(slots.list, slots.num_bytes, uint64_t{1} << 30);
  ExpectWhole(slots, runs);
  EXPECT_EQ(runs.size(), 9U);
  for (const SlotRun& run : runs) EXPECT_LE(run.num_bytes, uint64_t{1} << 30);
}

TEST(SlotRunsTest, WithoutScalesEachSlotMayBeCutOff) {
  const Slots slots = SlotsOf(Llama8B(QuantAlgo::kNone));
  EXPECT_EQ(RunsOf(slots.list, slots.num_bytes, 1).size(), slots.list.size());
  EXPECT_TRUE(RunsOf({}, {}, 1).empty());
}

}  // namespace
}  // namespace inflight::builder
