// SPDX-License-Identifier: Apache-2.0
// For tests: the device's sampler beside the CPU's, and rows and rules for them.
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "decoding/cuda/device_sampler.h"
#include "inflight/bad_texts.h"
#include "ops/cuda/cuda_stream.h"
#include "tensor/cuda_status.h"
#include "tensor/test_gpu.h"

namespace inflight::decoding {

inline constexpr float kInfinity = std::numeric_limits<float>::infinity();
inline constexpr int32_t kUntouched = -77;

template <typename T>
T Must(Result<T> result) {
  if (!result.ok()) {
    ADD_FAILURE() << result.status().message();
    std::abort();
  }
  return std::move(*result);
}
inline void Must(const Status& status) {
  if (status.ok()) return;
  ADD_FAILURE() << status.message();
  std::abort();
}
inline void MustCuda(cudaError_t error) { Must(inflight::cuda::ToStatus(error, "test")); }

// xorshift64*: fast enough to make millions of logits.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15 + 1) {}
  uint64_t Next() {
    state_ ^= state_ >> 12;
    state_ ^= state_ << 25;
    state_ ^= state_ >> 27;
    return state_ * 0x2545F4914F6CDD1D;
  }
  int Below(int n) { return static_cast<int>((Next() >> 33) % static_cast<uint64_t>(n)); }
  float Uniform() { return static_cast<float>(Next() >> 40) * 0x1p-24F; }  // [0, 1)
  // Nearly normal: the sum of twelve uniform numbers of 5 bits, from one draw.
  float Normal() {
    uint64_t bits = Next() >> 4;
    int sum = 0;
    for (int i = 0; i < 12; ++i, bits >>= 5) sum += static_cast<int>(bits & 31);
    return (static_cast<float>(sum) - 186.0F) / 32.0F + Uniform() / 32.0F;
  }

 private:
  uint64_t state_;
};

inline constexpr int kNumShapesOfRows = 14;

// A row of one of kNumShapesOfRows kinds; ties, infinities and flat rows among them.
inline void FillRow(int kind, Random& random, std::span<float> row) {
  const int n = static_cast<int>(row.size());
  const auto normal = [&](float deviation) {
    for (float& x : row) x = deviation * random.Normal();
  };
  switch (kind) {
    case 0:
      return normal(3.0F);
    case 1:
      return normal(1.0F);
    case 2:
      return normal(0.02F);
    case 3:  // as a language model's: a few stand out
      normal(2.0F);
      for (int i = 0; i < 30; ++i) row[random.Below(n)] = 6.0F + 9.0F * random.Uniform();
      return;
    case 4:  // one stands out
      normal(2.0F);
      row[random.Below(n)] = 25.0F;
      return;
    case 5:  // ties everywhere
      normal(3.0F);
      for (float& x : row) x = std::round(x * 4.0F) / 4.0F;
      return;
    case 6:  // a few distinct values
      for (float& x : row) x = static_cast<float>(random.Below(4)) * 0.5F;
      return;
    case 7:
      return std::fill(row.begin(), row.end(), -1.25F);
    case 8:
      std::fill(row.begin(), row.end(), -kInfinity);
      row[random.Below(n)] = 3.0F;
      return;
    case 9:
      return std::fill(row.begin(), row.end(), -kInfinity);
    case 10:  // masked tokens, NaN and zeros of both signs
      normal(2.0F);
      for (float& x : row) {
        if (random.Below(8) == 0) x = -kInfinity;
        if (random.Below(64) == 0) x = std::numeric_limits<float>::quiet_NaN();
        if (random.Below(4) == 0) x = random.Below(2) == 0 ? 0.0F : -0.0F;
      }
      return;
    case 11:  // no finite largest
      normal(2.0F);
      row[random.Below(n)] = kInfinity;
      row[random.Below(n)] = kInfinity;
      return;
    case 12:  // of all sizes
      for (float& x : row) x = std::ldexp(random.Normal(), random.Below(60) - 40);
      return;
    default:  // falling; the best in one chunk
      for (int i = 0; i < n; ++i) row[i] = 10.0F - 0.001F * static_cast<float>(i);
      return;
  }
}

// Of a vocabulary of short words; a few tokens have no text, and the last ids are unknown.
inline const std::shared_ptr<const TokenTexts>& RandomTokenTexts(int vocab_size) {
  static auto& made = *new std::map<int, std::shared_ptr<const TokenTexts>>;
  std::shared_ptr<const TokenTexts>& tokens = made[vocab_size];
  if (tokens != nullptr) return tokens;
  Random random(static_cast<uint64_t>(vocab_size) + 1);
  std::vector<std::string> texts(static_cast<size_t>(vocab_size - vocab_size / 16));
  for (std::string& text : texts)
    for (int i = random.Below(16) == 0 ? 0 : 1 + random.Below(7); i > 0; --i)
      text += static_cast<char>(random.Below(4) == 0 ? random.Below(256) : 'a' + random.Below(6));
  return tokens = MakeTokenTexts(texts);
}

