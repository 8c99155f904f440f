// SPDX-License-Identifier: Apache-2.0
// Any bytes as a tokenizer.json: an error or a tokenizer that encodes and decodes without a fault,
// in chunks as at once. The input may end in a text to encode, behind a byte 0xFF.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "tokenizer/tokenizer.h"

namespace {

using inflight::TokenId;
using namespace inflight::tokenizer;  // NOLINT(google-build-using-namespace)

void Require(bool condition) {
  if (!condition) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t split = std::min(input.find('\xFF'), input.size());
  const auto tokenizer = Tokenizer::FromJson(input.substr(0, split));
  if (!tokenizer.ok()) return 0;
  std::string_view text = "Hello, w\xC3\xB6rld! 123 \xF0\x9F\x91\x8D\n  x\xE2\x96\x81y";
  if (split < input.size()) text = input.substr(split + 1);
  const auto ids = (*tokenizer)->Encode(text, /*add_special_tokens=*/true);
  if (!ids.ok()) return 0;
  for (const bool skip_special : {false, true}) {
    const std::string whole = (*tokenizer)->Decode(*ids, skip_special);
    Require((*tokenizer)->Encode(whole, false).status().message().find("UTF-8") ==
            std::string::npos);
    Detokenizer detokenizer(*tokenizer, skip_special);
    std::string joined;
    for (const TokenId id : *ids) joined += detokenizer.Append({&id, 1});
    joined += detokenizer.Finish();
    Require(joined == whole);
  }
  return 0;
}
