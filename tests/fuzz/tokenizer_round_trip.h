// SPDX-License-Identifier: Apache-2.0
// What the fuzzers of tokenizer files ask of every tokenizer that could be read.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/check.h"
#include "inflight/tokenizer.h"

namespace inflight::tokenizer {

// For inputs that bring no text of their own.
inline constexpr std::string_view kSampleText =
    "Hello, w\xC3\xB6rld! 123 \xF0\x9F\x91\x8D\n  x\xE2\x96\x81y";

// Decodes what `text` is encoded to, in chunks as at once. Texts need not be encodable.
inline void CheckRoundTrip(const std::shared_ptr<const Tokenizer>& tokenizer,
                           std::string_view text) {
  const auto ids = tokenizer->Encode(text, /*add_special_tokens=*/true);
  if (!ids.ok()) return;
  for (const TokenId id : *ids)
    CHECK(tokenizer->TokenBytes(id).empty() || !tokenizer->IsSpecial(id));
  for (const bool skip_special : {false, true}) {
    const std::string whole = tokenizer->Decode(*ids, skip_special);
    CHECK(tokenizer->Encode(whole, false).status().message().find("UTF-8") == std::string::npos);
    Detokenizer detokenizer(tokenizer, skip_special);
    std::string joined;
    for (const TokenId id : *ids) joined += detokenizer.Append({&id, 1});
    joined += detokenizer.Finish();
    CHECK(joined == whole);
  }
}

}  // namespace inflight::tokenizer