// Some that the next token can complete, others that tokens have whole, many that are nowhere.
inline std::shared_ptr<const BadTexts> RandomBadTexts(Random& random, int vocab_size,
                                                      std::span<const TokenId> tokens) {
  const std::shared_ptr<const TokenTexts>& known = RandomTokenTexts(vocab_size);
  const auto any = [&] { return std::string(known->Of(random.Below(vocab_size))); };
  std::string end;
  for (const TokenId token : tokens.last(std::min<size_t>(tokens.size(), 20)))
    end += known->Of(token);
  std::vector<std::string> texts = {any()};
  for (int i = 0; i < 20; ++i) {
    const auto size = static_cast<size_t>(random.Below(60));
    texts.push_back(end.substr(end.size() - std::min(end.size(), size)));
    if (i % 2 == 0) texts.back() += any().substr(0, 1 + static_cast<size_t>(random.Below(3)));
    if (i % 2 != 0) texts.back() += static_cast<char>('a' + random.Below(6));
  }
  for (int i = random.Below(400); i > 0; --i) texts.push_back(any() + any() + any());
  return Must(MakeBadTexts(texts, known));
}

// Rules about tokens, some of which `tokens` meet.
inline void AddBans(Random& random, int vocab_size, std::span<const TokenId> tokens,
                    Request& request) {
  const auto token = [&] { return random.Below(vocab_size); };
  if (random.Below(3) == 0) request.sampling.no_repeat_ngram_size = 1 + random.Below(4);
  if (random.Below(3) == 0) {
    request.end_ids = {token(), token(), token()};
    request.sampling.min_tokens = random.Below(5);
  }
  if (random.Below(3) == 0) request.bad_texts = RandomBadTexts(random, vocab_size, tokens);
  if (random.Below(3) != 0) return;
  for (int i = 0; i < 600; ++i) request.bad_words.push_back({token()});
  for (size_t size = 1; size < 6; ++size) {
    const auto tail = tokens.last(std::min(tokens.size(), size));
    request.bad_words.emplace_back(tail.begin(), tail.end());
    request.bad_words.back().push_back(token());
    request.bad_words.emplace_back(size, token());
  }
}

inline std::shared_ptr<std::vector<float>> RandomBias(Random& random, int vocab_size) {
  auto bias = std::make_shared<std::vector<float>>(static_cast<size_t>(vocab_size));
  for (float& x : *bias) x = random.Below(16) == 0 ? -kInfinity : random.Normal();
  return bias;
}

inline Request RandomRequest(Random& random, int vocab_size, std::span<const TokenId> tokens) {
  Request request;
  SamplingParams& sampling = request.sampling;
  const auto one_of = [&](std::initializer_list<float> values) {
    return *(values.begin() + random.Below(static_cast<int>(values.size())));
  };
  switch (random.Below(8)) {
    case 0:
      break;  // greedy
    case 1:
    case 2:
    case 3:
      sampling.top_k = static_cast<int>(one_of({2, 3, 40, 50, 200, 513, 1023, 1024, 2000}));
      if (random.Below(2) == 0) sampling.top_p = one_of({1e-6F, 0.5F, 0.9F, 1.0F});
      break;
    case 4:
    case 5:
    case 6:
      sampling.top_p = one_of({1e-6F, 0.1F, 0.5F, 0.9F, 0.999F, 1.0F});
      break;
    default:
      sampling.min_p = one_of({0.01F, 0.3F, 1.0F});
  }
  if (random.Below(3) == 0) sampling.min_p = one_of({1e-5F, 0.02F, 0.3F, 1.0F});
  if (random.Below(4) == 0) sampling.typical_p = one_of({1e-6F, 0.2F, 0.5F, 0.95F, 1.0F});
  if (random.Below(2) == 0) sampling.temperature = one_of({0.0F, 0.05F, 0.7F, 0.9F, 1.3F, 50.0F});
  if (random.Below(3) == 0) sampling.repetition_penalty = one_of({1.2F, 0.7F, 3.0F});
  if (random.Below(4) == 0) sampling.presence_penalty = one_of({0.6F, -0.5F, 7.0F});
  if (random.Below(4) == 0) sampling.frequency_penalty = one_of({0.1F, -0.3F, 0.77F});
  if (random.Below(2) == 0) {
    sampling.top_p_decay = one_of({0.5F, 0.9F, 1.0F});
    sampling.top_p_min = one_of({0.05F, 0.4F, 1.0F});
    sampling.top_p_reset_id = random.Below(vocab_size);
  }
  if (random.Below(3) == 0) sampling.prompt_ignore_length = random.Below(100);
  if (random.Below(4) == 0) request.embedding_bias = RandomBias(random, vocab_size);
  if (random.Below(2) == 0) AddBans(random, vocab_size, tokens, request);
  request.output.return_log_probs = random.Below(3) == 0;
  request.output.normalize_log_probs = random.Below(2) == 0;
  return request;
}

