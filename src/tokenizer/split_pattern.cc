// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/split_pattern.h"

#include <algorithm>

#include "base/status_macros.h"
#include "tokenizer/pcre2_pattern.h"
#include "tokenizer/published_patterns.h"
#include "tokenizer/script_runs.h"
#include "tokenizer/unicode.h"

namespace inflight::tokenizer {
namespace {

constexpr uint8_t kSplitFlags = kLetter | kNumber | kSpace;

// Reads runs of one class; the rules share it.
class Cursor {
 public:
  explicit Cursor(std::string_view text)
      : table_(CharTable::Get()), begin_(text.data()), end_(begin_ + text.size()) {}

  const char* end() const { return end_; }

  // Class of the character at `p` (p < end): kLetter, kNumber, kSpace or 0 for all others.
  uint8_t Class(const char* p, uint32_t* size) const {
    return table_.FlagsAt(p, size) & kSplitFlags;
  }
  // One past the run of characters of `flags` that starts at `p`.
  const char* Run(const char* p, uint8_t flags) const {
    uint32_t size;
    while (p < end_ && Class(p, &size) == flags) p += size;
    return p;
  }
  // End of a match of `\s+(?!\S)|\s+` at `p`: a run of blanks leaves its last one to the word
  // behind it.
  const char* Blanks(const char* p, const char* run_end) const {
    if (run_end == end_) return run_end;
    const char* last = run_end - 1;
    while ((static_cast<unsigned char>(*last) & 0xC0) == 0x80) --last;
    return last == p ? run_end : last;
  }

 private:
  const CharTable& table_;
  const char* begin_;
  const char* end_;
};

// Length of 's 't 'm 'd 're 've 'll at `p`, 0 if there is none. Caseless matching takes U+017F
// (long s) for s, as Unicode's folding does.
size_t Contraction(const char* p, const char* end, bool caseless) {
  if (*p != '\'' || end - p < 2) return 0;
  const auto fold = [caseless](char c) {
    return caseless && c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  };
  const char a = fold(p[1]);
  if (a == 's' || a == 't' || a == 'm' || a == 'd') return 2;
  if (end - p < 3) return 0;
  const char b = fold(p[2]);
  if (((a == 'r' || a == 'v') && b == 'e') || (a == 'l' && b == 'l')) return 3;
  if (caseless && p[1] == '\xC5' && p[2] == '\xBF') return 3;
  return 0;
}

// Rules say where the match ends that begins at `p`; they match everywhere.
class Gpt2Rule {
 public:
  static const char* Next(const Cursor& cursor, const char* p) {
    if (const size_t n = Contraction(p, cursor.end(), /*caseless=*/false); n > 0) return p + n;
    uint32_t size;
    const uint8_t flags = cursor.Class(p, &size);
    if (flags != kSpace) return cursor.Run(p + size, flags);
    if (*p == ' ' && p + 1 < cursor.end()) {
      const uint8_t word = cursor.Class(p + 1, &size);
      if (word != kSpace) return cursor.Run(p + 1 + size, word);
    }
    return cursor.Blanks(p, cursor.Run(p, kSpace));
  }
};

struct Llama3Rule {
  int max_digits;
  bool keeps_last_blanks = false;  // those at the end of the text are one word

  const char* Next(const Cursor& cursor, const char* p) const {
    const char* const end = cursor.end();
    if (const size_t n = Contraction(p, end, /*caseless=*/true); n > 0) return p + n;
    uint32_t size;
    const uint8_t flags = cursor.Class(p, &size);
    if (flags == kLetter) return cursor.Run(p + size, kLetter);
    if (flags == kNumber) return Digits(cursor, p + size);
    const char* const second = p + size;
    if (second < end && *p != '\r' && *p != '\n') {
      // One character that is neither letter, digit nor line end joins the word behind it.
      uint32_t second_size;
      const uint8_t second_flags = cursor.Class(second, &second_size);
      if (second_flags == kLetter) return cursor.Run(second + second_size, kLetter);
      if (*p == ' ' && second_flags == 0) return Symbols(cursor, second + second_size);
    }
    if (flags == 0) return Symbols(cursor, second);
    return BlankRun(cursor, p);
  }

 private:
  const char* Digits(const Cursor& cursor, const char* p) const {
    uint32_t size;
    for (int n = 1; n < max_digits && p < cursor.end(); ++n) {
      if (cursor.Class(p, &size) != kNumber) break;
      p += size;
    }
    return p;
  }
  static const char* Symbols(const Cursor& cursor, const char* p) {
    p = cursor.Run(p, 0);
    while (p < cursor.end() && (*p == '\r' || *p == '\n')) ++p;
    return p;
  }
  // `\s*[\r\n]+` ends behind the last line end of the run of blanks.
  const char* BlankRun(const Cursor& cursor, const char* p) const {
    const char* const run_end = cursor.Run(p, kSpace);
    if (keeps_last_blanks && run_end == cursor.end()) return run_end;
    for (const char* q = run_end; q > p; --q) {
      if (q[-1] == '\r' || q[-1] == '\n') return q;
    }
    return cursor.Blanks(p, run_end);
  }
};

template <typename Rule>
class Scanner final : public SplitPattern {
 public:
  explicit Scanner(Rule rule) : rule_(rule) {}

  Status FindAll(std::string_view text, std::vector<Span>& spans) const override {
    const Cursor cursor(text);
    const char* const begin = text.data();
    for (const char* p = begin; p < cursor.end();) {
      const char* next = rule_.Next(cursor, p);
      spans.push_back(
          {static_cast<uint32_t>(p - begin), static_cast<uint32_t>(next - begin), true});
      p = next;
    }
    return Status::Ok();
  }

