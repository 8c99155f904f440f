// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/tokenizer_impl.h"

#include <algorithm>

#include "base/check.h"
#include "base/status_macros.h"
#include "tokenizer/text_limits.h"
#include "tokenizer/unicode.h"

namespace inflight::tokenizer {
namespace {

constexpr size_t kMaxFreeScratch = 16;  // of 1 MiB and more each
// A word of a long text takes some thirty times its bytes, which nobody needs again.
constexpr size_t kMaxKeptBytes = size_t{4} << 20;

}  // namespace

class TokenizerImpl::ScratchLoan {
 public:
  explicit ScratchLoan(const TokenizerImpl& owner) : owner_(owner) {
    const std::lock_guard lock(owner.scratch_mutex_);
    if (owner.free_scratch_.empty()) {
      scratch_ = owner.definition_.model->NewScratch();
    } else {
      scratch_ = std::move(owner.free_scratch_.back());
      owner.free_scratch_.pop_back();
    }
  }
  ~ScratchLoan() {
    if (scratch_->grown_bytes() > kMaxKeptBytes) return;
    const std::lock_guard lock(owner_.scratch_mutex_);
    if (owner_.free_scratch_.size() < kMaxFreeScratch) {
      owner_.free_scratch_.push_back(std::move(scratch_));
    }
  }
  ScratchLoan(const ScratchLoan&) = delete;
  ScratchLoan& operator=(const ScratchLoan&) = delete;

  ModelScratch& operator*() { return *scratch_; }

