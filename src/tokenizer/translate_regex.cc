// SPDX-License-Identifier: Apache-2.0
// Oniguruma's Ruby syntax in PCRE2's words. Both read most patterns alike; here are the places
// where they do not (PCRE2's \s takes U+180E, its \w neither marks nor connectors, \h is a blank
// there and a hexadecimal digit here, ...).
#include <string>

#include "tokenizer/split_pattern.h"

namespace inflight::tokenizer {
namespace {

constexpr std::string_view kBlanks =
    R"(\x{9}-\x{d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
constexpr std::string_view kWordChars =
    R"(\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}\x{b2}\x{b3}\x{b9}\x{bc}-\x{be}\x{24b6}-\x{24e9}\x{1f130}-\x{1f149}\x{1f150}-\x{1f169}\x{1f170}-\x{1f189})";
constexpr std::string_view kPlainEscapes = "dDpPtnrfvaexAZz";
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
    if (c == 's' || c == 'w') {
      const std::string_view set = c == 's' ? kBlanks : kWordChars;
      in_class_ ? Emit(set) : Emit("[", set, "]");
    } else if ((c == 'S' || c == 'W') && !in_class_) {
      Emit("[^", c == 'S' ? kBlanks : kWordChars, "]");
    } else if (c == 'S') {
      Emit("\\S");
    } else if (Alphanumeric(c) && kPlainEscapes.find(c) == std::string_view::npos) {
      return Refuse(std::string("\\") + c);
    } else {
      out_.append(in_.substr(pos_, 2));
    }
    pos_ += 2;
    return Status::Ok();
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
  template <typename... Parts>
  void Emit(const Parts&... parts) {
    (out_.append(parts), ...);
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
