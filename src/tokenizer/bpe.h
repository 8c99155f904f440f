// SPDX-License-Identifier: Apache-2.0
// Byte-pair encoding: a word starts as its characters (or bytes); while any neighbours form a known
// merge, the pair of the lowest rank, leftmost first, becomes one token.
//
// Cost: n log n in the length of a word, whatever the word. Words of everyday length come from a
// cache. Threads: BpeModel is immutable; a BpeScratch belongs to one call at a time.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "inflight/request.h"
#include "inflight/status.h"
#include "tokenizer/merge_table.h"
#include "tokenizer/model.h"
#include "tokenizer/vocab.h"

namespace inflight::tokenizer {

// Recently encoded words and their ids: direct-mapped, fixed size.
class WordCache {
 public:
  static constexpr size_t kMaxWordBytes = 32;
  static constexpr size_t kMaxIds = 7;

  struct alignas(64) Entry {  // a cache line
    std::array<uint64_t, 4> word{};
    uint8_t num_bytes = 0;  // 0: free
    uint8_t num_ids = 0;
    std::array<TokenId, kMaxIds> ids{};
  };

  WordCache() : entries_(kNumEntries) {}

  // The place of `word` (1 to kMaxWordBytes bytes); holds it if Matches.
  Entry& Find(std::string_view word, std::array<uint64_t, 4>& padded);
  static bool Matches(const Entry& e, std::string_view word,
                      const std::array<uint64_t, 4>& padded) {
    return e.num_bytes == word.size() && e.word == padded;
  }

 private:
  static constexpr size_t kNumEntries = 16384;  // 1 MiB: stays in a core's second-level cache
  std::vector<Entry> entries_;
};

struct BpeScratch final : ModelScratch {
  struct Node {  // of long words: a list over positions
    TokenId id;
    int32_t prev, next;       // -1: none
    MergeTable::Merge merge;  // with the next node; kNoRank when there is none
  };
  WordCache cache;
  std::vector<TokenId> ids;
  std::vector<MergeTable::Merge> merges;
  std::vector<Node> nodes;
  std::vector<uint64_t> heap;  // rank << 32 | position, least first
  std::string spelled;

  size_t grown_bytes() const override {
    return ids.capacity() * sizeof(ids[0]) + merges.capacity() * sizeof(merges[0]) +
           nodes.capacity() * sizeof(nodes[0]) + heap.capacity() * sizeof(heap[0]) +
           spelled.capacity();
  }
};

struct BpeConfig {
  std::optional<std::string> unk_token;
  bool fuse_unk = false;
  bool byte_fallback = false;
  bool ignore_merges = false;
  bool pieces_are_bytes = false;  // pieces come as plain bytes, not in the byte alphabet
};

// Tokens `left` and `right` become `merge.id`. Several pairs may share a rank.
struct RankedMerge {
  TokenId left, right;
  MergeTable::Merge merge;
};

class BpeModel final : public Model {
 public:
  using MergePair = std::pair<std::string_view, std::string_view>;

  // kInvalidArgument: a merge of tokens that the vocabulary lacks.
  static Result<BpeModel> Create(Vocab vocab, const std::vector<MergePair>& merges,
                                 BpeConfig config);
  // By ids; a word starts as tokens of `characters`, ids of tokens of one character each, or where
  // pieces are bytes as those.
  static BpeModel FromRanked(Vocab vocab, const std::vector<RankedMerge>& merges,
                             const std::vector<TokenId>& characters, BpeConfig config);

  std::unique_ptr<ModelScratch> NewScratch() const override {
    return std::make_unique<BpeScratch>();
  }
  void Encode(std::string_view piece, ModelScratch& scratch,
              std::vector<TokenId>& out) const override;
  std::string_view kind() const override { return "BPE"; }
  bool CoversAll() const override;

 private:
  void IndexBytes();
  void IndexCharacters();
  void AddCharacter(TokenId id);
  void FindWordBoundary(bool merges_cross);
  void EncodeWord(std::string_view word, BpeScratch& scratch, std::vector<TokenId>& out) const;
  void EncodeUncached(std::string_view word, BpeScratch& scratch, std::vector<TokenId>& out) const;
  void SplitCharacters(std::string_view word, BpeScratch& scratch) const;
  bool FallBackToBytes(std::string_view character, std::vector<TokenId>& ids) const;
  TokenId CharacterId(char32_t code) const;
  void MergeShort(BpeScratch& scratch) const;
  void MergeLong(BpeScratch& scratch) const;

  MergeTable merges_;
  BpeConfig config_;
  TokenId unk_id_ = -1;
  std::array<TokenId, 256> byte_ids_{};      // of plain bytes, by the byte alphabet; -1: none
  std::array<TokenId, 256> fallback_ids_{};  // of <0x00> to <0xFF>; -1: none
  std::array<TokenId, 128> ascii_ids_{};     // of one-character tokens; -1: none
  std::unordered_map<char32_t, TokenId> character_ids_;  // the same beyond ASCII
  bool splits_at_metaspace_ = false;  // no merge crosses the start of a run of U+2581
};

}  // namespace inflight::tokenizer
