// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/tiktoken_ranks.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/base64.h"
#include "base/status_macros.h"
#include "tokenizer/bpe.h"
#include "tokenizer/unicode.h"

namespace inflight::tokenizer {
namespace {

// Tokens can be cut into two in several ways; published vocabularies have three to five of them a
// token.
constexpr size_t kMostMergesPerToken = 32;
constexpr size_t kMergesOfSmallFiles = 65536;

constexpr std::string_view kTakeWholeFile = " (take a whole copy of the file)";

// Calls `read(number, line)`, which gives a Status, for each line that is not empty.
template <typename Read>
Status ForEachLine(std::string_view file, const Read& read) {
  for (size_t number = 1; !file.empty(); ++number) {
    const size_t end = std::min(file.find('\n'), file.size());
    std::string_view line = file.substr(0, end);
    file.remove_prefix(std::min(end + 1, file.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (!line.empty()) RETURN_IF_ERROR(read(number, line));
  }
  return Status::Ok();
}

Status RefuseLine(size_t number, const std::string& what) {
  return InvalidArgument("line " + std::to_string(number) + ": " + what +
                         std::string(kTakeWholeFile));
}

struct RankedBytes {
  std::string bytes;
  int64_t rank;
};

Result<RankedBytes> ReadLine(size_t number, std::string_view line) {
  const size_t blank = line.find(' ');
  if (blank == std::string_view::npos)
    return RefuseLine(number, "must be base64, a blank and a rank");
  const std::string_view digits = line.substr(blank + 1);
  uint32_t rank = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), rank);
  if (digits.empty() || error != std::errc() || end != digits.data() + digits.size())
    return RefuseLine(
        number, "got rank \"" + std::string(digits.substr(0, 100)) + "\", a number is needed");
  auto bytes = DecodeBase64(line.substr(0, blank));
  if (!bytes) return RefuseLine(number, "what stands before the blank is not base64");
  if (bytes->empty()) return RefuseLine(number, "the token has no bytes");
  if (bytes->size() > kMaxRankedTokenBytes)
    return RefuseLine(number, "got a token of " + std::to_string(bytes->size()) +
                                  " bytes, allowed are " + std::to_string(kMaxRankedTokenBytes));
  return RankedBytes{*std::move(bytes), rank};
}

Status CheckNumberOfLines(size_t num_lines) {
  constexpr size_t kMost = static_cast<size_t>(kMaxTokenId) + 1;
  if (num_lines > kMost)
    return InvalidArgument("got " + std::to_string(num_lines) + " tokens, allowed are " +
                           std::to_string(kMost));
  return Status::Ok();
}

// Tokens in the byte alphabet, by rank.
Result<Vocab> ReadLines(std::string_view file) {
  int64_t num_lines = 0;
  RETURN_IF_ERROR(ForEachLine(file, [&](size_t, std::string_view) {
    ++num_lines;
    return Status::Ok();
  }));
  RETURN_IF_ERROR(CheckNumberOfLines(static_cast<size_t>(num_lines)));
  Vocab vocab;
  RETURN_IF_ERROR(ForEachLine(file, [&](size_t number, std::string_view line) -> Status {
    ASSIGN_OR_RETURN(const RankedBytes token, ReadLine(number, line));
    const std::string rank = std::to_string(token.rank);
    if (token.rank >= num_lines)
      return RefuseLine(number, "got rank " + rank + ", the ranks of " + std::to_string(num_lines) +
                                    " tokens are 0 to " + std::to_string(num_lines - 1) +
                                    " without a gap");
    if (vocab.Has(static_cast<TokenId>(token.rank)))
      return RefuseLine(number, "got rank " + rank + ", which is that of a line before too");
    const std::string spelled = ByteAlphabet::Get().Spell(token.bytes);
    if (const auto other = vocab.Find(spelled))
      return RefuseLine(number, "the token of rank " + rank + " has the bytes of that of rank " +
                                    std::to_string(*other));
    return vocab.Add(spelled, token.rank);
  }));
  for (unsigned byte = 0; byte < 256; ++byte) {
    if (!vocab.Find(ByteAlphabet::Get().Symbol(static_cast<uint8_t>(byte))))
      return InvalidArgument("no line has the single byte " + std::to_string(byte) +
                             ", which every file has" + std::string(kTakeWholeFile));
  }
  return vocab;
}

Result<std::vector<RankedMerge>> MergesOf(const Vocab& vocab) {
  const size_t max_merges = kMergesOfSmallFiles + kMostMergesPerToken * vocab.size();
  std::vector<RankedMerge> merges;
  for (TokenId id = 0; id < vocab.end_id(); ++id) {
    const std::string_view token = vocab.Token(id);
    for (size_t cut = CharAt(token.data()).size; cut < token.size();
         cut += CharAt(token.data() + cut).size) {
      const auto left = vocab.Find(token.substr(0, cut));
      if (!left) continue;
      const auto right = vocab.Find(token.substr(cut));
      if (!right) continue;
      merges.push_back({*left, *right, {static_cast<uint32_t>(id), id}});
    }
    if (merges.size() > max_merges)
      return InvalidArgument("the tokens can be cut into two tokens in more than " +
                             std::to_string(max_merges) + " ways, which is the most that " +
                             std::to_string(vocab.size()) + " tokens may have");
  }
  return merges;
}

}  // namespace

bool BeginsAsRanks(std::string_view file) {
  // A SentencePiece model begins with the tag of a field, none of which is a character of base64.
  if (file.empty()) return false;
  const char c = file.front();
  return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '+' ||
         c == '/';
}

Result<std::shared_ptr<const Model>> ReadRanks(std::string_view file) {
  if (file.size() > kMaxRankFileBytes)
    return InvalidArgument("got " + std::to_string(file.size()) + " bytes, allowed are " +
                           std::to_string(kMaxRankFileBytes));
  ASSIGN_OR_RETURN(Vocab vocab, ReadLines(file));
  ASSIGN_OR_RETURN(const auto merges, MergesOf(vocab));
  return std::shared_ptr<const Model>(std::make_shared<BpeModel>(
      BpeModel::FromRanked(std::move(vocab), merges, /*characters=*/{},
                           {.ignore_merges = true, .pieces_are_bytes = true})));
}

}  // namespace inflight::tokenizer
