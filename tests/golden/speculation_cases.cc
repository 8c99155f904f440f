// SPDX-License-Identifier: Apache-2.0
#include "speculation_cases.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

namespace inflight::golden {

std::vector<Request> RequestsOfAllKinds(int vocab_size) {
  Prompts prompts(vocab_size);
  std::vector<Request> requests;
  for (int kind = 0; kind < 14; ++kind) {
    for (const bool sampled : {false, true}) {
      Request request;
      request.input_ids = prompts.Periodic(3 + kind % 4, 24 + kind);
      request.max_tokens = 48;
      request.streaming = kind % 2 == (sampled ? 0 : 1);
      request.output.return_log_probs = kind % 3 != 0;
      SamplingParams& s = request.sampling;
      if (sampled) {
        s.seed = static_cast<uint64_t>(100 + kind);
        s.temperature = 0.4F;
        if (kind % 3 != 1) s.top_k = 8;
        if (kind % 3 != 0) s.top_p = 0.9F;
      }
      const std::vector<TokenId>& ids = request.input_ids;
      switch (kind) {
        case 1:
          s.repetition_penalty = 1.3F;
          break;
        case 2:
          s.presence_penalty = 0.2F, s.frequency_penalty = 0.1F;
          break;
        case 3:
          request.end_ids = {ids[0], ids[1]};
          break;
        case 4:
          request.end_ids = {ids[2]}, s.min_tokens = 7;
          break;
        case 5:
          request.stop_words = {{ids[1], ids[2]}, {ids[0]}};
          break;
        case 6:
          request.bad_words = {{ids[0]}, {ids[1], ids[2]}};
          break;
        case 7:
          s.no_repeat_ngram_size = 6;
          break;
        case 8:
          request.output.num_top_log_probs = 3;
          break;
        case 9:
          request.output.return_generation_logits = true;
          request.end_ids = {ids[2]}, s.min_tokens = 5;
          break;
        case 10:
          request.output.return_context_logits = true;
          break;
        case 11: {
          auto bias = std::make_shared<std::vector<float>>(static_cast<size_t>(vocab_size), 0.0F);
          (*bias)[static_cast<size_t>(ids[0])] = 2.0F;
          request.embedding_bias = bias;
          break;
        }
        case 12:
          s.num_return_sequences = 2;
          if (sampled) s.top_k = {}, s.top_p = 0.95F, s.top_p_decay = 0.9F, s.top_p_min = 0.3F;
          break;
        case 13:
          request.max_tokens = sampled ? 1 : 2;
          break;
        default:
          break;
      }
      requests.push_back(std::move(request));
    }
  }
  return requests;
}

void ExpectEqual(const RowsSink& actual, const RowsSink& expected, size_t i) {
  EXPECT_TRUE(actual.last.status.ok()) << actual.last.status.ToString();
  ExpectSameEnd(actual, expected, i);
}

void ExpectSameEnd(const RowsSink& actual, const RowsSink& expected, size_t i) {
  SCOPED_TRACE("request " + std::to_string(i));
  EXPECT_EQ(actual.last.status, expected.last.status);
  EXPECT_EQ(actual.last.finish_reason, expected.last.finish_reason);
  EXPECT_EQ(actual.ids, expected.ids);
  EXPECT_EQ(actual.log_probs, expected.log_probs);
  EXPECT_EQ(actual.last.cum_log_prob, expected.last.cum_log_prob);
  EXPECT_EQ(actual.logits, expected.logits);
  EXPECT_EQ(actual.context, expected.context);
  ASSERT_EQ(actual.top.size(), expected.top.size());
  for (size_t t = 0; t < actual.top.size(); ++t) {
    EXPECT_EQ(actual.top[t].id, expected.top[t].id);
    EXPECT_EQ(actual.top[t].log_prob, expected.top[t].log_prob);
  }
}

void ExpectAllEqual(const std::vector<Request>& requests, const Sinks& actual,
                    const Sinks& expected) {
  ASSERT_EQ(actual.size(), requests.size());
  for (size_t i = 0; i < requests.size(); ++i)
    if (requests[i].sampling.num_return_sequences.value_or(1) == 1)
      ExpectEqual(*actual[i], *expected[i], i);
}

}  // namespace inflight::golden
