// SPDX-License-Identifier: Apache-2.0
// Who shares the blocks of equal prompts: requests of one identity with the same salt
// (docs/reference/scheduling.md, "Prefix reuse").
#pragma once

#include <cstdint>
#include <string_view>

#include "inflight/status.h"
#include "serving/core/request.h"

namespace inflight::serving {

// The request parameter, a text of the client's choice; "" and none are the same.
inline constexpr std::string_view kCacheSalt = "cache_salt";

// The executor's salt: 0 without identity and parameter, else 64 bits of a SHA-256 of both, so that
// nobody finds a text that leads to the blocks of another. kInvalidArgument where the parameter is
// no text, or one of more than 1024 bytes. `contents` is what tells equal ids apart beside both, 32
// bytes of a hash, or empty (contract::PlacePromptTable).
Result<uint64_t> CacheSaltOf(const Request& request, std::string_view contents = {});

}  // namespace inflight::serving
