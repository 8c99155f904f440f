// SPDX-License-Identifier: Apache-2.0
#include "contract/medusa_choices.h"

#include <algorithm>
#include <charconv>
#include <string>

#include "base/status_macros.h"

namespace inflight::contract {
namespace {

using Lists = std::vector<std::vector<int>>;

// Recursive descent without recursion: lists are two deep.
class ChoicesParser {
 public:
  explicit ChoicesParser(std::string_view text) : text_(text) {}

  Result<Lists> Parse() {
    Lists lists;
    const bool has_outer = HasOuterList();
    if (has_outer) TakeAny("{[");
    do {
      ASSIGN_OR_RETURN(std::vector<int> list, ParseList());
      lists.push_back(std::move(list));
    } while (TakeAny(","));
    if (has_outer && !TakeAny("}]")) return Expected("',' or the end of the list");
    Skip();
    if (at_ < text_.size()) return Expected(has_outer ? "the end" : "',' or the end");
    return lists;
  }

 private:
  Result<std::vector<int>> ParseList() {
    std::vector<int> list;
    if (!TakeAny("{[")) return Expected("a list like {0, 1}");
    if (TakeAny("}]")) return list;
    do {
      Skip();
      int number = 0;
      const char* const begin = text_.data() + at_;
      const auto [end, error] = std::from_chars(begin, text_.data() + text_.size(), number);
      if (error != std::errc()) return Expected("a whole number");
      at_ += static_cast<size_t>(end - begin);
      list.push_back(number);
    } while (TakeAny(","));
    if (!TakeAny("}]")) return Expected("',' or the end of a list");
    return list;
  }

  // Two brackets before the first number.
  bool HasOuterList() const {
    const size_t end = std::min(text_.find_first_of("-0123456789}]"), text_.size());
    return std::ranges::count_if(text_.substr(0, end),
                                 [](char c) { return c == '{' || c == '['; }) > 1;
  }

  void Skip() {
    while (at_ < text_.size() &&
           (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\n' || text_[at_] == '\r'))
      ++at_;
  }

  bool TakeAny(std::string_view characters) {
    Skip();
    if (at_ == text_.size() || characters.find(text_[at_]) == std::string_view::npos) return false;
    ++at_;
    return true;
  }

  Status Expected(std::string_view what) {
    Skip();
    const std::string found =
        at_ < text_.size() ? "'" + std::string(1, text_[at_]) + "'" : "the end";
    return InvalidArgument("medusa_choices: got " + found + " at character " +
                           std::to_string(at_ + 1) + ", " + std::string(what) + " is needed");
  }

  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace

Result<std::vector<std::vector<int>>> ParseMedusaChoices(std::string_view text) {
  return ChoicesParser(text).Parse();
}

}  // namespace inflight::contract
