// SPDX-License-Identifier: Apache-2.0
#include "protocol/http_listener/raw_values.h"

#include <cstddef>
#include <deque>
#include <optional>
#include <unordered_map>
#include <utility>

#include "base/letter_case.h"

namespace inflight::http_listener {
namespace {

constexpr std::string_view kBlanks = " \t";

// What stands behind the colon of each field of a name, in the order of the lines; none: it is
// folded.
using Lines = std::unordered_map<std::string, std::deque<std::optional<std::string_view>>>;

std::string_view NextLine(std::string_view& rest) {
  const size_t end = rest.find("\r\n");
  const std::string_view line = rest.substr(0, end);
  rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 2);
  return line;
}

Lines LinesOf(std::string_view head) {
  Lines lines;
  std::optional<std::string_view>* last = nullptr;
  NextLine(head);
  while (!head.empty()) {
    const std::string_view line = NextLine(head);
    if (line.empty()) break;
    if (kBlanks.find(line.front()) != std::string_view::npos) {
      if (last != nullptr) last->reset();
      continue;
    }
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos) continue;
    auto& fields = lines[AsciiLower(line.substr(0, colon))];
    last = &fields.emplace_back(line.substr(colon + 1));
  }
  return lines;
}

std::string WithoutLeadingBlanks(std::string_view value) {
  const size_t begin = value.find_first_not_of(kBlanks);
  return begin == std::string_view::npos ? " " : std::string(value.substr(begin));
}

}  // namespace

std::vector<std::string> RawValues(std::string_view head, const Headers& headers) {
  Lines lines = LinesOf(head);
  std::vector<std::string> values;
  values.reserve(headers.size());
  for (const auto& [name, value] : headers) {
    auto& fields = lines[AsciiLower(name)];
    const bool is_whole = !fields.empty() && fields.front().has_value();
    values.push_back(is_whole ? WithoutLeadingBlanks(*fields.front()) : value);
    if (!fields.empty()) fields.pop_front();
  }
  return values;
}

}  // namespace inflight::http_listener
