// SPDX-License-Identifier: Apache-2.0
#include "determinism_cases.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <random>

#include "constants.h"
#include "run_requests.h"

namespace inflight::golden {
namespace {

// All numbers of a request's responses.
struct BitsAnswer : CollectingSink {
  void OnResponse(Response response) override {
    EXPECT_TRUE(response.status.ok()) << response.status.ToString();
    Add(response.context_logits.values);
    // A stream's responses hold as many tokens as were ready: rows are joined here, part by part.
    Append(response.generation_logits.values, &generation);
    for (const TopLogProb& top : response.top_log_probs) {
      top_log_probs.push_back(static_cast<uint32_t>(top.id));
      top_log_probs.push_back(std::bit_cast<uint32_t>(top.log_prob));
    }
    for (const Beam& beam : response.beams) {
      bits.insert(bits.end(), beam.output_ids.begin(), beam.output_ids.end());
      Add(beam.output_log_probs);
      Add({beam.cum_log_prob, beam.score});
      Add(beam.generation_logits.values);
    }
    CollectingSink::OnResponse(std::move(response));
  }

  void Add(const std::vector<float>& values) { Append(values, &bits); }
  static void Append(const std::vector<float>& values, std::vector<uint32_t>* to) {
    for (const float value : values) to->push_back(std::bit_cast<uint32_t>(value));
  }

  std::vector<uint32_t> All() {
    Wait();
    std::vector<uint32_t> all = bits;
    all.insert(all.end(), ids.begin(), ids.end());
    Append(log_probs, &all);
    all.insert(all.end(), generation.begin(), generation.end());
    all.insert(all.end(), top_log_probs.begin(), top_log_probs.end());
    all.push_back(std::bit_cast<uint32_t>(last.cum_log_prob));
    return all;
  }

  std::vector<uint32_t> bits;  // of the prompt's logits and of beams
  std::vector<uint32_t> generation;
  std::vector<uint32_t> top_log_probs;
};

// Greedy, sampled in each way, and beams; of one token, and of several chunks and blocks; some
// begin alike.
std::vector<Request> MakeRequests(int vocab_size) {
  std::mt19937 random(11);
  const auto tokens = [&](size_t count) {
    std::vector<TokenId> ids(count);
    for (TokenId& id : ids) id = static_cast<TokenId>(random() % static_cast<unsigned>(vocab_size));
    return ids;
  };
  const std::vector<TokenId> shared = tokens(40);
  std::vector<Request> requests;
  const auto add = [&](std::vector<TokenId> prompt, SamplingParams sampling, OutputOptions output) {
    Request& request = requests.emplace_back();
    request.input_ids = std::move(prompt);
    request.max_tokens = 30;
    request.streaming = requests.size() % 2 == 0;
    request.sampling = sampling;
    request.output = output;
    request.output.return_log_probs = true;
  };
  const auto after_shared = [&](size_t count) {
    std::vector<TokenId> ids = shared;
    for (const TokenId id : tokens(count)) ids.push_back(id);
    return ids;
  };
  add(after_shared(50), {}, {});
  add(after_shared(3), {.temperature = 0.9F, .top_k = 20, .seed = 5}, {});
  add(tokens(1), {.top_p = 0.8F, .top_p_decay = 0.9F, .seed = 6, .repetition_penalty = 1.2F}, {});
  add(after_shared(21), {.beam_width = 3, .length_penalty = 1}, {.return_generation_logits = true});
  add(tokens(37), {}, {.return_context_logits = true, .return_generation_logits = true});
  add(after_shared(21), {.no_repeat_ngram_size = 2}, {.num_top_log_probs = 5});
  add(tokens(70), {.beam_width = 2, .early_stopping = 0}, {});
  add(tokens(16), {.temperature = 1.3F, .min_p = 0.05F, .seed = 7, .frequency_penalty = 0.3F}, {});
  return requests;
}

struct Run {
  Run(const std::shared_ptr<const model::Engine>& engine, Device& device,
      const ExecutorOptions& options, const std::string& ops)
      : executor(MakeExecutor(engine, device, options, ops)) {}

  std::vector<std::shared_ptr<BitsAnswer>> Enqueue(const std::vector<Request>& requests) const {
    return EnqueueAll<BitsAnswer>(*executor, requests);
  }

  // Of a step so far.
  int MostRows() const {
    std::vector<ExecutorStats> steps;
    executor->TakeIterationStats(&steps);
    int most = 0;
    for (const ExecutorStats& step : steps) most = std::max(most, step.num_scheduled_requests);
    return most;
  }

  std::unique_ptr<Executor> executor;
};

ExecutorOptions Options() {
  return {.max_batch_size = 8,
          .max_kv_tokens = 4096,
          .block_size = kBlockSize,
          .step_time_goal_ms = 60000,
          .deterministic = true};
}

// Nobody starts before as many wait as there are rows: plans do not depend on who comes when.
ExecutorOptions TogetherOptions() {
  ExecutorOptions options = Options();
  options.max_queue_delay_us = 60'000'000;
  return options;
}

}  // namespace

void ExpectSameAnswersInEveryWay(const std::shared_ptr<const model::Engine>& engine,
                                 Device& alone_on, Device& together_on, const std::string& ops,
                                 int num_rows) {
  const std::vector<Request> requests = MakeRequests(engine->config.vocab_size);
  ASSERT_EQ(std::ssize(requests), Options().max_batch_size);
  std::vector<std::vector<uint32_t>> alone;
  {
    ExecutorOptions options = Options();
    options.enable_prefix_reuse = false;
    options.enable_chunked_prefill = false;
    const Run run(engine, alone_on, options, ops);
    for (const Request& request : requests) {
      alone.push_back(run.Enqueue({request}).front()->All());
    }
    EXPECT_EQ(run.MostRows(), 3) << "the three beams";
    EXPECT_EQ(run.executor->stats().kv_blocks_reused, 0);
  }
  const auto expect_same = [&](const std::vector<std::shared_ptr<BitsAnswer>>& answers,
                               const char* what) {
    for (size_t i = 0; i < answers.size(); ++i) {
      EXPECT_TRUE(answers[i]->All() == alone[i]) << "request " << i << ", " << what;
    }
  };
  {
    ExecutorOptions options = TogetherOptions();
    options.max_num_tokens = 2 * kBlockSize + 5;
    options.chunking_policy = ChunkingPolicy::kEqualProgress;
    const Run run(engine, together_on, options, ops);
    expect_same(run.Enqueue(requests), "together in chunks");
    EXPECT_GE(run.MostRows(), num_rows);
    const int64_t reused = run.executor->stats().kv_blocks_reused;
    expect_same(run.Enqueue(requests), "with reused blocks");
    EXPECT_GE(run.executor->stats().kv_blocks_reused, reused + 8);
  }
  for (const bool reuse : {true, false}) {
    ExecutorOptions options = TogetherOptions();
    options.scheduler_policy = SchedulerPolicy::kMaxUtilization;
    options.max_kv_tokens = 16 * kBlockSize;
    options.enable_prefix_reuse = reuse;
    const Run run(engine, together_on, options, ops);
    expect_same(run.Enqueue(requests), "under pressure");
    EXPECT_GE(run.executor->stats().num_pauses, 2);
    EXPECT_GT(run.executor->stats().tokens_recomputed, 0);
  }
}

}  // namespace inflight::golden
