// SPDX-License-Identifier: Apache-2.0
#include "protocol/http_listener/router.h"

#include <algorithm>

#include "base/check.h"

namespace inflight::http_listener {
namespace {

constexpr std::pair<std::string_view, Methods> kMethods[] = {
    {"GET", kGet}, {"HEAD", kHead},     {"POST", kPost},
    {"PUT", kPut}, {"DELETE", kDelete}, {"OPTIONS", kOptions}};

bool IsName(std::string_view segment) { return segment.starts_with('{'); }

Methods WithImplied(Methods methods, Implied implied) {
  if (implied == Implied::kNothing) return methods;
  if ((methods & kGet) != 0) methods |= kHead;
  return methods | kOptions;
}

}  // namespace

bool Allows(Methods methods, std::string_view method) {
  for (const auto& [name, bit] : kMethods) {
    if (name == method) return (methods & bit) != 0;
  }
  return false;
}

std::string MethodNames(Methods methods) {
  std::string names;
  for (const auto& [name, bit] : kMethods) {
    if ((methods & bit) != 0) names.append(names.empty() ? "" : ", ").append(name);
  }
  return names;
}

HttpResponse AnswerOptions(Methods methods) {
  return {.status = 204, .headers = {{"Allow", MethodNames(methods)}}};
}

std::string_view PathValues::Of(std::string_view name) const {
  for (size_t i = 0; i < size_; ++i) {
    if (values_[i].first == name) return values_[i].second;
  }
  return {};
}

Router::Router(const std::vector<Row>& rows, Implied implied) {
  for (size_t i = 0; i < rows.size(); ++i) {
    const Methods methods = WithImplied(rows[i].methods, implied);
    const std::string_view path = rows[i].path;
    const size_t open = std::min(path.find('['), path.size());
    const size_t close = std::min(path.find(']'), path.size());
    Add({path.substr(0, open), {}, path.substr(std::min(close + 1, path.size()))}, i, methods);
    if (open == path.size()) continue;
    CHECK_LT(open, close);
    Add({path.substr(0, open), path.substr(open + 1, close - open - 1), path.substr(close + 1)}, i,
        methods);
  }
}

void Router::Add(const std::string_view (&parts)[3], size_t row, Methods methods) {
  Pattern pattern{.segments = {}, .row = row, .methods = methods};
  size_t num_segments = 0;
  size_t num_names = 0;
  for (const std::string_view part : parts) {
    Segments segments;
    const auto count = part.empty() ? 0 : Split(part, segments);
    CHECK(count.has_value());
    for (size_t i = 0; i < *count; ++i) {
      CHECK_LT(num_segments, kMaxSegments);
      num_names += IsName(segments[i]) ? 1 : 0;
      pattern.segments[num_segments++] = segments[i];
    }
  }
  CHECK_LE(num_names, PathValues::kMaxValues);
  by_length_[num_segments].push_back(pattern);
}

// The number of segments, of "/" none at all; unset where one is empty or there are more than any
// row has.
std::optional<size_t> Router::Split(std::string_view path, Segments& segments) {
  if (path.empty()) return std::nullopt;
  if (path == "/") return 0;
  size_t num_segments = 0;
  while (path.starts_with('/') && num_segments < kMaxSegments) {
    path.remove_prefix(1);
    const size_t length = std::min(path.find('/'), path.size());
    if (length == 0) return std::nullopt;
    segments[num_segments++] = path.substr(0, length);
    path.remove_prefix(length);
  }
  if (!path.empty()) return std::nullopt;
  return num_segments;
}

bool Router::Matches(const Pattern& pattern, const Segments& segments, size_t num_segments,
                     PathValues& values) {
  values.size_ = 0;
  for (size_t i = 0; i < num_segments; ++i) {
    const std::string_view wanted = pattern.segments[i];
    if (IsName(wanted)) {
      values.values_[values.size_++] = {wanted.substr(1, wanted.size() - 2), segments[i]};
    } else if (segments[i] != wanted) {
      return false;
    }
  }
  return true;
}

std::optional<Router::Match> Router::Find(std::string_view method, std::string_view path) const {
  Segments segments;
  const auto num_segments = Split(path, segments);
  if (!num_segments) return std::nullopt;
  std::optional<Match> found;
  PathValues values;
  for (const Pattern& pattern : by_length_[*num_segments]) {
    if (!Matches(pattern, segments, *num_segments, values)) continue;
    const bool allows_method = Allows(pattern.methods, method);
    if (!found || (allows_method && !found->allows_method)) {
      const Methods before = found ? found->methods : Methods{0};
      found = {pattern.row, allows_method, values, before};
    }
    found->methods |= pattern.methods;
  }
  return found;
}

}  // namespace inflight::http_listener
