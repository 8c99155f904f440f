// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/decoder.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "tokenizer/sentencepiece_stage.h"
#include "tokenizer/unicode.h"

namespace inflight::tokenizer {
namespace {

using DecoderKind = DecoderStep::Kind;

class Sink final : public DecodeStage {
 public:
  explicit Sink(std::string& out) : out_(out) {}
  void Text(std::string_view part) override { out_ += part; }
  void EndToken() override {}
  void Finish() override {}

 private:
  std::string& out_;
};

class Stage : public DecodeStage {
 public:
  explicit Stage(DecodeStage& next) : next_(next) {}
  void EndToken() override { next_.EndToken(); }
  void Finish() override { next_.Finish(); }

 protected:
  void Pass(std::string_view part) {
    if (!part.empty()) next_.Text(part);
  }
  DecodeStage& next_;
};

// Collects a token and hands it over whole.
class WholeTokenStage : public Stage {
 public:
  using Stage::Stage;
  void Text(std::string_view part) final { token_ += part; }
  void EndToken() final {
    Token(token_);
    token_.clear();
  }

 protected:
  virtual void Token(const std::string& token) = 0;

 private:
  std::string token_;
};

// Bytes -> one token of valid UTF-8, a U+FFFD for each maximal part that begins no character.
class Utf8Stage final : public Stage {
 public:
  using Stage::Stage;
  void Text(std::string_view part) override {
    pending_ += part;
    Drain(/*at_end=*/false);
  }
  void EndToken() override {}
  void Finish() override {
    Drain(/*at_end=*/true);
    next_.EndToken();
    next_.Finish();
  }

 private:
  void Drain(bool at_end) {
    valid_.clear();
    const std::string_view bytes = pending_;
    size_t i = 0;
    while (i < bytes.size()) {
      const Utf8Prefix p = ClassifyUtf8(bytes.substr(i));
      if (p.kind == Utf8Prefix::kIncomplete && !at_end) break;
      valid_ += p.kind == Utf8Prefix::kCharacter ? bytes.substr(i, p.size) : kReplacementChar;
      i += p.size;
    }
    pending_.erase(0, i);
    Pass(valid_);
  }

  std::string pending_, valid_;
};

// kByteLevel behind a step that a stream runs.
class ByteLevelStage final : public WholeTokenStage {
 public:
  using WholeTokenStage::WholeTokenStage;

 protected:
  void Token(const std::string& token) override {
    Pass(ByteAlphabet::Get().ToBytes(token).value_or(token));
  }
};

class MetaspaceStage final : public Stage {
 public:
  MetaspaceStage(const DecoderStep& step, DecodeStage& next) : Stage(next), step_(step) {}
  void Text(std::string_view part) override {
    text_.clear();
    for (size_t i = 0; i < part.size();) {
      const size_t mark = std::min(part.find(step_.content, i), part.size());
      text_ += part.substr(i, mark - i);
      if (mark < part.size() && !(is_first_ && step_.strips_first)) text_ += ' ';
      i = mark + step_.content.size();
    }
    Pass(text_);
  }
  void EndToken() override {
    is_first_ = false;
    next_.EndToken();
  }

 private:
  const DecoderStep& step_;
  bool is_first_ = true;
  std::string text_;
};

// Replaces a string within a token. Knuth-Morris-Pratt, so that a match may come in parts.
class ReplaceStage final : public Stage {
 public:
  ReplaceStage(const DecoderStep& step, DecodeStage& next)
      : Stage(next), step_(step), fallback_(step.literal.size(), 0) {
    const std::string& p = step_.literal;
    for (size_t i = 1, k = 0; i < p.size(); ++i) {
      while (k > 0 && p[i] != p[k]) k = fallback_[k - 1];
      if (p[i] == p[k]) ++k;
      fallback_[i] = k;
    }
  }
  void Text(std::string_view part) override {
    const std::string& p = step_.literal;
    text_.clear();
    for (const char c : part) {
      while (matched_ > 0 && p[matched_] != c) {
        const size_t shorter = fallback_[matched_ - 1];
        text_.append(p, 0, matched_ - shorter);
        matched_ = shorter;
      }
      if (p[matched_] != c) {
        text_ += c;
      } else if (++matched_ == p.size()) {
        text_ += step_.content;
        matched_ = 0;
      }
    }
    Pass(text_);
  }
  void EndToken() override {
    Pass(std::string_view(step_.literal).substr(0, matched_));
    matched_ = 0;
    next_.EndToken();
  }

