// SPDX-License-Identifier: Apache-2.0
// Drawing a token for each row of logits, by what rows ask for.
#include <fmt/format.h>

#include "cases.h"
#include "decoding/cuda/device_sampler.h"

namespace inflight::bench {
namespace {

using ops::Must;

constexpr int kVocab = 128256;
constexpr int kMaxRows = 1024;
constexpr int kSeqLen = 1024;  // all slots are full: penalties count so many tokens, none is added

// Logits like a language model's: a few tokens stand out. `flat`: none does.
std::vector<float> SomeRows(int num_rows, bool flat) {
  ops::Random random(7);
  std::vector<float> rows(static_cast<size_t>(num_rows) * kVocab);
  for (float& x : rows) {
    x = 0;
    for (int i = 0; i < 6; ++i) x += random.Uniform();  // of standard deviation 1.4
  }
  if (flat) return rows;
  for (int r = 0; r < num_rows; ++r)
    for (int i = 0; i < 30; ++i) {
      const auto id = static_cast<size_t>((random.Uniform() + 1) / 2 * (kVocab - 1));
      rows[static_cast<size_t>(r) * kVocab + id] = 9 + 4 * random.Uniform();
    }
  return rows;
}

struct Rule {
  std::string name;
  Request request;
  bool flat = false;
};

std::vector<Rule> Rules() {
  std::vector<Rule> rules(10);
  rules[0].name = "greedy";
  rules[1].name = "greedy log-probs";
  rules[1].request.output.return_log_probs = true;
  rules[2].name = "greedy penalties";
  rules[2].request.sampling.repetition_penalty = 1.1F;
  rules[3].name = "top-k 50";
  rules[3].request.sampling.top_k = 50;
  rules[4].name = "top-p 0.9";
  rules[4].request.sampling.top_p = 0.9F;
  rules[5].name = "top-p 0.9 all";
  rules[5].request.sampling = {.temperature = 0.8F,
                               .top_p = 0.9F,
                               .min_p = 1e-4F,
                               .repetition_penalty = 1.1F,
                               .frequency_penalty = 0.1F};
  rules[5].request.output.return_log_probs = true;
  rules[6].name = "top-p 0.9 flat";
  rules[6].request.sampling.top_p = 0.9F;
  rules[6].flat = true;
  rules[7].name = "top-k 1024 flat";
  rules[7].request.sampling.top_k = 1024;
  rules[7].flat = true;
  rules[8].name = "greedy bans";
  rules[8].request.end_ids = {2};
  rules[8].request.sampling.min_tokens = 1 << 20;
  rules[8].request.sampling.no_repeat_ngram_size = 3;
  for (TokenId id = 0; id < 100; ++id) rules[8].request.bad_words.push_back({id, id + 1});
  rules[9].name = "greedy bias";
  rules[9].request.embedding_bias = std::make_shared<std::vector<float>>(kVocab, 0.5F);
  return rules;
}

void FillWith(Device& device, const Rotation& rotation, int64_t num_rows,
              const std::vector<float>& rows) {
  const std::byte* first = static_cast<std::byte*>(rotation.At(0).data);
  int64_t at = 0;
  for (int call = 0; call == 0 || rotation.At(call).data != first; ++call)
    for (int64_t r = 0; r < num_rows; ++r, at = (at + kVocab) % static_cast<int64_t>(rows.size()))
      Must(device.Copy(rotation.At(call).as<float>() + r * kVocab, rows.data() + at,
                       kVocab * sizeof(float)));
}

}  // namespace

void SamplerCases(CudaBench& bench) {
  if (!bench.Wants("sample")) return;
  Result<std::unique_ptr<decoding::DeviceSampler>> sampler =
      decoding::DeviceSampler::Create(bench.device(), kMaxRows, kVocab);
  Must(sampler.status());
  Result<PinnedBuffer> results =
      PinnedBuffer::Allocate(bench.device(), 3 * kMaxRows * sizeof(float));
  Must(results.status());
  ops::Tensor slots(DType::kI32, {kMaxRows});
  ops::Tensor lengths(DType::kI32, {kMaxRows});
  ops::Tensor tokens(DType::kI32, {kMaxRows, kSeqLen});
  for (int i = 0; i < kMaxRows; ++i) {
    slots.view().as<int32_t>()[i] = i;
    lengths.view().as<int32_t>()[i] = kSeqLen;
    for (int j = 0; j < kSeqLen; ++j)
      tokens.view().as<int32_t>()[i * kSeqLen + j] = (i * 7919 + j * j) % 3000;
  }
  const ops::DeviceTensor device_slots(bench.device(), slots);
  const ops::DeviceTensor device_lengths(bench.device(), lengths);
  const ops::DeviceTensor device_tokens(bench.device(), tokens);
  for (const bool flat : {false, true}) {
    const std::vector<float> rows = SomeRows(32, flat);
    for (const int num_rows : {1, 16, 64, 256, 1024}) {
      const Rotation logits(bench.device(), DType::kF32, {num_rows, kVocab});
      FillWith(bench.device(), logits, num_rows, rows);
      for (const Rule& rule : Rules()) {
        if (rule.flat != flat) continue;
        const decoding::SamplingRule sampling =
            decoding::MakeSamplingRule(rule.request, 1, /*num_prompt_tokens=*/1);
        for (int slot = 0; slot < kMaxRows; ++slot) {
          decoding::SamplingRule with_seed = sampling;
          with_seed.seed = static_cast<uint64_t>(slot);
          Must((*sampler)->Setup(slot, with_seed, /*tokens=*/{}, bench.stream()));
        }
        bench.Time({.kernel = "sample",
                    .shape = fmt::format("{}x{} {}", num_rows, kVocab, rule.name),
                    .dtype = DType::kF32,
                    .bytes = static_cast<double>(num_rows) * kVocab * sizeof(float),
                    .launch = [&](int call) {
                      auto* const result = reinterpret_cast<float*>(results->data());
                      return (*sampler)->Sample({.row_slots = device_slots.view().as<int32_t>(),
                                                 .num_rows = num_rows,
                                                 .logits = logits.At(call).as<float>(),
                                                 .any_row_samples = !sampling.greedy,
                                                 .tokens = device_tokens.view().as<int32_t>(),
                                                 .num_tokens = device_lengths.view().as<int32_t>(),
                                                 .max_seq_len = kSeqLen,
                                                 .ids = reinterpret_cast<int32_t*>(result),
                                                 .log_probs = result + kMaxRows,
                                                 .log_probs_all = result + 2 * kMaxRows},
                                                bench.stream());
                    }});
      }
    }
  }
}

}  // namespace inflight::bench
