// SPDX-License-Identifier: Apache-2.0
// Oniguruma's Ruby syntax in PCRE2's words. Both read most patterns alike; here are the places
// where they do not (PCRE2's \s takes U+180E, its \w neither marks nor connectors, \h is a blank
// there and a hexadecimal digit here, ...). Classes are written out by a table that is made from
// what the `tokenizers` package matches (pcre2_sets.h).
#include <algorithm>
#include <string>

#include "base/status_macros.h"
#include "tokenizer/pcre2_sets.h"
#include "tokenizer/split_pattern.h"

namespace inflight::tokenizer {
namespace {

constexpr std::string_view kPlainEscapes = "DtnrfvaexAZz";
constexpr std::string_view kPlainGroups[] = {
    "(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?i)", "(?i:"};
constexpr size_t kMaxPatternBytes = 64 * 1024;

class Translator {
 public:
  explicit Translator(std::string_view in) : in_(in) {}

  Result<std::string> Run() {
    if (in_.size() > kMaxPatternBytes) return Refuse("more than 65536 bytes");
    while (pos_ < in_.size()) RETURN_IF_ERROR(Step());
    return std::move(out_);
  }

 private:
  Status Step() {
    const char c = in_[pos_];
    if (c == '\\') return Escape();
    if (in_class_) return ClassChar();
    if (c == '[') {
      in_class_ = true;
      Copy(1);
      if (Rest().starts_with("^")) Copy(1);
      if (Rest().starts_with("]")) return Refuse("] as the first member of a class");
      return Status::Ok();
    }
    if (c == '(') return Group();
    if (c == '{') return Interval();
    Copy(1);
    return Status::Ok();
  }

  Status Escape() {
    if (pos_ + 1 == in_.size()) return Refuse("a trailing backslash");
    const char c = in_[pos_ + 1];
    if (c == 'p' || c == 'P') return Property();
    const char kind = static_cast<char>(c | 0x20);
    if (kind == 's' || kind == 'w' || kind == 'd') {
      if (c == kind || !in_class_) {
        EmitSet(SetOf(SetName(kind)), /*negated=*/c != kind);
      } else if (c == 'S') {
        out_ += "\\S";  // differs for U+180E alone
      } else {
        return Refuse(std::string("\\") + c + " in a class");
      }
    } else if (Alphanumeric(c) && kPlainEscapes.find(c) == std::string_view::npos) {
      return Refuse(std::string("\\") + c);
    } else {
      out_.append(in_.substr(pos_, 2));
    }
    pos_ += 2;
    return Status::Ok();
  }

  // \p{L}, \pL, \P{L}
  Status Property() {
    const bool negated = in_[pos_ + 1] == 'P';
    std::string_view name = Rest().substr(2, 1);
    size_t size = 3;
    if (name == "{") {
      const size_t end = Rest().find('}');
      if (end == std::string_view::npos) return Refuse("\\p{ without }");
      name = Rest().substr(3, end - 3);
      size = end + 1;
    }
    const std::string_view set = SetOf(name);
    if (!set.empty() && !(negated && in_class_)) {
      EmitSet(set, negated);
      pos_ += size;
    } else {
      Copy(size);
    }
    return Status::Ok();
  }

  // Oniguruma's \w has six numbers (U+00B2 ...) that it has not within a class.
  std::string_view SetName(char kind) const {
    if (kind == 'w') return in_class_ ? "[\\w]" : "\\w";
    return kind == 's' ? "\\s" : "\\d";
  }

  // Members of \p{name} or of an escape; empty where PCRE2's own set serves.
  static std::string_view SetOf(std::string_view name) {
    const auto* const set = std::find_if(std::begin(kPcre2Sets), std::end(kPcre2Sets),
                                         [name](const Pcre2Set& s) { return s.name == name; });
    return set == std::end(kPcre2Sets) ? std::string_view() : set->members;
  }

  void EmitSet(std::string_view set, bool negated) {
    if (in_class_) {
      out_ += set;
    } else {
      out_.append(negated ? "[^" : "[").append(set).append("]");
    }
  }

  Status ClassChar() {
    if (in_[pos_] == ']') in_class_ = false;
    if (in_[pos_] == '[') return Refuse("a class within a class");
    if (Rest().starts_with("&&")) return Refuse("&& in a class");
    Copy(1);
    return Status::Ok();
  }

  Status Group() {
    if (!Rest().starts_with("(?") && !Rest().starts_with("(*")) {
      Copy(1);
      return Status::Ok();
    }
    for (const std::string_view group : kPlainGroups) {
      if (Rest().starts_with(group)) {
        Copy(group.size());
        return Status::Ok();
      }
    }
    return Refuse("group " + std::string(Rest().substr(0, 4)));
  }

  // {n}, {n,} and {n,m} read alike; a quantifier behind them does not, nor does {,m}.
  Status Interval() {
    size_t end = pos_ + 1;
    while (end < in_.size() && in_[end] != '}') ++end;
    if (end == in_.size()) return Refuse("{ without }");
    const std::string_view body = in_.substr(pos_ + 1, end - pos_ - 1);
    const char next = end + 1 < in_.size() ? in_[end + 1] : ' ';
    if (body.empty() || body.find_first_not_of("0123456789,") != std::string_view::npos ||
        body.starts_with(",") || next == '+' || next == '?') {
      return Refuse("interval {" + std::string(body) + "}" + next);
    }
    Copy(body.size() + 2);
    return Status::Ok();
  }

  static bool Alphanumeric(char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  }
  std::string_view Rest() const { return in_.substr(pos_); }
  void Copy(size_t n) {
    out_.append(in_.substr(pos_, n));
    pos_ += n;
  }
  Status Refuse(const std::string& what) const {
    return Unimplemented("pattern: " + what + " is not supported, in " +
                         std::string(in_.substr(0, 200)));
  }

  std::string_view in_;
  size_t pos_ = 0;
  bool in_class_ = false;
  std::string out_;
};

}  // namespace

Result<std::string> TranslateRegex(std::string_view pattern) { return Translator(pattern).Run(); }

}  // namespace inflight::tokenizer
