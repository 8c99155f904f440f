// SPDX-License-Identifier: Apache-2.0
// Any bytes as a guide: an error or a guide, on a random walk through whose masks every token that
// is in a mask is accepted, and no other. The first byte says the kind, the second draws the walk.
#include <cstdint>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "grammar/budget.h"
#include "grammar/compiled_guide.h"
#include "inflight/guide.h"

// What the first automata and masks of a guide set aside.
extern "C" size_t InflightFuzzBaseBytes() { return size_t{64} << 20; }

namespace {

using inflight::GuideSpec;

constexpr uint64_t kSteps = 50'000;  // of compiling, in a build with sanitizers
constexpr int kNumKinds = 6;
constexpr int kMaxTokens = 24;  // of a walk

std::shared_ptr<const inflight::TokenTexts> Tokens() {
  std::vector<std::string> texts;
  for (int byte = 0; byte < 256; ++byte) texts.emplace_back(1, static_cast<char>(byte));
  for (const char* text : {"", "{\"", "\": ", "\",", "}}", "true", "12", "ab", "\\u", "\n ", "é"}) {
    texts.emplace_back(text);
  }
  return inflight::MakeTokenTexts(texts);
}

void CheckWalk(const inflight::Guide& guide, uint32_t seed) {
  std::mt19937 random(seed);
  const auto state = guide.Begin();
  std::vector<uint32_t> mask((static_cast<size_t>(guide.num_tokens()) + 31) / 32);
  for (int step = 0; step < kMaxTokens && state->Mask(mask); ++step) {
    std::vector<inflight::TokenId> allowed;
    for (inflight::TokenId token = 0; token < guide.num_tokens(); ++token) {
      const bool is_in_mask = (mask[static_cast<size_t>(token) / 32] >> (token % 32) & 1) != 0;
      // All tokens at first, then one in sixteen.
      if ((step == 0 || random() % 16 == 0) && state->Clone()->Accept(token) != is_in_mask) abort();
      if (is_in_mask) allowed.push_back(token);
    }
    if (allowed.empty()) {
      if (!state->CanEnd()) abort();  // a text that can neither end nor go on
      return;
    }
    if (!state->Accept(allowed[random() % allowed.size()])) abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto& tokens = *new std::shared_ptr<const inflight::TokenTexts>(Tokens());
  if (size < 2) return 0;
  const GuideSpec spec = {
      .kind = static_cast<GuideSpec::Kind>(data[0] % kNumKinds),
      .text = std::string(reinterpret_cast<const char*>(data + 2), size - 2),
      .begins_after = data[0] >= 128 ? "</think>" : "",
  };
  const auto made =
      inflight::grammar::CompileGuide(spec, tokens, inflight::grammar::Budget(kSteps));
  if (made.ok()) CheckWalk(**made, data[1]);
  return 0;
}
