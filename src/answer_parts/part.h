// SPDX-License-Identifier: Apache-2.0
// What the text of a model's answer is made of: what it reasons, what it says, and the calls of
// tools that it asks for.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace inflight::answer_parts {

struct Part {
  enum class Kind {
    kReasoning,
    kContent,
    kCall,       // begins a call; the text is the function's name
    kArguments,  // more of the last call's arguments: JSON, as the model wrote it
  };

  Kind kind;
  std::string text;

  bool operator==(const Part&) const = default;
};

// In the order of the text. Neighbours of one kind are one part, but for calls.
class Parts {
 public:
  void Add(Part::Kind kind, std::string_view text) {
    if (kind != Part::Kind::kCall && text.empty()) return;
    if (kind != Part::Kind::kCall && !items_.empty() && items_.back().kind == kind) {
      items_.back().text.append(text);
    } else {
      items_.push_back({kind, std::string(text)});
    }
  }
  void Add(Part::Kind kind, char c) { Add(kind, std::string_view(&c, 1)); }

  const std::vector<Part>& items() const { return items_; }
  void clear() { items_.clear(); }

 private:
  std::vector<Part> items_;
};

constexpr std::string_view kBlankBytes = " \n\r\t";

inline bool IsBlank(char c) { return kBlankBytes.find(c) != std::string_view::npos; }
inline bool IsBlank(std::string_view text) {
  return text.find_first_not_of(kBlankBytes) == std::string_view::npos;
}
inline std::string_view WithoutBlanksBehind(std::string_view text) {
  return text.substr(0, text.find_last_not_of(kBlankBytes) + 1);  // npos + 1 = 0
}
inline std::string_view Trimmed(std::string_view text) {
  text = WithoutBlanksBehind(text);
  return IsBlank(text) ? std::string_view() : text.substr(text.find_first_not_of(kBlankBytes));
}

}  // namespace inflight::answer_parts