// Both samplers, with slots alike; logits, tokens and results of the device's one.
class Samplers {
 public:
  Samplers(Device& device, Stream& stream, int max_slots, int vocab_size, int max_seq_len,
           bool may_use_clusters = true)
      : stream_(stream),
        pool_(device.cpu_pool()),
        max_slots_(max_slots),
        vocab_size_(vocab_size),
        max_seq_len_(max_seq_len),
        cpu_(max_slots, vocab_size, pool_.num_threads()),
        gpu_(Must(DeviceSampler::Create(device, max_slots, vocab_size, may_use_clusters))),
        tokens_(static_cast<size_t>(max_slots)),
        rules_(static_cast<size_t>(max_slots)) {
    const size_t rows = static_cast<size_t>(max_slots) + 4;
    const auto device_memory = [&](Buffer& buffer, size_t num_bytes) {
      buffer = Must(Buffer::Allocate(device, "test", num_bytes));
    };
    device_memory(logits_, rows * static_cast<size_t>(vocab_size) * sizeof(float));
    device_memory(device_tokens_,
                  static_cast<size_t>(max_slots) * static_cast<size_t>(max_seq_len) * 4);
    device_memory(num_tokens_, static_cast<size_t>(max_slots) * 4);
    device_memory(row_slots_, rows * 4);
    results_ = Must(PinnedBuffer::Allocate(device, rows * 12));
    MustCuda(cudaDeviceSynchronize());  // the zeroing
    params_ = {.row_slots = reinterpret_cast<int32_t*>(row_slots_.data()),
               .logits = reinterpret_cast<float*>(logits_.data()),
               .tokens = reinterpret_cast<int32_t*>(device_tokens_.data()),
               .num_tokens = reinterpret_cast<int32_t*>(num_tokens_.data()),
               .max_seq_len = max_seq_len,
               .ids = reinterpret_cast<int32_t*>(results_.data()),
               .log_probs = reinterpret_cast<float*>(results_.data()) + rows,
               .log_probs_all = reinterpret_cast<float*>(results_.data()) + 2 * rows};
  }

  cudaStream_t handle() { return ops::cuda::AsCuda(stream_).handle(); }
  DeviceSampleParams& params() { return params_; }
  std::vector<TokenId>& tokens(int slot) { return tokens_[static_cast<size_t>(slot)]; }

  void Setup(int slot, const SamplingRule& rule, std::vector<TokenId> tokens) {
    cpu_.Setup(slot, rule, tokens, max_seq_len_);
    Must(gpu_->Setup(slot, rule, tokens, stream_));
    const auto num_tokens = static_cast<int32_t>(tokens.size());
    MustCuda(cudaMemcpyAsync(params_.tokens + static_cast<int64_t>(slot) * max_seq_len_,
                             tokens.data(), tokens.size() * 4, cudaMemcpyHostToDevice, handle()));
    MustCuda(cudaMemcpyAsync(params_.num_tokens + slot, &num_tokens, 4, cudaMemcpyHostToDevice,
                             handle()));
    MustCuda(cudaStreamSynchronize(handle()));
    tokens_[static_cast<size_t>(slot)] = std::move(tokens);
    rules_[static_cast<size_t>(slot)] = rule;
  }

  void Upload(std::span<const int32_t> row_slots, std::span<const float> logits) {
    params_.num_rows = static_cast<int>(row_slots.size());
    MustCuda(cudaMemcpyAsync(row_slots_.data(), row_slots.data(), row_slots.size_bytes(),
                             cudaMemcpyHostToDevice, handle()));
    MustCuda(cudaMemcpyAsync(logits_.data(), logits.data(), logits.size_bytes(),
                             cudaMemcpyHostToDevice, handle()));
  }

  const DeviceSampler& gpu() const { return *gpu_; }
  Sampler& cpu() { return cpu_; }
  int vocab_size() const { return vocab_size_; }

  void Launch() { Must(gpu_->Sample(params_, stream_)); }

