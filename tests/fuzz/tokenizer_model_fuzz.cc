// SPDX-License-Identifier: Apache-2.0
// Any bytes as a tokenizer.model: an error or a tokenizer that encodes and decodes without a fault,
// in chunks as at once. The input's last byte says how many bytes before it are a text to encode.
#include <algorithm>
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
  const size_t text_size = size == 0 ? 0 : std::min<size_t>(data[size - 1], size - 1);
  const size_t model_size = size - std::min<size_t>(size, 1) - text_size;
  const auto tokenizer = Tokenizer::FromSentencePiece(input.substr(0, model_size));
  if (!tokenizer.ok()) return 0;
  std::string_view text = "Hello, w\xC3\xB6rld! 123 \xF0\x9F\x91\x8D\n  x\xE2\x96\x81y";
  if (text_size > 0) text = input.substr(model_size, text_size);
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
