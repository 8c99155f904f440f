// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/piece_trie.h"

#include <algorithm>
#include <span>
#include <string>

namespace inflight::tokenizer {

Status CheckPieceBytes(std::string_view piece) {
  if (piece.size() <= kMaxPieceBytes) return Status::Ok();
  return InvalidArgument("got " + std::to_string(piece.size()) + " bytes, allowed are " +
                         std::to_string(kMaxPieceBytes));
}

// Places the children of every node, breadth first, where they all fit.
class PieceTrie::Builder {
 public:
  explicit Builder(std::vector<Unit>& units) : units_(units) {
    Grow();
    units_[kRoot].parent = UINT32_MAX - 1;  // taken, and no node's child
  }

  // Entries are sorted by text and share their first `depth` bytes, which lead to `node`.
  struct Group {
    std::span<const Entry> entries;
    size_t depth;
    uint32_t node;
  };

  void Add(const Group& group, std::vector<Group>& next) {
    std::span<const Entry> rest = group.entries;
    if (!rest.empty() && rest.front().text.size() == group.depth) {
      units_[group.node].id = rest.front().id;
      units_[group.node].score = rest.front().score;
      rest = rest.subspan(1);
    }
    if (rest.empty()) return;
    bytes_.clear();
    groups_.clear();
    for (size_t begin = 0; begin < rest.size();) {
      const char byte = rest[begin].text[group.depth];
      size_t end = begin + 1;
      while (end < rest.size() && rest[end].text[group.depth] == byte) ++end;
      bytes_.push_back(static_cast<uint8_t>(byte));
      groups_.push_back(rest.subspan(begin, end - begin));
      begin = end;
    }
    const uint32_t base = Place();
    units_[group.node].base = base;
    for (size_t i = 0; i < bytes_.size(); ++i) {
      const uint32_t child = base ^ bytes_[i];
      units_[child].parent = group.node;
      next.push_back({groups_[i], group.depth + 1, child});
    }
  }

 private:
  void Grow() { units_.resize(units_.size() + 256); }

  bool IsFree(uint32_t unit) const { return units_[unit].parent == UINT32_MAX; }

  // A base for bytes_. Searches from the first free unit on; gives up what proved to be crowded.
  uint32_t Place() {
    while (first_free_ < units_.size() && !IsFree(first_free_)) ++first_free_;
    uint32_t seen = 0;
    for (uint32_t unit = first_free_;; ++unit) {
      if (unit >= units_.size()) Grow();
      if (++seen == kMaxSeen) first_free_ = unit;
      if (!IsFree(unit)) continue;
      const uint32_t base = unit ^ bytes_[0];
      if (std::all_of(bytes_.begin(), bytes_.end(),
                      [&](uint8_t byte) { return IsFree(base ^ byte); })) {
        return base;
      }
    }
  }

  static constexpr uint32_t kMaxSeen = 512;
  std::vector<Unit>& units_;
  uint32_t first_free_ = 1;
  std::vector<uint8_t> bytes_;
  std::vector<std::span<const Entry>> groups_;
};

PieceTrie::PieceTrie(std::vector<Entry> entries) {
  std::sort(entries.begin(), entries.end(),
            [](const Entry& a, const Entry& b) { return a.text < b.text; });
  Builder builder(units_);
  std::vector<Builder::Group> level = {{entries, 0, kRoot}}, next;
  while (!level.empty()) {
    for (const Builder::Group& group : level) builder.Add(group, next);
    level.swap(next);
    next.clear();
  }
}

}  // namespace inflight::tokenizer
