// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/json_unigram.h"

#include <algorithm>
#include <cstdio>
#include <limits>
#include <string>

#include "base/status_macros.h"

namespace inflight::tokenizer {
namespace {

constexpr double kUnknownPenalty = 10;  // below the least score of the vocabulary

}  // namespace

Result<std::shared_ptr<const JsonUnigramModel>> JsonUnigramModel::Create(
    const std::vector<Piece>& pieces, std::optional<TokenId> unk_id, bool byte_fallback) {
  auto model = std::make_shared<JsonUnigramModel>();
  std::vector<PieceTrie::Entry> entries;
  double least = std::numeric_limits<double>::infinity();
  for (size_t i = pieces.size(); i-- > 0;) {  // from the end: the last of equal ones is found
    const Piece& piece = pieces[i];
    if (const Status checked = CheckPieceBytes(piece.text); !checked.ok())
      return checked.WithPrefix("vocab[" + std::to_string(i) + "]");
    const auto id = static_cast<int64_t>(i);
    least = std::min(least, piece.score);
    if (model->vocab_.Find(piece.text)) {
      RETURN_IF_ERROR(model->vocab_.AddHomonym(piece.text, id));
      continue;
    }
    RETURN_IF_ERROR(model->vocab_.Add(piece.text, id));
    if (!piece.text.empty()) entries.push_back({piece.text, static_cast<TokenId>(i), 0});
  }
  model->trie_ = PieceTrie(std::move(entries));
  for (const Piece& piece : pieces) model->scores_.push_back(piece.score);
  model->unk_score_ = least - kUnknownPenalty;
  model->unk_id_ = unk_id.value_or(-1);
  model->byte_ids_.fill(-1);
  for (unsigned byte = 0; byte_fallback && byte < 256; ++byte) {
    char name[8];
    std::snprintf(name, sizeof name, "<0x%02X>", byte);
    model->byte_ids_[byte] = model->vocab_.Find(name).value_or(-1);
  }
  model->has_all_bytes_ = std::ranges::none_of(model->byte_ids_, [](TokenId id) { return id < 0; });
  return std::shared_ptr<const JsonUnigramModel>(std::move(model));
}

void JsonUnigramModel::AppendUnknown(std::string_view run, std::vector<TokenId>& out) const {
  if (const auto id = vocab_.Find(run)) {
    out.push_back(*id);
    return;
  }
  const size_t begin = out.size();
  for (const char c : run) {
    const TokenId id = byte_ids_[static_cast<uint8_t>(c)];
    if (id < 0) {
      out.resize(begin);
      out.push_back(unk_id_);
      return;
    }
    out.push_back(id);
  }
}

void JsonUnigramModel::Encode(std::string_view piece, ModelScratch& any_scratch,
                              std::vector<TokenId>& out) const {
  auto& scratch = static_cast<CutScratch<double>&>(any_scratch);
  const CutRules<double> rules{.unknown_score = unk_score_,
                               .unknown_id = unk_id_,
                               .max_sum = std::numeric_limits<double>::infinity()};
  const bool took_unknown = FindBestCut(
      piece, trie_,
      [this](const PieceTrie::Unit& unit) { return scores_[static_cast<size_t>(unit.id)]; }, rules,
      scratch.nodes);
  if (took_unknown && unk_id_ < 0) {
    scratch.unk_missing = true;
    return;
  }
  TraceCut(scratch.nodes, scratch.ends);
  size_t begin = 0, run_begin = 0;  // [run_begin, begin) is unknown
  for (size_t i = scratch.ends.size(); i-- > 0;) {
    const auto end = static_cast<size_t>(scratch.ends[i]);
    const TokenId id = scratch.nodes[end].id;
    if (unk_id_ < 0 || id != unk_id_) {
      if (run_begin < begin) AppendUnknown(piece.substr(run_begin, begin - run_begin), out);
      out.push_back(id);
      run_begin = end;
    }
    begin = end;
  }
  if (run_begin < begin) AppendUnknown(piece.substr(run_begin, begin - run_begin), out);
}

}  // namespace inflight::tokenizer
