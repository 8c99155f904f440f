// SPDX-License-Identifier: Apache-2.0
// Values of `parameters { key value { string_value } }`: text that a deployer filled in, or left as
// `${name}`, which means the default. Numbers are read from the front of the text, as upstream
// does.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace inflight::contract {

bool IsUnfilled(std::string_view text);  // blank, or contains "${"

std::optional<int64_t> LeadingInt(std::string_view text);
std::optional<double> LeadingDouble(std::string_view text);

// True true TRUE 1 / False false FALSE 0, nothing else: the `tensorrt_llm` model's parameters.
std::optional<bool> StrictBool(std::string_view text);

// true 1 t y yes / false 0 f n no in any case: add_special_tokens and skip_special_tokens.
std::optional<bool> TokenizerBool(std::string_view text);

}  // namespace inflight::contract
