// SPDX-License-Identifier: Apache-2.0
#include "protocol/http_listener/framing.h"

#include <algorithm>
#include <boost/beast/core/string.hpp>
#include <boost/beast/http/field.hpp>
#include <iterator>
#include <string_view>

namespace inflight::http_listener {
namespace {

namespace beast = boost::beast;
namespace http = boost::beast::http;
using Head = http::header<true, http::fields>;

constexpr size_t kMaxQuoted = 100;  // bytes of a value in an error

// All fields of the name as one list, by RFC 9110, 5.3.
std::string Joined(const Head& head, http::field name) {
  std::string list;
  const auto [begin, end] = head.equal_range(name);
  for (auto it = begin; it != end; ++it) {
    if (it != begin) list.append(", ");
    list.append(it->value().data(), it->value().size());
  }
  return list;
}

std::string_view LastOf(std::string_view list) {
  const size_t comma = list.rfind(',');
  if (comma != std::string_view::npos) list.remove_prefix(comma + 1);
  const size_t begin = list.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  return list.substr(begin, list.find_last_not_of(" \t") + 1 - begin);
}

bool IsChunked(std::string_view coding) {
  return beast::iequals({coding.data(), coding.size()}, "chunked");
}

std::optional<FramingFault> FindHostFault(const Head& head) {
  const auto [begin, end] = head.equal_range(http::field::host);
  if (begin == end && head.version() < 11) return std::nullopt;
  if (begin == end || std::next(begin) != end) {
    return FramingFault{.status = 400,
                        .reason = "Host: got " + std::to_string(std::distance(begin, end)) +
                                  " of them, a request needs one"};
  }
  if (begin->value().find_first_of(" \t") == beast::string_view::npos) return std::nullopt;
  return FramingFault{.status = 400, .reason = "Host: a name has no white space"};  // or was folded
}

// Once and in digits alone: "5, 5" may be read as 5 or refused (RFC 9110, 8.6), and is refused.
std::optional<FramingFault> FindLengthFault(const Head& head) {
  const auto [begin, end] = head.equal_range(http::field::content_length);
  if (begin == end) return std::nullopt;
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  const beast::string_view length = begin->value();
  if (std::next(begin) == end && std::all_of(length.begin(), length.end(), is_digit)) {
    return std::nullopt;
  }
  const std::string lengths = Joined(head, http::field::content_length);
  return FramingFault{.status = 400,
                      .reason = "Content-Length: got '" + lengths.substr(0, kMaxQuoted) +
                                "', a request has one, of digits"};
}

}  // namespace

std::optional<FramingFault> FindFramingFault(const Head& head) {
  if (auto fault = FindHostFault(head)) return fault;
  if (auto fault = FindLengthFault(head)) return fault;
  if (head.count(http::field::transfer_encoding) == 0) return std::nullopt;
  const std::string codings = Joined(head, http::field::transfer_encoding);
  const auto fault = [&](int status, const std::string& rule) {
    return FramingFault{
        .status = status,
        .reason = "Transfer-Encoding: got '" + codings.substr(0, kMaxQuoted) + "', " + rule};
  };
  if (head.version() < 11) return fault(400, "which HTTP/1.0 does not have; send Content-Length");
  if (head.count(http::field::content_length) > 0)
    return fault(400, "and Content-Length besides; send one of the two");
  if (!IsChunked(LastOf(codings))) return fault(400, "must end in chunked");
  if (!IsChunked(codings)) return fault(501, "chunked alone is supported");
  return std::nullopt;
}

}  // namespace inflight::http_listener
