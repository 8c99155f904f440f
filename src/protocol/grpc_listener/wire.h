// SPDX-License-Identifier: Apache-2.0
// The texts and bytes of gRPC over HTTP/2 that are not HTTP/2's own. Source: "gRPC over HTTP2", a
// document of the gRPC project.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "protocol/grpc_listener/rpc.h"

namespace inflight::grpc_listener {

// A message's prefix: a byte that says whether it is compressed, then its length, big-endian.
inline constexpr size_t kPrefixBytes = 5;
using Prefix = std::array<char, kPrefixBytes>;
Prefix MakePrefix(bool is_compressed, uint32_t num_bytes);
uint32_t LengthOf(const Prefix& prefix);

// "100m" -> 100 ms. Up to 8 digits and a unit of H M S m u n; nothing for other texts.
std::optional<std::chrono::nanoseconds> ParseTimeout(std::string_view text);

// grpc-message: bytes outside of ' ' to '~', and '%', become %XX.
std::string PercentEncode(std::string_view text);

// "gzip" -> Coding::kGzip; nothing for what is not supported.
std::optional<Coding> ParseCoding(std::string_view name);
const char* NameOf(Coding coding);
// "identity, gzip" -> {kGzip}; unknown ones are left out.
std::vector<Coding> ParseAcceptedCodings(std::string_view list);

}  // namespace inflight::grpc_listener
