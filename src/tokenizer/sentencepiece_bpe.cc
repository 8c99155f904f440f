// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/sentencepiece_bpe.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "base/status_macros.h"
#include "tokenizer/unicode.h"

namespace inflight::tokenizer {
namespace {

using Proto = SentencePieceProto;
using Type = Proto::Type;

constexpr int kMaxUnusedDepth = 100;  // of unused pieces within unused pieces, as in the package

bool IsOneCharacter(std::string_view text) { return CharAt(text.data()).size == text.size(); }

// Ranks of the pieces, 0 for the highest score; equal scores share one. Negative zero is below
// zero.
std::vector<uint32_t> Ranks(const Proto& proto) {
  const auto above = [](float a, float b) {
    return a > b || (a == b && !std::signbit(a) && std::signbit(b));
  };
  std::vector<float> scores;
  for (const auto& piece : proto.pieces) scores.push_back(piece.score);
  std::sort(scores.begin(), scores.end(), above);
  scores.erase(std::unique(scores.begin(), scores.end(),
                           [&](float a, float b) { return !above(a, b) && !above(b, a); }),
               scores.end());
  std::vector<uint32_t> ranks;
  for (const auto& piece : proto.pieces) {
    ranks.push_back(static_cast<uint32_t>(
        std::lower_bound(scores.begin(), scores.end(), piece.score, above) - scores.begin()));
  }
  return ranks;
}

}  // namespace

struct SentencePieceBpe::Scratch final : ModelScratch {
  struct Symbol {
    TokenId id;  // -1: a character that no piece has
    std::string_view text;
    int32_t prev, next;  // -1: none
    MergeTable::Merge merge;
  };
  std::unique_ptr<ModelScratch> bpe;
  std::vector<Symbol> symbols;
  std::vector<uint64_t> heap;  // rank << 32 | position, least first
  // Of unused pieces: the two parts seen last, wherever in the text.
  std::unordered_map<TokenId, std::pair<TokenId, TokenId>> parts;
  bool after_unknown = false;