 private:
  const TokenizerImpl& owner_;
  std::unique_ptr<ModelScratch> scratch_;
};

TokenizerImpl::TokenizerImpl(Definition definition)
    : definition_(std::move(definition)),
      vocab_size_(std::max(definition_.model->vocab().end_id(), definition_.added.end_id())) {
  PrepareDecoding();
}

void TokenizerImpl::PrepareDecoding() {
  is_special_.resize(static_cast<size_t>(vocab_size_));
  for (TokenId id = 0; id < vocab_size_; ++id) {
    const AddedToken* added = definition_.added.Get(id);
    if (added == nullptr && !definition_.model->vocab().Has(id)) continue;
    const auto other = definition_.decoder_forms.find(id);
    const std::string_view form = other != definition_.decoder_forms.end() ? other->second
                                  : added ? definition_.added.DecoderForm(id)
                                          : definition_.model->vocab().Token(id);
    decoded_.Set(id, definition_.decoder.Prepare(form));
    is_special_[static_cast<size_t>(id)] = definition_.added.IsSpecialContent(IdToToken(id));
  }
}

Result<std::vector<TokenId>> TokenizerImpl::Encode(std::string_view text, bool add_special_tokens,
                                                   std::span<const size_t> plain_at) const {
  if (text.size() > kMaxTextBytes) {
    return InvalidArgument("text: got " + std::to_string(text.size()) + " bytes, allowed are " +
                           std::to_string(kMaxTextBytes));
  }
  if (const auto offset = FindInvalidUtf8(text)) {
    return InvalidArgument("text: not valid UTF-8 at byte " + std::to_string(*offset));
  }
  std::vector<TokenId> ids;
  ids.reserve(text.size() / 3 + 8);
  std::vector<AddedTokens::Part> parts;
  definition_.added.SplitRaw(text, plain_at, parts);
  ScratchLoan scratch(*this);
  (*scratch).unk_missing = false;
  for (const AddedTokens::Part& part : parts) {
    if (part.id >= 0) {
      ids.push_back(part.id);
      continue;
    }
    RETURN_IF_ERROR(EncodePart(text, part.begin, part.end, plain_at, *scratch, ids));
  }
  if ((*scratch).unk_missing) {
    return InvalidArgument(
        "text: a part of it has no token, and the tokenizer has no unknown token for it "
        "(model.unk_token, model.unk_id)");
  }
  return ApplyTemplate(std::move(ids), add_special_tokens);
}

std::optional<size_t> TokenizerImpl::MaxBytesPerToken() const {
  constexpr size_t kMaxCharacterBytes = 4;  // an unknown one has an id of its own
  const bool has_text = std::ranges::any_of(definition_.post_processor, &TemplatePart::is_sequence);
  const auto shrinking = definition_.normalizer.MaxShrinking();
  if (!has_text || !shrinking || !definition_.model->CoversAll() ||
      !definition_.pre_tokenizer.KeepsAll() || definition_.added.TakeBlanks()) {
    return std::nullopt;
  }
  size_t longest = kMaxCharacterBytes;
  for (TokenId id = 0; id < vocab_size_; ++id) longest = std::max(longest, IdToToken(id).size());
  return longest * *shrinking;
}

// Text [begin, end). Where tokens are sought in normalized text, those that stay plain are cut
// behind their first character before that.
Status TokenizerImpl::EncodePart(std::string_view text, size_t begin, size_t end,
                                 std::span<const size_t> plain_at, ModelScratch& scratch,
                                 std::vector<TokenId>& ids) const {
  if (definition_.added.has_normalized()) {
    for (auto at = std::ranges::lower_bound(plain_at, begin); at != plain_at.end(); ++at) {
      size_t cut = *at + 1;
      while (cut < end && (static_cast<unsigned char>(text[cut]) & 0xC0) == 0x80) ++cut;
      if (cut >= end) break;
      if (cut <= begin) continue;
      RETURN_IF_ERROR(EncodeText(text.substr(begin, cut - begin), begin == 0, scratch, ids));
      begin = cut;
    }
  }
  return EncodeText(text.substr(begin, end - begin), begin == 0, scratch, ids);
}

Status TokenizerImpl::EncodeText(std::string_view text, bool starts_input, ModelScratch& scratch,
                                 std::vector<TokenId>& ids) const {
  std::string normalized(text);
  RETURN_IF_ERROR(definition_.normalizer.Apply(normalized, starts_input));
  if (normalized.empty()) return Status::Ok();
  if (!definition_.added.has_normalized()) {
    return EncodeNormalized(std::move(normalized), starts_input, scratch, ids);
  }
  std::vector<AddedTokens::Part> parts;
  definition_.added.SplitNormalized(normalized, parts);
  for (const AddedTokens::Part& part : parts) {
    if (part.id >= 0) {
      ids.push_back(part.id);
      continue;
    }
    RETURN_IF_ERROR(EncodeNormalized(normalized.substr(part.begin, part.end - part.begin),
                                     starts_input && part.begin == 0, scratch, ids));
  }
  return Status::Ok();
}

Status TokenizerImpl::EncodeNormalized(std::string text, bool starts_input, ModelScratch& scratch,
                                       std::vector<TokenId>& ids) const {
  const auto size = static_cast<uint32_t>(text.size());
  Pieces pieces{.text = std::move(text), .list = {{0, size}}, .starts_input = starts_input};
  RETURN_IF_ERROR(definition_.pre_tokenizer.Apply(pieces));
  for (const Pieces::Piece& piece : pieces.list) {
    definition_.model->Encode(
        std::string_view(pieces.text).substr(piece.begin, piece.end - piece.begin), scratch, ids);
  }
  return Status::Ok();
}

std::vector<TokenId> TokenizerImpl::ApplyTemplate(std::vector<TokenId> ids,
                                                  bool add_special_tokens) const {
  const auto& parts = definition_.post_processor;
  if (parts.size() == 1 && parts[0].is_sequence) return ids;
  std::vector<TokenId> out;
  out.reserve(ids.size() + parts.size());
  for (const TemplatePart& part : parts) {
    if (part.is_sequence) {
      out.insert(out.end(), ids.begin(), ids.end());
    } else if (add_special_tokens) {
      out.insert(out.end(), part.ids.begin(), part.ids.end());
    }
  }
  return out;
}

void TokenizerImpl::DecodeInto(std::span<const TokenId> ids, bool skip_special_tokens,
                               std::span<const TokenId> shown, DecodeStream& stream) const {
  const auto is_skipped = [&](TokenId id) {
    return skip_special_tokens && IsSpecial(id) && std::ranges::find(shown, id) == shown.end();
  };
  const bool takes_bytes = definition_.decoder.prepares_bytes();
  for (const TokenId id : ids) {
    if (!decoded_.Has(id) || is_skipped(id)) continue;
    if (takes_bytes) {
      stream.Bytes(decoded_[id]);
    } else {
      stream.Token(decoded_[id]);
    }
  }
}

std::string TokenizerImpl::Decode(std::span<const TokenId> ids, bool skip_special_tokens) const {
  DecodeStream stream = StartDecoding();
  DecodeInto(ids, skip_special_tokens, /*shown=*/{}, stream);
  stream.Finish();
  return stream.Take();
}

std::string TokenizerImpl::TokenBytes(TokenId id) const {
  if (!decoded_.Has(id) || IsSpecial(id)) return {};
  return definition_.decoder.BytesAmongOthers(decoded_[id]);
}

std::optional<TokenId> TokenizerImpl::TokenToId(std::string_view token) const {
  return definition_.Find(token);
}

std::string_view TokenizerImpl::IdToToken(TokenId id) const {
  const AddedToken* added = definition_.added.Get(id);
  return added ? std::string_view(added->content) : definition_.model->vocab().Token(id);
}

size_t TokenizerImpl::KeptScratchBytes() const {
  const std::lock_guard lock(scratch_mutex_);
  size_t bytes = 0;
  for (const auto& scratch : free_scratch_) bytes += scratch->grown_bytes();
  return bytes;
}

bool TokenizerImpl::IsSpecial(TokenId id) const {
  return id >= 0 && id < vocab_size_ && is_special_[static_cast<size_t>(id)];
}

}  // namespace inflight::tokenizer

namespace inflight {

using tokenizer::DecodeStream;
using tokenizer::TokenizerImpl;

struct Detokenizer::Impl {
  std::shared_ptr<const TokenizerImpl> tokenizer;
  bool skip_special_tokens;
  std::vector<TokenId> shown;
  DecodeStream stream;
};

Detokenizer::Detokenizer(std::shared_ptr<const Tokenizer> tokenizer, bool skip_special_tokens,
                         std::span<const TokenId> shown) {
  auto impl = std::dynamic_pointer_cast<const TokenizerImpl>(std::move(tokenizer));
  CHECK(impl != nullptr);  // Load and FromJson make no other
  DecodeStream stream = impl->StartDecoding();
  impl_ =
      std::make_unique<Impl>(std::move(impl), skip_special_tokens,
                             std::vector<TokenId>(shown.begin(), shown.end()), std::move(stream));
}

Detokenizer::~Detokenizer() = default;
Detokenizer::Detokenizer(Detokenizer&&) noexcept = default;
Detokenizer& Detokenizer::operator=(Detokenizer&&) noexcept = default;

std::string Detokenizer::Append(std::span<const TokenId> ids) {
  impl_->tokenizer->DecodeInto(ids, impl_->skip_special_tokens, impl_->shown, impl_->stream);
  return impl_->stream.Take();
}

std::string Detokenizer::Finish() {
  impl_->stream.Finish();
  return impl_->stream.Take();
}

}  // namespace inflight