 private:
  const DecoderStep& step_;
  std::vector<size_t> fallback_;
  size_t matched_ = 0;  // bytes of the literal that the held-back text ends with
  std::string text_;
};

std::string ReplaceAll(const DecoderStep& step, std::string_view token) {
  std::vector<Span> spans;
  if (token.empty() || !step.pattern->FindAll(token, spans).ok()) return std::string(token);
  std::string out;
  for (const Span& s : spans) {
    out += s.is_match ? std::string_view(step.content) : token.substr(s.begin, s.end - s.begin);
  }
  return out;
}

class RegexReplaceStage final : public WholeTokenStage {
 public:
  RegexReplaceStage(const DecoderStep& step, DecodeStage& next)
      : WholeTokenStage(next), step_(step) {}

 protected:
  void Token(const std::string& token) override {
    Pass(ReplaceAll(step_, token));
    next_.EndToken();
  }

 private:
  const DecoderStep& step_;
};

// The byte that a token of the form <0xNN> names. NN is read as the package's number parser does,
// which takes a plus sign.
std::optional<char> NamedByte(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return std::nullopt;
  int value = 0;
  for (size_t i = token[3] == '+' ? 4 : 3; i < 5; ++i) {
    const char c = token[i];
    const int digit = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                             : -1;
    if (digit < 0) return std::nullopt;
    value = 16 * value + digit;
  }
  return static_cast<char>(value);
}

// A run is held back until it ends: one wrong byte in it makes each of its bytes a U+FFFD.
class ByteFallbackStage final : public WholeTokenStage {
 public:
  using WholeTokenStage::WholeTokenStage;
  void Finish() override {
    FlushRun();
    next_.Finish();
  }

 protected:
  void Token(const std::string& token) override {
    if (const auto byte = NamedByte(token)) {
      run_ += *byte;
      return;
    }
    FlushRun();
    Pass(token);
    next_.EndToken();
  }

 private:
  void FlushRun() {
    if (run_.empty()) return;
    const bool valid = !FindInvalidUtf8(run_);
    for (size_t i = 0; i < (valid ? 1 : run_.size()); ++i) {
      Pass(valid ? std::string_view(run_) : kReplacementChar);
      next_.EndToken();
    }
    run_.clear();
  }

  std::string run_;
};

class FuseStage final : public Stage {
 public:
  using Stage::Stage;
  void Text(std::string_view part) override { next_.Text(part); }
  void EndToken() override {}
  void Finish() override {
    next_.EndToken();
    next_.Finish();
  }
};

class StripStage final : public Stage {
 public:
  StripStage(const DecoderStep& step, DecodeStage& next)
      : Stage(next), step_(step), start_left_(step.start) {}
  void Text(std::string_view part) override {
    const std::string& mark = step_.content;
    while (start_left_ > 0 && !part.empty()) {
      if (!part.starts_with(mark)) {
        start_left_ = 0;
        break;
      }
      part.remove_prefix(mark.size());
      --start_left_;
    }
    if (step_.stop == 0) return Pass(part);
    // The last `stop` marks wait: they go if the token ends with them.
    size_t body = part.size();
    size_t marks = 0;
    while (part.substr(0, body).ends_with(mark)) body -= mark.size(), ++marks;
    text_.clear();
    if (body > 0) Release(held_, text_);
    text_ += part.substr(0, body);
    held_ += marks;
    if (held_ > step_.stop) Release(held_ - step_.stop, text_);
    Pass(text_);
  }
  void EndToken() override {
    start_left_ = step_.start;
    held_ = 0;
    next_.EndToken();
  }

 private:
  void Release(size_t n, std::string& out) {
    for (size_t i = 0; i < n; ++i) out += step_.content;
    held_ -= n;
  }

