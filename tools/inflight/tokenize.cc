// SPDX-License-Identifier: Apache-2.0
// inflight tokenize: text <-> ids, a line each.
#include <charconv>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "base/status_macros.h"
#include "command_line.h"
#include "commands.h"
#include "inflight/tokenizer.h"
#include "model_directory.h"

namespace inflight::tool {
namespace {

const Usage kUsage = {
    "inflight tokenize DIR --input FILE [--decode] [--json]",
    "Prints the token ids of each line of a file, or with --decode the text of each line of ids."};

struct Options {
  std::string input = "-";
  bool decode = false;
  bool json = false;
  bool add_special_tokens = true;
  bool skip_special_tokens = true;
};

config::Schema<Options> MakeSchema() {
  config::Schema<Options> schema;
  schema.Section("Tokenize");
  schema.Add(
      "input", [](Options& o) -> auto& { return o.input; }, "File of lines; - is standard input.");
  schema.Add(
      "decode", [](Options& o) -> auto& { return o.decode; }, "Lines are ids, print their text.",
      config::Switch());
  schema.Add(
      "json", [](Options& o) -> auto& { return o.json; },
      "Texts are JSON strings, which may have line breaks.", config::Switch());
  schema.Add(
      "add_special_tokens", [](Options& o) -> auto& { return o.add_special_tokens; },
      "Add what the tokenizer puts around a prompt (BOS).");
  schema.Add(
      "skip_special_tokens", [](Options& o) -> auto& { return o.skip_special_tokens; },
      "Leave special tokens out of decoded text.");
  return schema;
}

Result<std::vector<TokenId>> ParseIds(std::string_view line) {
  std::vector<TokenId> ids;
  const char* at = line.data();
  const char* end = at + line.size();
  while (at != end) {
    if (*at == ' ' || *at == ',' || *at == '\t') {
      ++at;
      continue;
    }
    TokenId id = 0;
    const auto [next, error] = std::from_chars(at, end, id);
    if (error != std::errc())
      return InvalidArgument("not a list of token ids: '" + std::string(at, end) + "'");
    ids.push_back(id);
    at = next;
  }
  return ids;
}

Result<std::string> ParseText(const std::string& line) {
  const auto text = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!text.is_string()) return InvalidArgument("not a JSON string: '" + line + "'");
  return text.get<std::string>();
}

// Bytes that are no text become U+FFFD.
std::string ToJson(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', /*ensure_ascii=*/false,
                                   nlohmann::json::error_handler_t::replace);
}

Status ProcessLine(const Tokenizer& tokenizer, const Options& options, const std::string& line) {
  if (options.decode) {
    ASSIGN_OR_RETURN(const std::vector<TokenId> ids, ParseIds(line));
    for (const TokenId id : ids)
      if (id < 0 || id >= tokenizer.vocab_size())
        return InvalidArgument("got id " + std::to_string(id) + ", the vocabulary has ids 0 to " +
                               std::to_string(tokenizer.vocab_size() - 1));
    const std::string text = tokenizer.Decode(ids, options.skip_special_tokens);
    std::cout << (options.json ? ToJson(text) : text) << '\n';
    return Status::Ok();
  }
  std::string text = line;
  if (options.json) {
    ASSIGN_OR_RETURN(text, ParseText(line));
  }
  ASSIGN_OR_RETURN(const std::vector<TokenId> ids,
                   tokenizer.Encode(text, options.add_special_tokens));
  for (size_t i = 0; i < ids.size(); ++i) std::cout << (i > 0 ? " " : "") << ids[i];
  std::cout << '\n';
  return Status::Ok();
}

Status Run(const Options& options, std::span<const std::string> positionals) {
  ASSIGN_OR_RETURN(const std::string dir, OnlyPositional(kUsage, positionals, "model directory"));
  ASSIGN_OR_RETURN(const std::filesystem::path model_dir, ModelDirectory(dir));
  ASSIGN_OR_RETURN(const auto tokenizer, Tokenizer::Load(model_dir));
  std::ifstream file;
  if (options.input != "-") {
    file.open(options.input);
    if (!file) return NotFound("--input: cannot open '" + options.input + "'");
  }
  std::istream& in = options.input == "-" ? std::cin : file;
  std::string line;
  for (int64_t number = 1; std::getline(in, line); ++number) {
    if (Status status = ProcessLine(*tokenizer, options, line); !status.ok())
      return status.WithPrefix("line " + std::to_string(number));
  }
  if (in.bad() || (options.input == "-" && std::ferror(stdin) != 0))
    return Unavailable("--input: '" + options.input + "' cannot be read");
  return Status::Ok();
}

}  // namespace

int TokenizeMain(Args args) { return RunCommand(args, kUsage, MakeSchema(), Run); }

Manual TokenizeManual() { return {kUsage, MakeSchema().options()}; }

}  // namespace inflight::tool
