// SPDX-License-Identifier: Apache-2.0
#include "build_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <sstream>

#include "artifact/json_file.h"
#include "base/file.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "builder/accuracy.h"
#include "inflight/tokenizer.h"

namespace inflight::tool {
namespace {

constexpr char kHeldOut[] = "heldout_text.jsonl";

struct Document {
  std::string text;
  size_t context_bytes = 0;  // that are not scored
};

Result<Document> DocumentOf(const std::string& line, const std::string& where) {
  ASSIGN_OR_RETURN(const nlohmann::json json, artifact::ParseJsonObject(line, where));
  artifact::JsonFields fields(where, json);
  Document document;
  if (fields.Has("text")) {
    document.text = fields.String("text");
  } else {
    document.text = fields.String("text_input");
    document.context_bytes = document.text.size();
    document.text += fields.String("expected");
  }
  RETURN_IF_ERROR(fields.status());
  return document;
}

Result<std::vector<Document>> ReadDocuments(const std::filesystem::path& path) {
  ASSIGN_OR_RETURN(std::string text, ReadFile(path));
  if (path.extension() != ".jsonl") return std::vector{Document{std::move(text), 0}};
  std::vector<Document> documents;
  std::istringstream in(text);
  std::string line;
  for (int number = 1; std::getline(in, line); ++number) {
    if (line.empty()) continue;
    ASSIGN_OR_RETURN(Document document,
                     DocumentOf(line, fmt::format("{}:{}", path.string(), number)));
    documents.push_back(std::move(document));
  }
  return documents;
}

// Scored from the first token on that is not the context's alone.
Result<builder::ScoredText> Encode(const Tokenizer& tokenizer, const Document& document) {
  builder::ScoredText out;
  ASSIGN_OR_RETURN(out.ids, tokenizer.Encode(document.text, /*add_special_tokens=*/true));
  ASSIGN_OR_RETURN(const std::vector<TokenId> context,
                   tokenizer.Encode(document.text.substr(0, document.context_bytes),
                                    /*add_special_tokens=*/true));
  const auto [end, unused] = std::ranges::mismatch(context, out.ids);
  out.first_scored = std::max<size_t>(1, static_cast<size_t>(end - context.begin()));
  return out;
}

}  // namespace

Status PrintAccuracy(const builder::BuildOptions& build, const std::filesystem::path& text_file) {
  std::filesystem::path path = text_file;
  if (path.empty()) path = build.checkpoint_dir / kHeldOut;
  if (text_file.empty() && !FileExists(path))
    return InvalidArgument(fmt::format("--report-text: is needed: {} holds no {}",
                                       build.checkpoint_dir.string(), kHeldOut));
  ASSIGN_OR_RETURN(const std::vector<Document> documents, ReadDocuments(path));
  ASSIGN_OR_RETURN(const auto tokenizer, Tokenizer::Load(build.checkpoint_dir));
  std::vector<builder::ScoredText> texts;
  for (const Document& document : documents) {
    ASSIGN_OR_RETURN(builder::ScoredText scored, Encode(*tokenizer, document));
    texts.push_back(std::move(scored));
  }
  logging::SetLevel(logging::Level::kWarning);  // four loads say the same four times
  const auto host = Device::Cpu();
  std::unique_ptr<Device> gpu;
  if (build.target == DeviceKind::kCuda) {
    ASSIGN_OR_RETURN(gpu, Device::ByName("cuda"));
  }
  ASSIGN_OR_RETURN(
      const builder::AccuracyReport report,
      builder::MeasureAccuracy(build.checkpoint_dir,
                               {.dtype = build.dtype, .quant_algo = {}, .limits = build.limits},
                               texts, *host, gpu.get()));
  fmt::print("{}: {}", path.string(), report.ToString());
  std::fflush(stdout);
  return Status::Ok();
}

}  // namespace inflight::tool
