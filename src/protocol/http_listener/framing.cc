// SPDX-License-Identifier: Apache-2.0
#include "protocol/http_listener/framing.h"

#include <algorithm>
#include <boost/beast/core/string.hpp>
#include <boost/beast/http/field.hpp>
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

// The fields of one name.
struct Fields {
  size_t count = 0;
  beast::string_view first = {};
};

struct Framing {
  Fields hosts, lengths, codings;
};

// In one pass over all fields.
Framing FramingOf(const Head& head) {
  Framing framing;
  for (const auto& field : head) {
    Fields* fields = nullptr;
    if (field.name() == http::field::host) fields = &framing.hosts;
    if (field.name() == http::field::content_length) fields = &framing.lengths;
    if (field.name() == http::field::transfer_encoding) fields = &framing.codings;
    if (fields != nullptr && fields->count++ == 0) fields->first = field.value();
  }
  return framing;
}

std::optional<FramingFault> FindHostFault(const Head& head, const Fields& hosts) {
  if (hosts.count == 0 && head.version() < 11) return std::nullopt;
  if (hosts.count != 1) {
    return FramingFault{
        .status = 400,
        .reason = "Host: got " + std::to_string(hosts.count) + " of them, a request needs one"};
  }
  if (hosts.first.find_first_of(" \t") == beast::string_view::npos) return std::nullopt;
  return FramingFault{.status = 400, .reason = "Host: a name has no white space"};  // or was folded
}

// Once and in digits alone: "5, 5" may be read as 5 or refused (RFC 9110, 8.6), and is refused.
std::optional<FramingFault> FindLengthFault(const Head& head, const Fields& lengths) {
  if (lengths.count == 0) return std::nullopt;
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  if (lengths.count == 1 && std::all_of(lengths.first.begin(), lengths.first.end(), is_digit)) {
    return std::nullopt;
  }
  const std::string all = Joined(head, http::field::content_length);
  return FramingFault{.status = 400,
                      .reason = "Content-Length: got '" + all.substr(0, kMaxQuoted) +
                                "', a request has one, of digits"};
}

}  // namespace

std::optional<FramingFault> FindFramingFault(const Head& head) {
  const Framing framing = FramingOf(head);
  if (auto fault = FindHostFault(head, framing.hosts)) return fault;
  if (auto fault = FindLengthFault(head, framing.lengths)) return fault;
  if (framing.codings.count == 0) return std::nullopt;
  const std::string codings = Joined(head, http::field::transfer_encoding);
  const auto fault = [&](int status, const std::string& rule) {
    return FramingFault{
        .status = status,
        .reason = "Transfer-Encoding: got '" + codings.substr(0, kMaxQuoted) + "', " + rule};
  };
  if (head.version() < 11) return fault(400, "which HTTP/1.0 does not have; send Content-Length");
  if (framing.lengths.count > 0)
    return fault(400, "and Content-Length besides; send one of the two");
  if (!IsChunked(LastOf(codings))) return fault(400, "must end in chunked");
  if (!IsChunked(codings)) return fault(501, "chunked alone is supported");
  return std::nullopt;
}

}  // namespace inflight::http_listener
