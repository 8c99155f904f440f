// SPDX-License-Identifier: Apache-2.0
#include "build_report.h"

#include <fmt/format.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <sstream>

#include "artifact/json_file.h"
#include "base/file.h"
#include "base/log.h"
#include "builder/accuracy.h"
#include "tokenizer/tokenizer.h"

namespace inflight::tool {
namespace {

constexpr char kHeldOut[] = "heldout.jsonl";

Result<std::string> DocumentOf(const std::string& line, const std::string& where) {
  ASSIGN_OR_RETURN(const nlohmann::json json, artifact::ParseJsonObject(line, where));
  artifact::JsonFields fields(where, json);
  std::string text = fields.Has("text")
                         ? fields.String("text")
                         : fields.String("text_input") + fields.StringOr("expected", "");
  RETURN_IF_ERROR(fields.status());
  return text;
}

Result<std::vector<std::string>> ReadDocuments(const std::filesystem::path& path) {
  ASSIGN_OR_RETURN(std::string text, ReadFile(path));
  if (path.extension() != ".jsonl") return std::vector{std::move(text)};
  std::vector<std::string> documents;
  std::istringstream in(text);
  std::string line;
  for (int number = 1; std::getline(in, line); ++number) {
    if (line.empty()) continue;
    ASSIGN_OR_RETURN(std::string document,
                     DocumentOf(line, fmt::format("{}:{}", path.string(), number)));
    documents.push_back(std::move(document));
  }
  return documents;
}

}  // namespace

Status PrintAccuracy(const builder::BuildOptions& build, const std::filesystem::path& text_file) {
  std::filesystem::path path = text_file;
  if (path.empty()) path = build.checkpoint_dir / kHeldOut;
  if (text_file.empty() && !FileExists(path))
    return InvalidArgument(fmt::format("--report-text: is needed: {} holds no {}",
                                       build.checkpoint_dir.string(), kHeldOut));
  ASSIGN_OR_RETURN(const std::vector<std::string> documents, ReadDocuments(path));
  ASSIGN_OR_RETURN(const auto tokenizer, tokenizer::Tokenizer::Load(build.checkpoint_dir));
  std::vector<std::vector<TokenId>> sequences;
  for (const std::string& document : documents) {
    ASSIGN_OR_RETURN(std::vector<TokenId> ids, tokenizer->Encode(document, true));
    sequences.push_back(std::move(ids));
  }
  logging::SetLevel(logging::Level::kWarning);  // four loads say the same four times
  const auto device = Device::Cpu();
  ASSIGN_OR_RETURN(
      const builder::AccuracyReport report,
      builder::MeasureAccuracy(build.checkpoint_dir,
                               {.dtype = build.dtype, .quant_algo = {}, .limits = build.limits},
                               sequences, *device));
  fmt::print("{}: {}", path.string(), report.ToString());
  std::fflush(stdout);
  return Status::Ok();
}

}  // namespace inflight::tool
