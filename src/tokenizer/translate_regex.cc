// SPDX-License-Identifier: Apache-2.0
// Oniguruma's Ruby syntax in PCRE2's words. Both read most patterns alike; here are the places
// where they do not (PCRE2's \s takes U+180E, its \w neither marks nor connectors, \h is a blank
// there and a hexadecimal digit here, ...).
#include <initializer_list>
#include <string>

#include "tokenizer/split_pattern.h"

namespace inflight::tokenizer {
namespace {

constexpr std::string_view kBlanks =
    R"(\x{9}-\x{d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
// Sets are what stands between [ and ]. To PCRE2's own (10.42 knows Unicode 14) they add what
// Unicode 15 and 16 assigned, as Oniguruma has it.
constexpr std::string_view kNewUppercase =
    R"(\x{1c89}\x{a7cb}-\x{a7cc}\x{a7da}\x{a7dc}\x{10d50}-\x{10d65})";
constexpr std::string_view kNewLowercase =
    R"(\x{1c8a}\x{a7cd}\x{a7db}\x{10d70}-\x{10d85}\x{1df25}-\x{1df2a})";
constexpr std::string_view kNewModifierLetters =
    R"(\x{10d4e}\x{10d6f}\x{16d40}-\x{16d42}\x{16d6b}-\x{16d6c}\x{1e030}-\x{1e06d}\x{1e4eb})";
constexpr std::string_view kNewOtherLetters =
    R"(\x{105c0}-\x{105f3}\x{10d4a}-\x{10d4d}\x{10d4f}\x{10ec2}-\x{10ec4}\x{1123f}-\x{11240})"
    R"(\x{11380}-\x{11389}\x{1138b}\x{1138e}\x{11390}-\x{113b5}\x{113b7}\x{113d1}\x{113d3})"
    R"(\x{11bc0}-\x{11be0}\x{11f02}\x{11f04}-\x{11f10}\x{11f12}-\x{11f33}\x{1342f})"
    R"(\x{13441}-\x{13446}\x{13460}-\x{143fa}\x{16100}-\x{1611d}\x{16d43}-\x{16d6a}\x{18cff})"
    R"(\x{1b132}\x{1b155}\x{1e4d0}-\x{1e4ea}\x{1e5d0}-\x{1e5ed}\x{1e5f0}\x{2b739})"
    R"(\x{2ebf0}-\x{2ee5d}\x{31350}-\x{323af})";
constexpr std::string_view kMarks =
    R"(\p{M})"
    R"(\x{897}\x{cf3}\x{ece}\x{10d69}-\x{10d6d}\x{10efc}-\x{10eff}\x{11241})"
    R"(\x{113b8}-\x{113c0}\x{113c2}\x{113c5}\x{113c7}-\x{113ca}\x{113cc}-\x{113d0}\x{113d2})"
    R"(\x{113e1}-\x{113e2}\x{11f00}-\x{11f01}\x{11f03}\x{11f34}-\x{11f3a}\x{11f3e}-\x{11f42})"
    R"(\x{11f5a}\x{13440}\x{13447}-\x{13455}\x{1611e}-\x{1612f}\x{1e08f}\x{1e4ec}-\x{1e4ef})"
    R"(\x{1e5ee}-\x{1e5ef})";
constexpr std::string_view kDigits =
    R"(\p{Nd})"
    R"(\x{10d40}-\x{10d49}\x{116d0}-\x{116e3}\x{11bf0}-\x{11bf9}\x{11f50}-\x{11f59})"
    R"(\x{16130}-\x{16139}\x{16d70}-\x{16d79}\x{1ccf0}-\x{1ccf9}\x{1e4f0}-\x{1e4f9})"
    R"(\x{1e5f1}-\x{1e5fa})";
constexpr std::string_view kOtherNumbers = R"(\p{N}\x{1d2c0}-\x{1d2d3})";
constexpr std::string_view kOtherWordChars =
    R"(\p{Nl}\p{Pc}\x{b2}\x{b3}\x{b9}\x{bc}-\x{be}\x{24b6}-\x{24e9}\x{1f130}-\x{1f149})"
    R"(\x{1f150}-\x{1f169}\x{1f170}-\x{1f189})";
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
        EmitSet(SetOf({&kind, 1}), /*negated=*/c != kind);
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
    const std::string set = SetOf(name);
    if (!set.empty() && !(negated && in_class_)) {
      EmitSet(set, negated);
      pos_ += size;
    } else {
      Copy(size);
    }
    return Status::Ok();
  }

  // Members of \p{name}, \s, \w or \d; empty where PCRE2's own set serves.
  static std::string SetOf(std::string_view name) {
    const auto join = [](std::initializer_list<std::string_view> parts) {
      std::string set;
      for (const std::string_view part : parts) set += part;
      return set;
    };
    if (name == "s") return std::string(kBlanks);
    if (name == "d" || name == "Nd") return std::string(kDigits);
    if (name == "N") return join({kDigits, kOtherNumbers});
    if (name == "M") return std::string(kMarks);
    if (name == "Lu") return join({"\\p{Lu}", kNewUppercase});
    if (name == "Ll") return join({"\\p{Ll}", kNewLowercase});
    if (name == "Lm") return join({"\\p{Lm}", kNewModifierLetters});
    if (name == "Lo") return join({"\\p{Lo}", kNewOtherLetters});
    if (name == "L") {
      return join({"\\p{L}", kNewUppercase, kNewLowercase, kNewModifierLetters, kNewOtherLetters});
    }
    if (name == "w") return join({SetOf("L"), kMarks, kDigits, kOtherWordChars});
    return {};
  }

  void EmitSet(const std::string& set, bool negated) {
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
