// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/word_piece.h"

#include <algorithm>
#include <utility>

#include "tokenizer/word_level.h"

namespace inflight::tokenizer {
namespace {

uint64_t CountCharacters(std::string_view text) {
  return static_cast<uint64_t>(
      std::ranges::count_if(text, [](char c) { return (static_cast<uint8_t>(c) & 0xC0) != 0x80; }));
}

}  // namespace

Result<std::shared_ptr<const WordPieceModel>> WordPieceModel::Create(Vocab vocab,
                                                                     WordPieceConfig config) {
  auto model = std::make_shared<WordPieceModel>();
  std::vector<PieceTrie::Entry> entries;
  for (TokenId id = 0; id < vocab.end_id(); ++id) {
    const std::string_view token = vocab.Token(id);
    if (token.empty()) continue;
    if (const Status checked = CheckPieceBytes(token); !checked.ok())
      return checked.WithPrefix("vocab[\"" + std::string(token.substr(0, 100)) + "...\"]");
    entries.push_back({token, id, 0});
  }
  model->trie_ = PieceTrie(std::move(entries));
  model->unk_id_ = vocab.Find(config.unk_token);
  model->vocab_ = std::move(vocab);
  uint32_t node = PieceTrie::kRoot;
  const bool is_path = std::ranges::all_of(config.continuing_subword_prefix, [&](char c) {
    return model->trie_.Step(node, static_cast<uint8_t>(c)) != nullptr;
  });
  if (is_path) model->continuation_root_ = node;
  model->config_ = std::move(config);
  return std::shared_ptr<const WordPieceModel>(std::move(model));
}

std::unique_ptr<ModelScratch> WordPieceModel::NewScratch() const {
  return std::make_unique<NoScratch>();
}

bool WordPieceModel::AppendPieces(std::string_view word, std::vector<TokenId>& out) const {
  uint32_t root = PieceTrie::kRoot;
  for (size_t begin = 0; begin < word.size();) {
    uint32_t node = root;
    TokenId longest = -1;
    size_t longest_end = begin;
    for (size_t end = begin; end < word.size();) {
      const PieceTrie::Unit* unit = trie_.Step(node, static_cast<uint8_t>(word[end]));
      if (unit == nullptr) break;
      ++end;
      if (unit->id < 0) continue;
      longest = unit->id;
      longest_end = end;
    }
    if (longest < 0) return false;
    out.push_back(longest);
    begin = longest_end;
    if (begin < word.size() && !continuation_root_) return false;
    root = continuation_root_.value_or(root);
  }
  return true;
}

void WordPieceModel::Encode(std::string_view piece, ModelScratch& scratch,
                            std::vector<TokenId>& out) const {
  const size_t num_before = out.size();
  if (CountCharacters(piece) <= config_.max_input_chars_per_word && AppendPieces(piece, out)) {
    return;
  }
  out.resize(num_before);
  if (unk_id_) {
    out.push_back(*unk_id_);
  } else {
    scratch.unk_missing = true;
  }
}

}  // namespace inflight::tokenizer