  size_t grown_bytes() const override {
    return symbols.capacity() * sizeof(symbols[0]) + heap.capacity() * sizeof(heap[0]) +
           (bpe == nullptr ? 0 : bpe->grown_bytes());
  }
};

struct SentencePieceBpe::Symbols {
  std::unordered_map<std::string_view, TokenId> ids;
  std::vector<std::string_view> extra;
};

SentencePieceBpe::Symbols SentencePieceBpe::FindSymbols(const Proto& proto) {
  Symbols symbols;
  for (size_t id = 0; id < proto.pieces.size(); ++id) {
    const auto& piece = proto.pieces[id];
    if (Proto::IsSpelled(piece.type)) symbols.ids.emplace(piece.text, static_cast<TokenId>(id));
  }
  for (const auto& piece : proto.pieces) {
    if (piece.type != Type::kNormal && piece.type != Type::kUnused) continue;
    const std::string_view text = piece.text;
    for (size_t i = 0; i < text.size();) {
      const uint32_t size = CharAt(text.data() + i).size;
      const auto id = static_cast<TokenId>(proto.pieces.size() + symbols.extra.size());
      if (symbols.ids.try_emplace(text.substr(i, size), id).second) {
        symbols.extra.push_back(text.substr(i, size));
      }
      i += size;
    }
  }
  return symbols;
}

std::vector<RankedMerge> SentencePieceBpe::FindMerges(const Proto& proto, const Symbols& symbols) {
  const std::vector<uint32_t> ranks = Ranks(proto);
  std::vector<RankedMerge> merges;
  const auto is_fixed = [&](TokenId id) {
    return static_cast<size_t>(id) < proto.pieces.size() &&
           proto.pieces[static_cast<size_t>(id)].type == Type::kUserDefined;
  };
  for (size_t id = 0; id < proto.pieces.size(); ++id) {
    const auto& piece = proto.pieces[id];
    if (piece.type != Type::kNormal && piece.type != Type::kUnused) continue;
    const std::string_view text = piece.text;
    for (size_t i = CharAt(text.data()).size; i < text.size(); i += CharAt(text.data() + i).size) {
      const auto left = symbols.ids.find(text.substr(0, i));
      const auto right = symbols.ids.find(text.substr(i));
      if (left == symbols.ids.end() || right == symbols.ids.end()) continue;
      if (is_fixed(left->second) || is_fixed(right->second)) continue;
      merges.push_back({left->second, right->second, {ranks[id], static_cast<TokenId>(id)}});
    }
  }
  return merges;
}

Result<std::shared_ptr<const SentencePieceBpe>> SentencePieceBpe::Create(const Proto& proto) {
  auto model = std::make_shared<SentencePieceBpe>();
  std::vector<TokenId> characters;
  bool has_unused = false;
  for (size_t i = 0; i < proto.pieces.size(); ++i) {
    const auto& piece = proto.pieces[i];
    const auto id = static_cast<TokenId>(i);
    RETURN_IF_ERROR(model->vocab_.Add(piece.text, id));
    if (piece.type == Type::kUserDefined) model->user_defined_.Add(piece.text, id);
    if (piece.type == Type::kNormal && IsOneCharacter(piece.text)) characters.push_back(id);
    // A lone U+0000 is kept out of every text (see sentencepiece_proto.h) and changes nothing.
    has_unused |= piece.type == Type::kUnused && piece.text[0] != '\0';
    model->is_unused_.push_back(piece.type == Type::kUnused);
  }
  model->unknown_ = UnknownPieces(proto);
  const Symbols symbols = FindSymbols(proto);
  const auto merges = FindMerges(proto, symbols);
  model->is_general_ = has_unused || !symbols.extra.empty();
  if (model->is_general_) {
    model->merges_ = MergeTable(merges.size());
    for (const RankedMerge& m : merges) model->merges_.Set(m.left, m.right, m.merge);
    for (const auto& [text, id] : symbols.ids) {
      if (IsOneCharacter(text)) model->characters_.emplace(text, id);
    }
    model->extra_.assign(symbols.extra.begin(), symbols.extra.end());
    return std::shared_ptr<const SentencePieceBpe>(std::move(model));
  }
  BpeConfig config{.fuse_unk = true, .byte_fallback = proto.byte_fallback};
  if (proto.unk_id >= 0) config.unk_token = proto.pieces[static_cast<size_t>(proto.unk_id)].text;
  model->bpe_ = BpeModel::FromRanked(model->vocab_, merges, characters, std::move(config));
  return std::shared_ptr<const SentencePieceBpe>(std::move(model));
}

std::unique_ptr<ModelScratch> SentencePieceBpe::NewScratch() const {
  auto scratch = std::make_unique<Scratch>();
  if (!is_general_) scratch->bpe = bpe_.NewScratch();
  return scratch;
}

void SentencePieceBpe::Encode(std::string_view piece, ModelScratch& any_scratch,
                              std::vector<TokenId>& out) const {
  auto& scratch = static_cast<Scratch&>(any_scratch);
  if (is_general_) return EncodeGeneral(piece, scratch, out);
  if (user_defined_.empty()) return bpe_.Encode(piece, *scratch.bpe, out);
  size_t begin = 0;
  while (begin < piece.size()) {
    const auto match = user_defined_.FindFrom(piece, begin);
    const size_t end = match ? match->begin : piece.size();
    if (begin < end) bpe_.Encode(piece.substr(begin, end - begin), *scratch.bpe, out);
    if (!match) return;
    out.push_back(match->id);
    begin = match->end;
  }
}

void SentencePieceBpe::EncodeGeneral(std::string_view text, Scratch& scratch,
                                     std::vector<TokenId>& out) const {
  scratch.parts.clear();
  scratch.after_unknown = false;
  Split(text, scratch);
  Merge(scratch);
  for (int32_t i = 0; i >= 0; i = scratch.symbols[static_cast<size_t>(i)].next) {
    const Scratch::Symbol& symbol = scratch.symbols[static_cast<size_t>(i)];
    TakeApart(symbol.id, symbol.text, 0, scratch, out);
  }
}

void SentencePieceBpe::Split(std::string_view text, Scratch& scratch) const {
  auto& symbols = scratch.symbols;
  symbols.clear();
  for (size_t begin = 0; begin < text.size();) {
    const auto index = static_cast<int32_t>(symbols.size());
    TokenId id = -1;
    size_t end = begin + CharAt(text.data() + begin).size;
    if (const auto match = user_defined_.LongestAt(text, begin)) {
      id = match->id;
      end = match->end;
    } else if (const auto it = characters_.find(std::string(text.substr(begin, end - begin)));
               it != characters_.end()) {
      id = it->second;
    }
    symbols.push_back({id, text.substr(begin, end - begin), index - 1, index + 1, {}});
    begin = end;
  }
  symbols.back().next = -1;
}

void SentencePieceBpe::Merge(Scratch& scratch) const {
  auto& heap = scratch.heap;
  heap.clear();
  const auto at = [&](int32_t i) -> Scratch::Symbol& {
    return scratch.symbols[static_cast<size_t>(i)];
  };
  const auto key = [&](int32_t i) {
    return static_cast<uint64_t>(at(i).merge.rank) << 32 | static_cast<uint32_t>(i);
  };
  const auto consider = [&](int32_t i) {
    Scratch::Symbol& symbol = at(i);
    symbol.merge = {};
    if (symbol.id < 0 || symbol.next < 0 || at(symbol.next).id < 0) return;
    symbol.merge = merges_.Get(symbol.id, at(symbol.next).id);
    if (symbol.merge.rank == MergeTable::kNoRank) return;
    if (is_unused_[static_cast<size_t>(symbol.merge.id)]) {
      scratch.parts[symbol.merge.id] = {symbol.id, at(symbol.next).id};
    }
    heap.push_back(key(i));
    std::push_heap(heap.begin(), heap.end(), std::greater<>());
  };
  for (int32_t i = 0; i < static_cast<int32_t>(scratch.symbols.size()); ++i) consider(i);
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    const uint64_t top = heap.back();
    heap.pop_back();
    const auto i = static_cast<int32_t>(top & UINT32_MAX);
    if (top != key(i)) continue;  // the pair has changed since
    Scratch::Symbol& left = at(i);
    Scratch::Symbol& gone = at(left.next);
    left.id = left.merge.id;
    left.text = {left.text.data(), left.text.size() + gone.text.size()};
    left.next = gone.next;
    gone.merge = {};
    if (left.next >= 0) at(left.next).prev = i;
    // Left before right: the order decides which parts of an unused piece were seen last.
    if (left.prev >= 0) consider(left.prev);
    consider(i);
  }
}

// `text` is the symbol's own.
void SentencePieceBpe::TakeApart(TokenId symbol, std::string_view text, int depth, Scratch& scratch,
                                 std::vector<TokenId>& out) const {
  const auto num_pieces = static_cast<TokenId>(is_unused_.size());
  const bool is_piece = symbol >= 0 && symbol < num_pieces;
  const bool is_unused = is_piece && is_unused_[static_cast<size_t>(symbol)];
  if (is_piece && (!is_unused || depth > kMaxUnusedDepth)) {
    out.push_back(symbol);
    scratch.after_unknown = false;
    return;
  }
  const auto parts = is_unused ? scratch.parts.find(symbol) : scratch.parts.end();
  if (parts == scratch.parts.end()) {
    unknown_.Append(text, scratch.after_unknown, out);
    scratch.after_unknown = true;
    return;
  }
  const auto [left, right] = parts->second;
  const size_t left_size = left < num_pieces
                               ? vocab_.Token(left).size()
                               : extra_[static_cast<size_t>(left - num_pieces)].size();
  TakeApart(left, text.substr(0, left_size), depth + 1, scratch, out);
  TakeApart(right, text.substr(left_size), depth + 1, scratch, out);
}

}  // namespace inflight::tokenizer