  // One step of the slots on both sides; `logits` [rows, vocab_size] is scratch afterwards. Returns
  // how many rows differ, and says so for the first ones.
  int Compare(std::span<const int32_t> row_slots, std::span<float> logits,
              const std::string& what) {
    const bool any_samples = std::any_of(row_slots.begin(), row_slots.end(), [&](int32_t slot) {
      return slot >= 0 && !rules_[static_cast<size_t>(slot)].greedy;
    });
    params_.any_row_samples = any_samples;
    Upload(row_slots, logits);
    for (size_t r = 0; r < row_slots.size(); ++r) {
      params_.ids[r] = kUntouched;
      params_.log_probs[r] = params_.log_probs_all[r] = 77.0F;
    }
    Launch();
    std::vector<SampledToken> want(row_slots.size());
    pool_.ParallelFor(static_cast<int64_t>(row_slots.size()), [&](int64_t row) {
      const auto r = static_cast<size_t>(row);
      if (row_slots[r] >= 0)
        want[r] = cpu_.Sample(row_slots[r], tokens(row_slots[r]),
                              logits.data() + r * static_cast<size_t>(vocab_size_));
    });
    MustCuda(cudaStreamSynchronize(handle()));
    int num_wrong = 0;
    for (size_t r = 0; r < row_slots.size(); ++r) {
      const int slot = row_slots[r];
      if (slot < 0) {
        EXPECT_EQ(params_.ids[r], kUntouched) << what << ", padded row " << r;
        continue;
      }
      const bool right = params_.ids[r] == want[r].id &&
                         std::abs(params_.log_probs[r] - want[r].log_prob) <= 1e-5F &&
                         std::abs(params_.log_probs_all[r] - want[r].log_prob_all) <= 1e-5F;
      if (!right && num_wrong++ < 3)
        ADD_FAILURE() << what << ", row " << r << ": got id " << params_.ids[r] << " log-probs "
                      << params_.log_probs[r] << " " << params_.log_probs_all[r] << ", want "
                      << want[r].id << " " << want[r].log_prob << " " << want[r].log_prob_all
                      << "\n"
                      << Describe(rules_[static_cast<size_t>(slot)], tokens(slot).size());
      tokens(slot).push_back(want[r].id);
      cpu_.Append(slot, want[r].id);
    }
    return num_wrong;
  }

  // That the device's tokens of every slot are those of the host.
  void ExpectSameTokens() {
    std::vector<int32_t> num_tokens(static_cast<size_t>(max_slots_));
    std::vector<int32_t> all(static_cast<size_t>(max_slots_) * static_cast<size_t>(max_seq_len_));
    MustCuda(cudaMemcpy(num_tokens.data(), num_tokens_.data(), num_tokens.size() * 4,
                        cudaMemcpyDeviceToHost));
    MustCuda(cudaMemcpy(all.data(), device_tokens_.data(), all.size() * 4, cudaMemcpyDeviceToHost));
    for (int slot = 0; slot < max_slots_; ++slot) {
      ASSERT_EQ(num_tokens[static_cast<size_t>(slot)], static_cast<int>(tokens(slot).size()))
          << "slot " << slot;
      const auto* begin = all.data() + static_cast<int64_t>(slot) * max_seq_len_;
      ASSERT_EQ(std::vector<TokenId>(begin, begin + tokens(slot).size()), tokens(slot))
          << "slot " << slot;
    }
  }

 private:
  static std::string Describe(const SamplingRule& rule, size_t position) {
    return "greedy " + std::to_string(rule.greedy) + " top_k " + std::to_string(rule.top_k) +
           " top_p " + std::to_string(rule.top_p) + " min_p " + std::to_string(rule.min_p) +
           " typical_p " + std::to_string(rule.typical_p) + " temperature " +
           std::to_string(rule.temperature) + " repetition " +
           std::to_string(rule.repetition_penalty) + " presence " +
           std::to_string(rule.presence_penalty) + " frequency " +
           std::to_string(rule.frequency_penalty) + " position " + std::to_string(position);
  }

  Stream& stream_;
  CpuPool& pool_;
  const int max_slots_;
  const int vocab_size_;
  const int max_seq_len_;
  Sampler cpu_;
  std::unique_ptr<DeviceSampler> gpu_;
  std::vector<std::vector<TokenId>> tokens_;  // [max_slots], as they should be
  std::vector<SamplingRule> rules_;           // [max_slots]
  Buffer logits_, device_tokens_, num_tokens_, row_slots_;
  PinnedBuffer results_;
  DeviceSampleParams params_;
};

inline Stream& TestStream(Device& device) {
  static auto* stream =
      Must(ops::cuda::CudaStream::Create(device,
                                         {.weight_dtype = DType::kBF16,
                                          .dtype = DType::kBF16,
                                          .kv_dtype = DType::kBF16,
                                          .head_dim = 64,
                                          .num_heads = 4,
                                          .num_kv_heads = 4,
                                          .hidden_size = 256,
                                          .intermediate_size = 512},
                                         /*max_num_tokens=*/16, /*max_num_rows=*/16))
          .release();
  return *stream;
}

}  // namespace inflight::decoding
