// SPDX-License-Identifier: Apache-2.0
#include "protocol/grpc_listener/wire.h"

#include <charconv>

namespace inflight::grpc_listener {
namespace {

constexpr size_t kMaxTimeoutDigits = 8;

std::optional<std::chrono::nanoseconds> UnitOf(char letter) {
  using namespace std::chrono_literals;
  switch (letter) {
    case 'H':
      return 1h;
    case 'M':
      return 1min;
    case 'S':
      return 1s;
    case 'm':
      return 1ms;
    case 'u':
      return 1us;
    case 'n':
      return 1ns;
    default:
      return std::nullopt;
  }
}

}  // namespace

Prefix MakePrefix(bool is_compressed, uint32_t num_bytes) {
  return {static_cast<char>(is_compressed ? 1 : 0), static_cast<char>(num_bytes >> 24),
          static_cast<char>(num_bytes >> 16), static_cast<char>(num_bytes >> 8),
          static_cast<char>(num_bytes)};
}

uint32_t LengthOf(const Prefix& prefix) {
  uint32_t length = 0;
  for (size_t i = 1; i < kPrefixBytes; ++i) length = length << 8 | static_cast<uint8_t>(prefix[i]);
  return length;
}

// 8 digits of hours are 3.6e20 ns: more than fit, and more than any call lasts.
std::optional<std::chrono::nanoseconds> ParseTimeout(std::string_view text) {
  if (text.size() < 2 || text.size() > kMaxTimeoutDigits + 1) return std::nullopt;
  const auto unit = UnitOf(text.back());
  int64_t count = 0;
  const char* const end = text.data() + text.size() - 1;
  if (text.front() == '-' || !unit || std::from_chars(text.data(), end, count).ptr != end) {
    return std::nullopt;
  }
  constexpr auto kLongest = std::chrono::nanoseconds(std::chrono::hours(24 * 365 * 10));
  return count > kLongest / *unit ? kLongest : *unit * count;
}

std::string PercentEncode(std::string_view text) {
  constexpr char kHex[] = "0123456789ABCDEF";
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    const auto byte = static_cast<uint8_t>(c);
    if (byte >= ' ' && byte <= '~' && byte != '%') {
      out += c;
    } else {
      out += {'%', kHex[byte >> 4], kHex[byte & 15]};
    }
  }
  return out;
}

std::optional<Coding> ParseCoding(std::string_view name) {
  for (const Coding coding : {Coding::kIdentity, Coding::kGzip, Coding::kDeflate}) {
    if (name == NameOf(coding)) return coding;
  }
  return std::nullopt;
}

const char* NameOf(Coding coding) {
  switch (coding) {
    case Coding::kIdentity:
      return "identity";
    case Coding::kGzip:
      return "gzip";
    case Coding::kDeflate:
      return "deflate";
  }
  return "identity";
}

std::vector<Coding> ParseAcceptedCodings(std::string_view list) {
  std::vector<Coding> codings;
  while (!list.empty()) {
    const size_t comma = list.find(',');
    std::string_view name = list.substr(0, comma);
    list = comma == std::string_view::npos ? std::string_view() : list.substr(comma + 1);
    while (name.starts_with(' ')) name.remove_prefix(1);
    while (name.ends_with(' ')) name.remove_suffix(1);
    const auto coding = ParseCoding(name);
    if (coding && *coding != Coding::kIdentity) codings.push_back(*coding);
  }
  return codings;
}

}  // namespace inflight::grpc_listener
