// SPDX-License-Identifier: Apache-2.0
// Which row of a table of endpoints a request means, by its method and path.
//
// A row's path is a template: "/v2/models/{model}[/versions/{version}]/infer". {name} stands for a
// whole segment, which is not empty; a part in [] may be left out. Paths match as a whole and
// case-sensitively, without percent-decoding; a trailing slash makes another path.
//
// A path that has GET has HEAD too, whose answer is the same without its body, and every path has
// OPTIONS, whose answer is its methods; of a contract that has neither (Triton's), a router is made
// with Implied::kNothing.
//
// Cost of a look-up: the path is split once and compared with the templates that have as many
// segments; nothing is allocated.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "protocol/http_listener/http_message.h"

namespace inflight::http_listener {

using Methods = uint8_t;  // a set of these
inline constexpr Methods kGet = 1;
inline constexpr Methods kPost = 2;
inline constexpr Methods kDelete = 4;
inline constexpr Methods kPut = 8;
inline constexpr Methods kHead = 16;
inline constexpr Methods kOptions = 32;
inline constexpr Methods kAllMethods = kGet | kPost | kDelete | kPut | kHead | kOptions;

bool Allows(Methods methods, std::string_view method);
std::string MethodNames(Methods methods);  // "GET, POST"

// The answer to OPTIONS: no body, and `Allow`.
HttpResponse AnswerOptions(Methods methods);

// What rows allow beside what they list.
enum class Implied : uint8_t { kHeadAndOptions, kNothing };

// What a path has in place of the names of its template.
class PathValues {
 public:
  // Empty where the path left the part of this name out. Views into the path.
  std::string_view Of(std::string_view name) const;

 private:
  friend class Router;
  static constexpr size_t kMaxValues = 4;

  std::array<std::pair<std::string_view, std::string_view>, kMaxValues> values_;
  size_t size_ = 0;
};

// Threads: constant.
class Router {
 public:
  struct Row {
    std::string_view path;  // outlives the router
    Methods methods;
  };
  struct Match {
    size_t row;
    bool allows_method;
    PathValues values;
    Methods methods;  // of all rows that the path matches
  };

  // A template that is not as above is a defect of the program.
  explicit Router(const std::vector<Row>& rows, Implied implied = Implied::kHeadAndOptions);

  // Of any table whose rows have `path` and `methods`.
  template <typename Rows>
  static Router Of(const Rows& rows, Implied implied = Implied::kHeadAndOptions) {
    std::vector<Row> plain;
    for (const auto& row : rows) plain.push_back({row.path, row.methods});
    return Router(plain, implied);
  }

  // The first row that matches both, else the first that matches the path.
  std::optional<Match> Find(std::string_view method, std::string_view path) const;

 private:
  static constexpr size_t kMaxSegments = 8;
  using Segments = std::array<std::string_view, kMaxSegments>;

  // One way to write a row's path.
  struct Pattern {
    Segments segments;  // "{name}" for any
    size_t row;
    Methods methods;
  };

  static std::optional<size_t> Split(std::string_view path, Segments& segments);
  static bool Matches(const Pattern& pattern, const Segments& segments, size_t num_segments,
                      PathValues& values);
  void Add(const std::string_view (&parts)[3], size_t row, Methods methods);

  std::array<std::vector<Pattern>, kMaxSegments + 1> by_length_;  // of as many segments
};

}  // namespace inflight::http_listener