  const DecoderStep& step_;
  uint32_t start_left_;
  size_t held_ = 0;
  std::string text_;
};

// Every `from` of `text` is `to` in it; an empty one stands around each character.
std::string WithReplaced(std::string_view text, std::string_view from, std::string_view to) {
  std::string out;
  size_t begin = 0;
  while (begin < text.size() && from.empty()) {
    const size_t size = CharAt(text.data() + begin).size;
    out.append(to).append(text.substr(begin, size));
    begin += size;
  }
  if (from.empty()) return out.append(to);
  for (size_t found; (found = text.find(from, begin)) != std::string_view::npos;) {
    out.append(text.substr(begin, found - begin)).append(to);
    begin = found + from.size();
  }
  return out.append(text.substr(begin));
}

// " ." -> "." and the like within a token, which begins with the blank before it
// (decoders/wordpiece.rs, cleanup).
void CleanUp(std::string& token) {
  constexpr std::pair<std::string_view, std::string_view> kRules[] = {
      {" .", "."},   {" ?", "?"},     {" !", "!"},    {" ,", ","},
      {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},  {" do not", " don't"},
      {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
  for (const auto& [from, to] : kRules) {
    if (token.find(from) != std::string::npos) token = WithReplaced(token, from, to);
  }
}

class WordPieceStage final : public WholeTokenStage {
 public:
  WordPieceStage(const DecoderStep& step, DecodeStage& next) : WholeTokenStage(next), step_(step) {}

 protected:
  void Token(const std::string& token) override {
    const bool goes_on = !is_first_ && token.starts_with(step_.content);
    text_ = is_first_ || goes_on ? "" : " ";
    text_.append(token, goes_on ? step_.content.size() : 0);
    if (step_.cleans_up) CleanUp(text_);
    is_first_ = false;
    Pass(text_);
    next_.EndToken();
  }

 private:
  const DecoderStep& step_;
  bool is_first_ = true;
  std::string text_;
};

// What a suffix becomes is known when the next token comes.
class SuffixStage final : public WholeTokenStage {
 public:
  SuffixStage(const DecoderStep& step, DecodeStage& next) : WholeTokenStage(next), step_(step) {}
  void Finish() override {
    Release("");
    next_.Finish();
  }

 protected:
  void Token(const std::string& token) override {
    Release(" ");
    const size_t suffix = token.find(step_.content);
    Pass(std::string_view(token).substr(0, suffix));
    if (suffix == std::string::npos) return next_.EndToken();
    held_ = token.substr(suffix);
    holds_ = true;
  }

 private:
  void Release(std::string_view suffix) {
    if (!holds_) return;
    holds_ = false;
    Pass(WithReplaced(held_, step_.content, suffix));
    next_.EndToken();
  }

  const DecoderStep& step_;
  bool holds_ = false;
  std::string held_;  // from the first suffix of the last token on
};

class CtcStage final : public WholeTokenStage {
 public:
  CtcStage(const DecoderStep& step, DecodeStage& next) : WholeTokenStage(next), step_(step) {}

 protected:
  void Token(const std::string& token) override {
    if (last_ == token) return;
    last_ = token;
    std::string text = WithReplaced(token, step_.content, "");
    if (step_.cleans_up) {
      CleanUp(text);
      text = WithReplaced(text, step_.delimiter, " ");
    }
    if (text.empty()) return;
    Pass(text);
    next_.EndToken();
  }

 private:
  const DecoderStep& step_;
  std::optional<std::string> last_;
};

class JoinStage final : public Stage {
 public:
  JoinStage(const DecoderStep& step, DecodeStage& next) : Stage(next), step_(step) {}
  void Text(std::string_view part) override {
    Begin();
    Pass(part);
  }
  void EndToken() override {
    Begin();
    begun_ = false;
    is_first_ = false;
    next_.EndToken();
  }

 private:
  void Begin() {
    if (!begun_ && !is_first_) Pass(step_.content);
    begun_ = true;
  }

  const DecoderStep& step_;
  bool is_first_ = true, begun_ = false;
};

std::unique_ptr<DecodeStage> MakeStage(const DecoderStep& step, DecodeStage& next) {
  switch (step.kind) {
    case DecoderKind::kByteLevel:
      return std::make_unique<ByteLevelStage>(next);
    case DecoderKind::kMetaspace:
      return std::make_unique<MetaspaceStage>(step, next);
    case DecoderKind::kReplace:
      if (step.pattern) return std::make_unique<RegexReplaceStage>(step, next);
      return std::make_unique<ReplaceStage>(step, next);
    case DecoderKind::kByteFallback:
      return std::make_unique<ByteFallbackStage>(next);
    case DecoderKind::kFuse:
      return std::make_unique<FuseStage>(next);
    case DecoderKind::kStrip:
      return std::make_unique<StripStage>(step, next);
    case DecoderKind::kWordPiece:
      return std::make_unique<WordPieceStage>(step, next);
    case DecoderKind::kSuffix:
      return std::make_unique<SuffixStage>(step, next);
    case DecoderKind::kCtc:
      return std::make_unique<CtcStage>(step, next);
    case DecoderKind::kJoin:
      return std::make_unique<JoinStage>(step, next);
    case DecoderKind::kSentencePiece:
      return std::make_unique<SentencePieceStage>(step, next);
  }
  return nullptr;
}

// Runs one step over one token alone.
std::string ApplyToToken(const DecoderStep& step, const std::string& token) {
  std::string out;
  Sink sink(out);
  const auto stage = MakeStage(step, sink);
  stage->Text(token);
  stage->EndToken();
  return out;
}

}  // namespace

std::string DecodeStream::Take() {
  std::string text = std::move(*out_);
  out_->clear();
  return text;
}

Decoder::Decoder(std::vector<DecoderStep> steps) : steps_(std::move(steps)) {
  while (num_prepared_ < steps_.size() && !prepares_bytes_) {
    const DecoderKind kind = steps_[num_prepared_].kind;
    if (kind != DecoderKind::kReplace && kind != DecoderKind::kStrip &&
        kind != DecoderKind::kByteLevel)
      break;
    prepares_bytes_ = kind == DecoderKind::kByteLevel;
    ++num_prepared_;
  }
}

std::string Decoder::Prepare(std::string_view token) const {
  std::string text(token);
  for (size_t i = 0; i < num_prepared_; ++i) text = ApplyToToken(steps_[i], text);
  return text;
}

std::string Decoder::BytesAmongOthers(std::string_view prepared) const {
  if (prepares_bytes_) return std::string(prepared);
  for (size_t i = num_prepared_; i < steps_.size(); ++i) {
    std::optional<char> byte;
    if (steps_[i].kind == DecoderKind::kByteFallback) byte = NamedByte(prepared);
    if (steps_[i].kind == DecoderKind::kSentencePiece && steps_[i].has_bytes)
      byte = ByteOfPiece(prepared);
    if (byte) return std::string(1, *byte);
  }
  // Between two others, less what those are without it. The three differ, so that none repeats.
  constexpr std::string_view kBefore = "xqx";
  constexpr std::string_view kBehind = "qxq";
  const size_t num_before = DecodeAll({kBefore}).size();
  const size_t num_others = DecodeAll({kBefore, kBehind}).size();
  const std::string text = DecodeAll({kBefore, prepared, kBehind});
  if (text.size() <= std::max(num_before, num_others)) return {};
  return text.substr(num_before, text.size() - num_others);
}

std::string Decoder::DecodeAll(std::initializer_list<std::string_view> prepared) const {
  DecodeStream stream = Start();
  for (const std::string_view token : prepared) stream.Token(token);
  stream.Finish();
  return stream.Take();
}

DecodeStream Decoder::Start() const {
  DecodeStream stream;
  stream.stages_.push_back(std::make_unique<Sink>(*stream.out_));
  for (size_t i = steps_.size(); i-- > num_prepared_;) {
    DecodeStage& next = *stream.stages_.back();
    if (steps_[i].kind == DecoderKind::kByteLevel) {
      stream.stages_.push_back(std::make_unique<Utf8Stage>(next));
    }
    stream.stages_.push_back(MakeStage(steps_[i], *stream.stages_.back()));
  }
  if (prepares_bytes_)
    stream.stages_.push_back(std::make_unique<Utf8Stage>(*stream.stages_.back()));
  stream.first_ = stream.stages_.back().get();
  return stream;
}

}  // namespace inflight::tokenizer