 private:
  Rule rule_;
};

class LiteralPattern final : public SplitPattern {
 public:
  explicit LiteralPattern(std::string literal) : literal_(std::move(literal)) {}

  Status FindAll(std::string_view text, std::vector<Span>& spans) const override {
    size_t begin = 0;
    while (begin < text.size()) {
      const size_t found = std::min(text.find(literal_, begin), text.size());
      if (found > begin) {
        spans.push_back({static_cast<uint32_t>(begin), static_cast<uint32_t>(found), false});
      }
      if (found == text.size()) break;
      begin = found + literal_.size();
      spans.push_back({static_cast<uint32_t>(found), static_cast<uint32_t>(begin), true});
    }
    return Status::Ok();
  }

  size_t match_bytes() const override { return literal_.size(); }

 private:
  std::string literal_;
};

class CharClassPattern final : public SplitPattern {
 public:
  explicit CharClassPattern(uint8_t flags) : flags_(flags) {}

  Status FindAll(std::string_view text, std::vector<Span>& spans) const override {
    const CharTable& table = CharTable::Get();
    uint32_t covered = 0;
    for (uint32_t i = 0; i < text.size();) {
      uint32_t size;
      if (table.FlagsAt(text.data() + i, &size) & flags_) {
        if (covered < i) spans.push_back({covered, i, false});
        spans.push_back({i, i + size, true});
        covered = i + size;
      }
      i += size;
    }
    const auto end = static_cast<uint32_t>(text.size());
    if (covered < end) spans.push_back({covered, end, false});
    return Status::Ok();
  }

 private:
  uint8_t flags_;
};

class WordRunPattern final : public SplitPattern {
 public:
  Status FindAll(std::string_view text, std::vector<Span>& spans) const override {
    const CharTable& table = CharTable::Get();
    constexpr uint8_t kKinds = kWord | kSpace;
    for (uint32_t i = 0; i < text.size();) {
      uint32_t size;
      const uint32_t begin = i;
      const uint8_t kind = table.FlagsAt(text.data() + i, &size) & kKinds;
      do {
        i += size;
      } while (i < text.size() && (table.FlagsAt(text.data() + i, &size) & kKinds) == kind);
      spans.push_back({begin, i, kind != kSpace});
    }
    return Status::Ok();
  }
};

class ScriptsPattern final : public SplitPattern {
 public:
  Status FindAll(std::string_view text, std::vector<Span>& spans) const override {
    const ScriptRun* run = std::begin(kScriptRuns);
    uint8_t script = 0;
    uint32_t begin = 0;
    for (uint32_t i = 0; i < text.size();) {
      const Char c = CharAt(text.data() + i);
      const ScriptRun* const next = run + 1;
      if (c.code < run->first || (next != std::end(kScriptRuns) && c.code >= next->first))
        run = std::ranges::upper_bound(kScriptRuns, c.code, {}, &ScriptRun::first) - 1;
      if (run->script != 0 && run->script != script) {
        if (i > begin) spans.push_back({begin, i, script == 0});
        begin = i;
        script = run->script;
      }
      i += c.size;
    }
    spans.push_back({begin, static_cast<uint32_t>(text.size()), script == 0});
    return Status::Ok();
  }
};

class EveryCharactersPattern final : public SplitPattern {
 public:
  explicit EveryCharactersPattern(size_t count) : count_(count) {}
  Status FindAll(std::string_view text, std::vector<Span>& spans) const override {
    for (uint32_t i = 0; i < text.size();) {
      const uint32_t begin = i;
      for (size_t n = 0; n < count_ && i < text.size(); ++n) i += CharAt(text.data() + i).size;
      spans.push_back({begin, i, true});
    }
    return Status::Ok();
  }

 private:
  size_t count_;
};

}  // namespace

std::shared_ptr<const SplitPattern> SplitPattern::Scripts() {
  return std::make_shared<ScriptsPattern>();
}

std::shared_ptr<const SplitPattern> SplitPattern::EveryCharacters(size_t count) {
  return std::make_shared<EveryCharactersPattern>(count);
}

std::shared_ptr<const SplitPattern> SplitPattern::CharClass(uint8_t flags) {
  return std::make_shared<CharClassPattern>(flags);
}

std::shared_ptr<const SplitPattern> SplitPattern::WordRuns() {
  return std::make_shared<WordRunPattern>();
}

std::shared_ptr<const SplitPattern> SplitPattern::Gpt2() {
  return std::make_shared<Scanner<Gpt2Rule>>(Gpt2Rule());
}

std::shared_ptr<const SplitPattern> SplitPattern::Literal(std::string literal) {
  return std::make_shared<LiteralPattern>(std::move(literal));
}

Result<std::shared_ptr<const SplitPattern>> SplitPattern::Regex(std::string_view pattern) {
  using Ptr = std::shared_ptr<const SplitPattern>;
  if (pattern == kGpt2Pattern) return Gpt2();
  const auto llama3 = [](Llama3Rule rule) -> Ptr {
    return std::make_shared<Scanner<Llama3Rule>>(rule);
  };
  if (pattern == kLlama3Pattern) return llama3({.max_digits = 3});
  if (pattern == kQwen2Pattern) return llama3({.max_digits = 1});
  if (pattern == kCl100kPattern) return llama3({.max_digits = 3, .keeps_last_blanks = true});
  ASSIGN_OR_RETURN(const std::string translated, TranslateRegex(pattern));
  return CompilePcre2(translated);
}

}  // namespace inflight::tokenizer
