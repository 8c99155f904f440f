// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/unigram.h"

#include <algorithm>
#include <cfloat>

#include "base/status_macros.h"

namespace inflight::tokenizer {
namespace {

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

void UnigramModel::Encode(std::string_view piece, ModelScratch& any_scratch,
                          std::vector<TokenId>& out) const {
  auto& scratch = static_cast<CutScratch<float>&>(any_scratch);
  const CutRules<float> rules{.unknown_score = unk_score_, .unknown_id = -1, .max_sum = kMaxScore};
  FindBestCut(
      piece, trie_, [](const PieceTrie::Unit& unit) { return unit.score; }, rules, scratch.nodes);
  TraceCut(scratch.nodes, scratch.ends);
  bool after_unknown = false;
  for (size_t i = scratch.ends.size(); i-- > 0;) {
    const auto end = static_cast<size_t>(scratch.ends[i]);
    const CutNode<float>& node = scratch.nodes[end];
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
