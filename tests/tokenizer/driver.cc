// SPDX-License-Identifier: Apache-2.0
// The tokenizer at the other end of a pipe, for tests and benches: JSON lines in, JSON lines out.
//
//   {"op": "load", "path": FILE or DIR}                    -> {"vocab_size": n, "bos_id": ..., ...}
//   {"op": "encode", "text": T, "add_special_tokens": b}   -> {"ids": [...]}
//   {"op": "decode", "ids": [...], "skip_special_tokens": b} -> {"text": T}
//   {"op": "detokenize", "chunks": [[...], ...], "skip_special_tokens": b}
//                                  -> {"pieces": [T, ...]}, one per chunk and one for the end
//   {"op": "time_encode", "path": FILE, "repeats": n}      -> {"seconds": [...], "num_ids": n}
//
// time_encode reads FILE as a JSON array of texts, encodes each by a call of its own and times
// whole passes on the monotonic clock. A failure is {"error": message}.
#include <chrono>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "base/file.h"
#include "base/status_macros.h"
#include "inflight/tokenizer.h"

namespace inflight::tokenizer {
namespace {

using Json = nlohmann::json;
using TokenizerPtr = std::shared_ptr<const Tokenizer>;

Json Optional(const std::optional<TokenId>& id) { return id ? Json(*id) : Json(); }

Result<Json> Load(const Json& request, TokenizerPtr& tokenizer) {
  const std::filesystem::path path = request.at("path").get<std::string>();
  if (std::filesystem::is_directory(path)) {
    ASSIGN_OR_RETURN(tokenizer, Tokenizer::Load(path));
  } else {
    ASSIGN_OR_RETURN(const std::string json, ReadFile(path));
    ASSIGN_OR_RETURN(tokenizer, Tokenizer::FromJson(json));
  }
  return Json{{"vocab_size", tokenizer->vocab_size()},
              {"bos_id", Optional(tokenizer->bos_id())},
              {"eos_id", Optional(tokenizer->eos_id())},
              {"pad_id", Optional(tokenizer->pad_id())}};
}

Result<Json> Encode(const Json& request, const Tokenizer& tokenizer) {
  ASSIGN_OR_RETURN(const auto ids, tokenizer.Encode(request.at("text").get<std::string>(),
                                                    request.at("add_special_tokens").get<bool>()));
  return Json{{"ids", ids}};
}

Json Decode(const Json& request, const Tokenizer& tokenizer) {
  return {{"text", tokenizer.Decode(request.at("ids").get<std::vector<TokenId>>(),
                                    request.at("skip_special_tokens").get<bool>())}};
}

Json Detokenize(const Json& request, const TokenizerPtr& tokenizer) {
  Detokenizer detokenizer(tokenizer, request.at("skip_special_tokens").get<bool>());
  Json pieces = Json::array();
  for (const Json& chunk : request.at("chunks")) {
    pieces.push_back(detokenizer.Append(chunk.get<std::vector<TokenId>>()));
  }
  pieces.push_back(detokenizer.Finish());
  return {{"pieces", pieces}};
}

Result<Json> TimeEncode(const Json& request, const Tokenizer& tokenizer) {
  using Clock = std::chrono::steady_clock;
  ASSIGN_OR_RETURN(const std::string file, ReadFile(request.at("path").get<std::string>()));
  const auto texts = Json::parse(file).get<std::vector<std::string>>();
  std::vector<double> seconds;
  size_t num_ids = 0;
  for (int i = 0; i < request.at("repeats").get<int>(); ++i) {
    num_ids = 0;
    const auto start = Clock::now();
    for (const std::string& text : texts) {
      ASSIGN_OR_RETURN(const auto ids, tokenizer.Encode(text, /*add_special_tokens=*/false));
      num_ids += ids.size();
    }
    seconds.push_back(std::chrono::duration<double>(Clock::now() - start).count());
  }
  return Json{{"seconds", seconds}, {"num_ids", num_ids}};
}

Result<Json> Handle(const Json& request, TokenizerPtr& tokenizer) {
  const auto op = request.at("op").get<std::string>();
  if (op == "load") return Load(request, tokenizer);
  if (!tokenizer) return FailedPrecondition("op: load comes first");
  if (op == "encode") return Encode(request, *tokenizer);
  if (op == "decode") return Decode(request, *tokenizer);
  if (op == "detokenize") return Detokenize(request, tokenizer);
  if (op == "time_encode") return TimeEncode(request, *tokenizer);
  return InvalidArgument("op: unknown: " + op);
}

}  // namespace
}  // namespace inflight::tokenizer

int main() {
  using inflight::tokenizer::Json;
  inflight::tokenizer::TokenizerPtr tokenizer;
  for (std::string line; std::getline(std::cin, line);) {
    const auto reply = inflight::tokenizer::Handle(Json::parse(line), tokenizer);
    std::cout << (reply.ok() ? *reply : Json{{"error", reply.status().ToString()}}).dump()
              << std::endl;
  }
}
