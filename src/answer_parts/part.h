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

inline bool IsBlank(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

}  // namespace inflight::answer_parts
