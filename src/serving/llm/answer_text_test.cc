// SPDX-License-Identifier: Apache-2.0
#include "serving/llm/answer_text.h"

#include <gtest/gtest.h>
#include <malloc.h>

#include <cstddef>
#include <string>

#include "serving/testing/test_models.h"

namespace inflight::serving {
namespace {

size_t BytesInUse() {
  const struct mallinfo2 info = mallinfo2();
  return info.uordblks + info.hblkhd;
}

// One request has up to 1024 sequences, and words as long as its body. A sanitizer's allocator is
// not asked, and says 0.
TEST(AnswerText, SequencesShareTheirStopWords) {
  constexpr size_t kWordBytes = size_t{1} << 20;
  const TestModels models;
  const size_t before = BytesInUse();
  AnswerText text({.tokenizer = models.postprocessing->tokenizer(),
                   .prompt = {},
                   .num_sequences = 64,
                   .stop_words = {std::string(kWordBytes, 'x'), "bc"},
                   .trims_stop_words = true});
  EXPECT_LT(BytesInUse(), before + 8 * kWordBytes);
  for (const int sequence : {0, 63}) {
    inflight::Response response;
    response.sequence_index = sequence;
    response.is_sequence_final = true;
    response.output_ids = ByteIds("abcd");
    EXPECT_EQ(text.Append(response).front(), "a");
    EXPECT_EQ(text.stop_word(sequence), "bc");
  }
  EXPECT_FALSE(text.HasStopped(1));
}

TEST(AnswerText, TokensBehindAStopWordAreNotRead) {
  const TestModels models;
  AnswerText text({.tokenizer = models.postprocessing->tokenizer(),
                   .prompt = {},
                   .num_sequences = 1,
                   .stop_words = {"cd"},
                   .trims_stop_words = true});
  inflight::Response response;
  response.output_ids = ByteIds("abc");
  EXPECT_EQ(text.Append(response).front(), "ab");
  EXPECT_EQ(text.num_read(), 3U);
  response.output_ids = ByteIds("defg");  // of one step with drafts
  EXPECT_EQ(text.Append(response).front(), "");
  EXPECT_EQ(text.num_read(), 1U);
  EXPECT_TRUE(text.HasStopped(0));
}

}  // namespace
}  // namespace inflight::serving
