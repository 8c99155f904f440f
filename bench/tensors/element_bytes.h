// SPDX-License-Identifier: Apache-2.0
// Elements of wire datatypes as the bytes that travel.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "inflight/status.h"

namespace inflight::bench {

int64_t NumElements(const std::vector<int64_t>& shape);

// Bytes of an element; kInvalidArgument of BYTES and of unknown datatypes.
Result<int64_t> ElementSize(std::string_view datatype);

void AppendBytesElement(std::string_view element, std::string& out);
Status AppendZero(std::string_view datatype, std::string& out);
// Integers of the whole range, floats in [0, 1), texts of `string_length` letters and digits.
Status AppendRandom(std::string_view datatype, int string_length, std::mt19937_64& random,
                    std::string& out);
// A number, boolean or text; kInvalidArgument where it does not fit the datatype.
Status AppendJson(std::string_view datatype, const nlohmann::json& value, std::string& out);

}  // namespace inflight::bench
