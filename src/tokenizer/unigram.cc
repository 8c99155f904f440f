// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/unigram.h"

#include <algorithm>
#include <cfloat>
#include <cmath>

#include "base/status_macros.h"
#include "tokenizer/unicode.h"

namespace inflight::tokenizer {
namespace {

using Node = UnigramScratch::Node;
using Type = SentencePieceProto::Type;

constexpr float kUnkPenalty = 10;    // below the least score of a normal piece
constexpr float kMaxScore = 100000;  // sums beyond are re-based, so that they keep their precision

// User-defined pieces win by a score that grows with their bytes.
float ScoreOf(const SentencePieceProto::Piece& piece) {
  if (piece.type != Type::kUserDefined) return piece.score;
  return static_cast<float>(0.1 * static_cast<double>(piece.text.size() - 1));
}

}  // namespace

Result<std::shared_ptr<const UnigramModel>> UnigramModel::Create(const SentencePieceProto& proto) {
  auto model = std::make_shared<UnigramModel>();
  std::vector<PieceTrie::Entry> entries;
  float least = FLT_MAX;
  for (size_t i = 0; i < proto.pieces.size(); ++i) {
    const auto& piece = proto.pieces[i];
    const auto id = static_cast<TokenId>(i);
    RETURN_IF_ERROR(model->vocab_.Add(piece.text, id));
    if (piece.type == Type::kNormal) least = std::min(least, piece.score);
    if (piece.type != Type::kNormal && piece.type != Type::kUserDefined) continue;
    entries.push_back({piece.text, id, ScoreOf(piece)});
  }
  model->trie_ = PieceTrie(std::move(entries));
  model->unknown_ = UnknownPieces(proto);
  model->unk_score_ = least - kUnkPenalty;
  return std::shared_ptr<const UnigramModel>(std::move(model));
}

void UnigramModel::FindBestCut(std::string_view text, std::vector<Node>& nodes) const {
  nodes.assign(text.size() + 1, {0, -1, -1});
  const auto offer = [&nodes](size_t end, size_t begin, float score, TokenId id) {
    Node& node = nodes[end];
    if (node.begin < 0 || score > node.score) node = {score, static_cast<int32_t>(begin), id};
  };
  size_t furthest = 0;  // end of a piece seen so far
  for (size_t begin = 0; begin < text.size();) {
    float so_far = nodes[begin].score;
    if (std::fabs(so_far) > kMaxScore) {
      nodes[begin].score = 0;
      for (size_t i = begin + 1; i <= furthest; ++i) {
        if (nodes[i].begin >= 0) nodes[i].score -= so_far;
      }
      so_far = 0;
    }
    const uint32_t size = CharAt(text.data() + begin).size;
    bool has_single = false;
    uint32_t trie_node = PieceTrie::kRoot;
    for (size_t end = begin; end < text.size();) {
      const PieceTrie::Unit* unit = trie_.Step(trie_node, static_cast<uint8_t>(text[end]));
      if (unit == nullptr) break;
      ++end;
      if (unit->id < 0) continue;
      offer(end, begin, unit->score + so_far, unit->id);
      furthest = std::max(furthest, end);
      has_single |= end - begin == size;
    }
    if (!has_single) {
      offer(begin + size, begin, unk_score_ + so_far, -1);
      furthest = std::max(furthest, begin + size);
    }
    begin += size;
  }
}

void UnigramModel::Encode(std::string_view piece, ModelScratch& any_scratch,
                          std::vector<TokenId>& out) const {
  auto& scratch = static_cast<UnigramScratch&>(any_scratch);
  FindBestCut(piece, scratch.nodes);
  scratch.ends.clear();
  for (auto end = static_cast<int32_t>(piece.size()); end > 0;) {
    scratch.ends.push_back(end);
    end = scratch.nodes[static_cast<size_t>(end)].begin;
  }
  bool after_unknown = false;
  for (size_t i = scratch.ends.size(); i-- > 0;) {
    const auto end = static_cast<size_t>(scratch.ends[i]);
    const Node& node = scratch.nodes[end];
    if (node.id >= 0) {
      out.push_back(node.id);
    } else {
      const auto begin = static_cast<size_t>(node.begin);
      unknown_.Append(piece.substr(begin, end - begin), after_unknown, out);
    }
    after_unknown = node.id < 0;
  }
}

}  // namespace inflight::tokenizer
