// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/bpe.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <functional>

#include "tokenizer/unicode.h"

namespace inflight::tokenizer {
namespace {

// Up to here scanning an array for the least rank beats a heap.
constexpr size_t kMaxShortWord = 48;

bool CrossesWords(std::string_view left, std::string_view right) {
  return right.starts_with(kMetaspace) && !left.ends_with(kMetaspace);
}

}  // namespace

WordCache::Entry& WordCache::Find(std::string_view word, std::array<uint64_t, 4>& padded) {
  padded = {};
  std::memcpy(padded.data(), word.data(), word.size());
  uint64_t h = word.size();
  for (const uint64_t part : padded) h = (h ^ part) * 0x9E3779B97F4A7C15u ^ (h >> 29);
  return entries_[(h * 0xD6E8FEB86659FD93u) >> 50];
}

Result<BpeModel> BpeModel::Create(Vocab vocab, const std::vector<MergePair>& merges,
                                  BpeConfig config) {
  BpeModel model;
  model.vocab_ = std::move(vocab);
  model.config_ = std::move(config);
  model.merges_ = MergeTable(merges.size());
  std::string joined;
  for (size_t i = 0; i < merges.size(); ++i) {
    joined.assign(merges[i].first).append(merges[i].second);
    const auto left = model.vocab_.Find(merges[i].first);
    const auto right = model.vocab_.Find(merges[i].second);
    const auto merged = model.vocab_.Find(joined);
    if (!left || !right || !merged) {
      const std::string_view missing = !left ? merges[i].first : !right ? merges[i].second : joined;
      return InvalidArgument("merges[" + std::to_string(i) + "]: token \"" +
                             std::string(missing.substr(0, 100)) + "\" is not in the vocabulary");
    }
    model.merges_.Set(*left, *right, {static_cast<uint32_t>(i), *merged});
  }
  model.IndexBytes();
  model.IndexCharacters();
  model.FindWordBoundary(std::any_of(merges.begin(), merges.end(), [](const MergePair& m) {
    return CrossesWords(m.first, m.second);
  }));
  return model;
}

BpeModel BpeModel::FromRanked(Vocab vocab, const std::vector<RankedMerge>& merges,
                              const std::vector<TokenId>& characters, BpeConfig config) {
  BpeModel model;
  model.vocab_ = std::move(vocab);
  model.config_ = std::move(config);
  model.merges_ = MergeTable(merges.size());
  for (const RankedMerge& m : merges) model.merges_.Set(m.left, m.right, m.merge);
  model.IndexBytes();
  for (const TokenId id : characters) model.AddCharacter(id);
  model.FindWordBoundary(std::any_of(merges.begin(), merges.end(), [&](const RankedMerge& m) {
    return CrossesWords(model.vocab_.Token(m.left), model.vocab_.Token(m.right));
  }));
  return model;
}

void BpeModel::IndexBytes() {
  if (config_.unk_token) unk_id_ = vocab_.Find(*config_.unk_token).value_or(-1);
  for (size_t b = 0; b < 256; ++b) {
    byte_ids_[b] = vocab_.Find(ByteAlphabet::Get().Symbol(static_cast<uint8_t>(b))).value_or(-1);
    char name[8];
    std::snprintf(name, sizeof name, "<0x%02zX>", b);
    fallback_ids_[b] = vocab_.Find(name).value_or(-1);
  }
  ascii_ids_.fill(-1);
}

void BpeModel::IndexCharacters() {
  for (TokenId id = 0; id < vocab_.end_id(); ++id) {
    const std::string_view token = vocab_.Token(id);
    if (!token.empty() && CharAt(token.data()).size == token.size()) AddCharacter(id);
  }
}

void BpeModel::AddCharacter(TokenId id) {
  const Char c = CharAt(vocab_.Token(id).data());
  if (c.code < 128) {
    ascii_ids_[c.code] = id;
  } else {
    character_ids_[c.code] = id;
  }
}

// Without a pre-tokenizer the whole text is one word (Llama 2). If no merge joins a token that
// starts with U+2581 to one that does not end with it, merging never crosses such a place, and the
// words between them can be encoded one by one with the same result.
void BpeModel::FindWordBoundary(bool merges_cross) {
  const bool has_mark = vocab_.Find(kMetaspace).has_value() && CharacterId(0x2581) >= 0;
  const bool unk_ends_so = config_.unk_token && config_.unk_token->ends_with(kMetaspace);
  splits_at_metaspace_ = has_mark && !unk_ends_so && !config_.pieces_are_bytes &&
                         !config_.ignore_merges && !merges_cross;
}

void BpeModel::Encode(std::string_view piece, ModelScratch& any_scratch,
                      std::vector<TokenId>& out) const {
  auto& scratch = static_cast<BpeScratch&>(any_scratch);
  if (!splits_at_metaspace_) return EncodeWord(piece, scratch, out);
  size_t begin = 0;
  while (begin < piece.size()) {
    size_t end = begin;
    while (piece.substr(end).starts_with(kMetaspace)) end += kMetaspace.size();
    end = std::min(piece.find(kMetaspace, end), piece.size());
    EncodeWord(piece.substr(begin, end - begin), scratch, out);
    begin = end;
  }
}

void BpeModel::EncodeWord(std::string_view word, BpeScratch& scratch,
                          std::vector<TokenId>& out) const {
  if (word.size() > WordCache::kMaxWordBytes) return EncodeUncached(word, scratch, out);
  std::array<uint64_t, 4> padded;
  WordCache::Entry& entry = scratch.cache.Find(word, padded);
  if (WordCache::Matches(entry, word, padded)) {
    out.insert(out.end(), entry.ids.begin(), entry.ids.begin() + entry.num_ids);
    return;
  }
  const size_t first = out.size();
  EncodeUncached(word, scratch, out);
  const size_t num_ids = out.size() - first;
  if (num_ids > WordCache::kMaxIds || scratch.unk_missing) return;
  entry.word = padded;
  entry.num_bytes = static_cast<uint8_t>(word.size());
  entry.num_ids = static_cast<uint8_t>(num_ids);
  std::copy(out.begin() + static_cast<ptrdiff_t>(first), out.end(), entry.ids.begin());
}

void BpeModel::EncodeUncached(std::string_view word, BpeScratch& scratch,
                              std::vector<TokenId>& out) const {
  if (config_.ignore_merges) {
    std::string_view spelled = word;
    if (config_.pieces_are_bytes) {
      scratch.spelled.clear();
      for (const char c : word) {
        scratch.spelled += ByteAlphabet::Get().Symbol(static_cast<uint8_t>(c));
      }
      spelled = scratch.spelled;
    }
    if (const auto id = vocab_.Find(spelled)) {
      out.push_back(*id);
      return;
    }
  }
  SplitCharacters(word, scratch);
  if (scratch.ids.size() <= kMaxShortWord) {
    MergeShort(scratch);
  } else {
    MergeLong(scratch);
  }
  out.insert(out.end(), scratch.ids.begin(), scratch.ids.end());
}

// The word's first tokens into scratch.ids. A character without a token becomes its <0xNN> bytes,
// else unk_token, else nothing. An unknown token waits until the next known character, so that
// fuse_unk can join several; byte tokens between overtake it, as in the `tokenizers` package.
void BpeModel::SplitCharacters(std::string_view word, BpeScratch& scratch) const {
  std::vector<TokenId>& ids = scratch.ids;
  ids.clear();
  bool unk_waits = false;
  for (size_t i = 0; i < word.size();) {
    TokenId id;
    std::string_view character;
    if (config_.pieces_are_bytes) {
      id = byte_ids_[static_cast<uint8_t>(word[i])];
      character = ByteAlphabet::Get().Symbol(static_cast<uint8_t>(word[i]));
      ++i;
    } else {
      const Char c = CharAt(word.data() + i);
      id = CharacterId(c.code);
      character = word.substr(i, c.size);
      i += c.size;
    }
    if (id >= 0) {
      if (unk_waits) ids.push_back(unk_id_);
      unk_waits = false;
      ids.push_back(id);
      continue;
    }
    if (config_.byte_fallback && FallBackToBytes(character, ids)) continue;
    if (!config_.unk_token) continue;
    if (unk_id_ < 0) {
      scratch.unk_missing = true;
      continue;
    }
    if (unk_waits && !config_.fuse_unk) ids.push_back(unk_id_);
    unk_waits = true;
  }
  if (unk_waits) ids.push_back(unk_id_);
}

bool BpeModel::CoversAll() const {
  const auto has_all = [](const std::array<TokenId, 256>& ids) {
    return std::ranges::none_of(ids, [](TokenId id) { return id < 0; });
  };
  if (config_.pieces_are_bytes && has_all(byte_ids_)) return true;
  if (config_.byte_fallback && !config_.pieces_are_bytes && has_all(fallback_ids_)) return true;
  return unk_id_ >= 0 && !config_.fuse_unk;
}

bool BpeModel::FallBackToBytes(std::string_view character, std::vector<TokenId>& ids) const {
  for (const char c : character) {
    if (fallback_ids_[static_cast<uint8_t>(c)] < 0) return false;
  }
  for (const char c : character) ids.push_back(fallback_ids_[static_cast<uint8_t>(c)]);
  return true;
}

TokenId BpeModel::CharacterId(char32_t code) const {
  if (code < 128) return ascii_ids_[code];
  const auto it = character_ids_.find(code);
  return it == character_ids_.end() ? -1 : it->second;
}

void BpeModel::MergeShort(BpeScratch& scratch) const {
  std::vector<TokenId>& ids = scratch.ids;
  if (ids.size() < 2) return;
  auto& merges = scratch.merges;  // merges[i]: of ids[i] and ids[i + 1]
  merges.resize(ids.size() - 1);
  for (size_t i = 0; i < merges.size(); ++i) merges[i] = merges_.Get(ids[i], ids[i + 1]);
  while (!merges.empty()) {
    size_t best = 0;
    for (size_t i = 1; i < merges.size(); ++i) {
      if (merges[i].rank < merges[best].rank) best = i;
    }
    if (merges[best].rank == MergeTable::kNoRank) return;
    ids[best] = merges[best].id;
    ids.erase(ids.begin() + static_cast<ptrdiff_t>(best) + 1);
    merges.erase(merges.begin() + static_cast<ptrdiff_t>(best));
    if (best < merges.size()) merges[best] = merges_.Get(ids[best], ids[best + 1]);
    if (best > 0) merges[best - 1] = merges_.Get(ids[best - 1], ids[best]);
  }
}

void BpeModel::MergeLong(BpeScratch& scratch) const {
  auto& nodes = scratch.nodes;
  auto& heap = scratch.heap;
  const auto count = static_cast<int32_t>(scratch.ids.size());
  nodes.resize(scratch.ids.size());
  heap.clear();
  const auto key = [&](int32_t i) {
    return static_cast<uint64_t>(nodes[static_cast<size_t>(i)].merge.rank) << 32 |
           static_cast<uint32_t>(i);
  };
  const auto node = [&](int32_t i) -> BpeScratch::Node& { return nodes[static_cast<size_t>(i)]; };
  for (int32_t i = 0; i < count; ++i) {
    node(i) = {scratch.ids[static_cast<size_t>(i)], i - 1, i + 1 < count ? i + 1 : -1, {}};
    if (i + 1 == count) break;
    node(i).merge = merges_.Get(node(i).id, scratch.ids[static_cast<size_t>(i) + 1]);
    if (node(i).merge.rank != MergeTable::kNoRank) heap.push_back(key(i));
  }
  std::make_heap(heap.begin(), heap.end(), std::greater<>());
  const auto refresh = [&](int32_t i) {
    node(i).merge =
        node(i).next < 0 ? MergeTable::Merge{} : merges_.Get(node(i).id, node(node(i).next).id);
    if (node(i).merge.rank == MergeTable::kNoRank) return;
    heap.push_back(key(i));
    std::push_heap(heap.begin(), heap.end(), std::greater<>());
  };
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    const uint64_t top = heap.back();
    heap.pop_back();
    const auto i = static_cast<int32_t>(top & UINT32_MAX);
    if (top != key(i)) continue;  // the pair has changed since
    const int32_t gone = node(i).next;
    node(i).id = node(i).merge.id;
    node(i).next = node(gone).next;
    node(gone).merge = {};
    if (node(i).next >= 0) node(node(i).next).prev = i;
    refresh(i);
    if (node(i).prev >= 0) refresh(node(i).prev);
  }
  scratch.ids.clear();
  for (int32_t i = 0; i >= 0; i = node(i).next) scratch.ids.push_back(node(i).id);
}

}  // namespace inflight::tokenizer
