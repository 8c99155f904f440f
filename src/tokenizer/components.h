// SPDX-License-Identifier: Apache-2.0
// Readers of the components of a tokenizer.json. Each takes the component's object; kUnimplemented
// names a kind or an option that is not supported, kInvalidArgument a field that is wrong.
#pragma once

#include <vector>

#include "tokenizer/decoder.h"
#include "tokenizer/definition.h"
#include "tokenizer/json.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/pre_tokenizer.h"

namespace inflight::tokenizer {

Result<std::vector<NormalizerStep>> ReadNormalizer(const JsonObject& json);
Result<std::vector<PreTokenizerStep>> ReadPreTokenizer(const JsonObject& json);
Result<std::vector<DecoderStep>> ReadDecoder(const JsonObject& json);
Result<std::vector<TemplatePart>> ReadPostProcessor(const JsonObject& json);

}  // namespace inflight::tokenizer
