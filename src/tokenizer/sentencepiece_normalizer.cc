// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/sentencepiece_normalizer.h"

#include "base/status_macros.h"
#include "tokenizer/unicode.h"

namespace inflight::tokenizer {

Result<SentencePieceNormalizer> SentencePieceNormalizer::Create(const SentencePieceProto& proto) {
  SentencePieceNormalizer normalizer;
  const auto& spec = proto.normalizer;
  if (!spec.precompiled_charsmap.empty()) {
    auto charsmap = Charsmap::Parse(spec.precompiled_charsmap);
    if (!charsmap.ok()) {
      return charsmap.status().WithPrefix("normalizer_spec.precompiled_charsmap");
    }
    normalizer.charsmap_ = *std::move(charsmap);
  }
  for (size_t id = 0; id < proto.pieces.size(); ++id) {
    const auto& piece = proto.pieces[id];
    if (piece.type != SentencePieceProto::Type::kUserDefined) continue;
    normalizer.user_defined_.Add(piece.text, static_cast<TokenId>(id));
  }
  normalizer.blank_ = spec.escape_whitespaces ? kMetaspace : " ";
  normalizer.add_dummy_prefix_ = spec.add_dummy_prefix;
  normalizer.remove_extra_blanks_ = spec.remove_extra_whitespaces;
  normalizer.blank_as_suffix_ = proto.treat_whitespace_as_suffix;
  for (size_t c = 0x21; c < 0x7F; ++c) {
    normalizer.plain_[c] = normalizer.IsPlain(static_cast<char>(c));
  }
  return normalizer;
}

bool SentencePieceNormalizer::IsPlain(char c) const {
  if (user_defined_.MayBegin(c)) return false;
  if (!charsmap_) return true;
  if (charsmap_->Longest({&c, 1}).size > 0) return false;
  std::string pair = {c, '\0'};
  for (int next = 0; next < 0x80; ++next) {
    pair[1] = static_cast<char>(next);
    if (charsmap_->MayBeginWith(pair)) return false;
  }
  return true;
}

SentencePieceNormalizer::Part SentencePieceNormalizer::First(std::string_view text) const {
  if (!user_defined_.empty()) {
    if (const auto match = user_defined_.LongestAt(text, 0)) {
      return {text.substr(0, match->end), static_cast<uint32_t>(match->end)};
    }
  }
  if (charsmap_) {
    const Charsmap::Match match = charsmap_->Longest(text);
    if (match.size > 0) return {match.replacement, match.size};
  }
  const uint32_t size = CharAt(text.data()).size;
  return {text.substr(0, size), size};
}

void SentencePieceNormalizer::AppendNormal(std::string_view text, bool after_blank,
                                           std::string& out) const {
  while (!text.empty()) {
    size_t num_plain = 0;
    while (num_plain < text.size() && plain_[static_cast<uint8_t>(text[num_plain])] &&
           (num_plain + 1 == text.size() || static_cast<uint8_t>(text[num_plain + 1]) < 0x80)) {
      ++num_plain;
    }
    if (num_plain > 0) {
      out += text.substr(0, num_plain);
      text.remove_prefix(num_plain);
      after_blank = false;
      continue;
    }
    Part part = First(text);
    text.remove_prefix(part.size);
    while (after_blank && part.normal.starts_with(' ')) part.normal.remove_prefix(1);
    if (part.normal.empty()) continue;
    for (const char c : part.normal) {
      if (c == ' ') {
        out += blank_;
      } else {
        out += c;
      }
    }
    after_blank = remove_extra_blanks_ && part.normal.ends_with(' ');
  }
}

void SentencePieceNormalizer::Apply(std::string& text) const {
  std::string_view rest = text;
  const bool strips_start = remove_extra_blanks_ && !inside_text_;
  const bool adds_blank = add_dummy_prefix_ && !inside_text_;
  while (strips_start && !rest.empty()) {
    const Part part = First(rest);
    if (part.normal != " ") break;
    rest.remove_prefix(part.size);
  }
  if (rest.empty()) return text.clear();
  std::string out;
  out.reserve(rest.size() + rest.size() / 2 + 8);
  if (adds_blank && !blank_as_suffix_) out += blank_;
  AppendNormal(rest, strips_start, out);
  while (remove_extra_blanks_ && out.ends_with(blank_)) out.resize(out.size() - blank_.size());
  if (adds_blank && blank_as_suffix_) out += blank_;
  text = std::move(out);
}

}  // namespace inflight::tokenizer
