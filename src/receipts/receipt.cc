// SPDX-License-Identifier: Apache-2.0
#include "receipts/receipt.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>
#include <type_traits>
#include <utility>

#include "base/status_macros.h"
#include "receipts/hashes.h"
#include "receipts/request_members.h"

namespace inflight::receipts {
namespace {

constexpr size_t kPartDigits = 16;
constexpr int kMostNested = 4;  // objects and lists around a receipt

void WriteOption(const std::string& text, json::Writer& out) { out.String(text); }
void WriteOption(int number, json::Writer& out) { out.Int(number); }
void WriteOption(const std::vector<int>& list, json::Writer& out) { WriteIds(list, out); }
void WriteOption(const std::optional<bool>& value, json::Writer& out) {
  value ? out.Bool(*value) : out.Null();
}
void WriteOption(const std::optional<int>& value, json::Writer& out) {
  value ? out.Int(*value) : out.Null();
}

// --- the canonical texts of the parts, in the order of the receipt ---

std::string ModelText(const Receipt& receipt) {
  const EngineRecord& engine = receipt.engine;
  std::string text;
  json::Writer out(text);
  out.BeginObject().Key("weights").String(engine.weights);
  out.Key("architecture").String(engine.architecture);
  out.Key("quant_algo").String(engine.quant_algo);
  out.Key("adapter");
  receipt.adapter.empty() ? out.Null() : out.String(receipt.adapter);
  out.Key("options").BeginObject();
  ForEachOption([&](std::string_view name, const auto& of) {
    if constexpr (std::is_same_v<std::decay_t<decltype(of(engine.open))>, std::optional<int>>)
      if (IsLeftOutUnset(name) && !of(engine.open)) return;
    out.Key(name);
    WriteOption(of(engine.open), out);
  });
  out.EndObject().EndObject();
  return text;
}

std::string KernelsText(const Receipt& receipt) {
  const Kernels& kernels = receipt.engine.kernels;
  std::string text;
  json::Writer out(text);
  out.BeginObject().Key("table").String(kernels.table).Key("device").String(kernels.device);
  out.Key("dtype").String(kernels.dtype).Key("program").String(kernels.program).EndObject();
  return text;
}

std::string PromptText(const Receipt& receipt) {
  std::string text;
  json::Writer out(text);
  out.BeginObject().Key("num_tokens").Int(receipt.num_prompt_tokens);
  out.Key("hash").String(receipt.prompt).Key("ids");
  receipt.has_ids ? WriteIds(receipt.request.input_ids, out) : void(out.Null());
  out.EndObject();
  return text;
}

std::string ParametersText(const Receipt& receipt) {
  std::string text;
  json::Writer out(text);
  out.BeginObject();
  WriteRequest(receipt.request, out);
  out.EndObject();
  return text;
}

std::string OutputsText(const Receipt& receipt) {
  std::string text;
  json::Writer out(text);
  out.BeginArray();
  for (const SequenceRecord& sequence : receipt.outputs) {
    WriteIds(sequence.ids, out.BeginObject().Key("ids"));
    out.Key("end").String(sequence.end).Key("log_probs");
    sequence.log_probs.empty() ? out.Null() : out.String(sequence.log_probs);
    out.EndObject();
  }
  out.EndArray();
  return text;
}

struct Part {
  std::string_view name;
  std::string (*text)(const Receipt& receipt);
  std::string PartHashes::*hash;
};
constexpr auto kParts =
    std::to_array<Part>({{"model", ModelText, &PartHashes::model},
                         {"kernels", KernelsText, &PartHashes::kernels},
                         {"prompt", PromptText, &PartHashes::prompt},
                         {"parameters", ParametersText, &PartHashes::parameters},
                         {"outputs", OutputsText, &PartHashes::outputs}});

std::string PartHash(const std::string& text) { return HashOfText(text).substr(0, kPartDigits); }

// All but the digest, with an object that is still open.
std::string OpenText(const Receipt& receipt) {
  std::string text;
  json::Writer out(text);
  out.BeginObject().Key(kFormatMember).Int(kFormat);
  PartHashes hashes;
  for (const Part& part : kParts) {
    const std::string of_part = part.text(receipt);
    hashes.*part.hash = PartHash(of_part);
    out.Key(part.name).Raw(of_part);
  }
  out.Key("parts").BeginObject();
  for (const Part& part : kParts) out.Key(part.name).String(hashes.*part.hash);
  out.EndObject();
  return text;
}

// --- reading ---

Status ReadModel(const json::Value& object, Receipt& receipt) {
  ASSIGN_OR_RETURN(Members model, Members::Of(object, "a receipt's model"));
  EngineRecord& engine = receipt.engine;
  RETURN_IF_ERROR(model.Get("weights", engine.weights));
  RETURN_IF_ERROR(model.Get("architecture", engine.architecture));
  RETURN_IF_ERROR(model.Get("quant_algo", engine.quant_algo));
  ASSIGN_OR_RETURN(const json::Value adapter, model.Take("adapter"));
  if (adapter.kind() != json::Value::Kind::kNull) {
    ASSIGN_OR_RETURN(receipt.adapter, adapter.AsString());
  }
  ASSIGN_OR_RETURN(const json::Value asked, model.Take("options"));
  RETURN_IF_ERROR(model.End());
  ASSIGN_OR_RETURN(Members options, Members::Of(asked, "a receipt's options"));
  Status status;
  ForEachOption([&](std::string_view name, const auto& of) {
    if (status.ok() && (!IsLeftOutUnset(name) || options.Has(name)))
      status = options.Get(name, of(engine.open));
  });
  RETURN_IF_ERROR(status);
  return options.End();
}

Status ReadKernels(const json::Value& object, Kernels& kernels) {
  ASSIGN_OR_RETURN(Members members, Members::Of(object, "a receipt's kernels"));
  RETURN_IF_ERROR(members.Get("table", kernels.table));
  RETURN_IF_ERROR(members.Get("device", kernels.device));
  RETURN_IF_ERROR(members.Get("dtype", kernels.dtype));
  RETURN_IF_ERROR(members.Get("program", kernels.program));
  return members.End();
}

Status ReadPrompt(const json::Value& object, Receipt& receipt) {
  ASSIGN_OR_RETURN(Members members, Members::Of(object, "a receipt's prompt"));
  RETURN_IF_ERROR(members.Get("num_tokens", receipt.num_prompt_tokens));
  RETURN_IF_ERROR(members.Get("hash", receipt.prompt));
  ASSIGN_OR_RETURN(const json::Value ids, members.Take("ids"));
  receipt.has_ids = ids.kind() != json::Value::Kind::kNull;
  if (receipt.has_ids) {
    RETURN_IF_ERROR(ReadIdList(ids, "a receipt's prompt: 'ids'", receipt.request.input_ids));
  }
  return members.End();
}

Status ReadOutputs(const json::Value& list, std::vector<SequenceRecord>& outputs) {
  const Status status = list.ForEachElement([&outputs](const json::Value& element) {
    ASSIGN_OR_RETURN(Members members, Members::Of(element, "a receipt's output"));
    SequenceRecord& sequence = outputs.emplace_back();
    RETURN_IF_ERROR(members.Get("ids", sequence.ids));
    RETURN_IF_ERROR(members.Get("end", sequence.end));
    ASSIGN_OR_RETURN(const json::Value log_probs, members.Take("log_probs"));
    if (log_probs.kind() != json::Value::Kind::kNull) {
      ASSIGN_OR_RETURN(sequence.log_probs, log_probs.AsString());
    }
    return members.End();
  });
  return status.ok() ? status : DataLoss(status.message());
}

Status ReadHashes(const json::Value& object, PartHashes& hashes) {
  ASSIGN_OR_RETURN(Members members, Members::Of(object, "a receipt's parts"));
  for (const Part& part : kParts) RETURN_IF_ERROR(members.Get(part.name, hashes.*part.hash));
  return members.End();
}

Status CheckFormat(Members& members) {
  int format = 0;
  RETURN_IF_ERROR(members.Get(kFormatMember, format));
  if (format != kFormat)
    return Unimplemented(
        fmt::format("the receipt has format {}, this version reads {}", format, kFormat));
  std::string lack;
  const auto not_covered = members.TakeIfThere("not_covered");
  if (!not_covered) return Status::Ok();
  ASSIGN_OR_RETURN(lack, not_covered->AsString());
  return FailedPrecondition("the answer has no receipt, since none covers what its request has: " +
                            lack);
}

Status Find(const json::Value& value, int depth, std::vector<std::string>& found);

// One that is written as text too, as KServe's parameters are; those of gRPC in JSON say that they
// are texts.
Status FindIn(const json::Value& value, int depth, std::vector<std::string>& found) {
  if (depth > kMostNested) return Status::Ok();
  constexpr std::array<std::string_view, 2> kTexts = {"string_param", "stringParam"};
  const auto [text_of_grpc, by_json_name] = value.Pick(kTexts);
  if (text_of_grpc) return FindIn(*text_of_grpc, depth + 1, found);
  if (by_json_name) return FindIn(*by_json_name, depth + 1, found);
  if (value.kind() != json::Value::Kind::kString) return Find(value, depth, found);
  ASSIGN_OR_RETURN(const std::string text, value.AsString());
  ASSIGN_OR_RETURN(const json::Value inner, json::Value::Parse(text));
  return Find(inner, depth, found);
}

Status Find(const json::Value& value, int depth, std::vector<std::string>& found) {
  if (depth > kMostNested) return Status::Ok();
  if (value.kind() == json::Value::Kind::kArray)
    return value.ForEachElement(
        [&](const json::Value& element) { return Find(element, depth + 1, found); });
  if (value.kind() != json::Value::Kind::kObject) return Status::Ok();
  constexpr std::array<std::string_view, 4> kNames = {kFormatMember, kReceipt, "parameters",
                                                      "response"};
  const auto [format, receipt, parameters, response] = value.Pick(kNames);
  if (format) {
    found.emplace_back(value.text());
    return Status::Ok();
  }
  if (receipt) return FindIn(*receipt, depth + 1, found);
  if (parameters) return Find(*parameters, depth + 1, found);
  return response ? Find(*response, depth + 1, found) : Status::Ok();  // of the last event
}

// In the events of a stream, as it came.
Status FindInEvents(std::string_view events, std::vector<std::string>& found) {
  constexpr std::string_view kData = "data:";
  while (!events.empty()) {
    std::string_view line = events.substr(0, events.find('\n'));
    events.remove_prefix(std::min(line.size() + 1, events.size()));
    if (!line.starts_with(kData)) continue;
    line.remove_prefix(kData.size());
    const auto event = json::Value::Parse(line);
    if (!event.ok()) continue;  // such as [DONE]
    RETURN_IF_ERROR(Find(*event, 0, found));
  }
  return Status::Ok();
}

}  // namespace

bool SequenceRecord::is_cut() const {
  return end == kStopText || end == FinishReasonName(FinishReason::kCancelled);
}

std::string ReceiptText(const Receipt& receipt) {
  std::string text = OpenText(receipt);
  const std::string digest = HashOfText(text + "}");
  return text.append(R"(,"digest":")").append(digest).append("\"}");
}

Result<Receipt> ParseReceipt(std::string_view text) {
  const Result<json::Value> root = json::Value::Parse(text);
  if (!root.ok()) return DataLoss("a receipt: " + root.status().message());
  ASSIGN_OR_RETURN(Members members, Members::Of(*root, "a receipt"));
  RETURN_IF_ERROR(CheckFormat(members));
  Receipt receipt;
  ASSIGN_OR_RETURN(const json::Value model, members.Take("model"));
  RETURN_IF_ERROR(ReadModel(model, receipt));
  ASSIGN_OR_RETURN(const json::Value kernels, members.Take("kernels"));
  RETURN_IF_ERROR(ReadKernels(kernels, receipt.engine.kernels));
  ASSIGN_OR_RETURN(const json::Value prompt, members.Take("prompt"));
  RETURN_IF_ERROR(ReadPrompt(prompt, receipt));
  ASSIGN_OR_RETURN(const json::Value asked, members.Take("parameters"));
  ASSIGN_OR_RETURN(Members parameters, Members::Of(asked, "a receipt's parameters"));
  RETURN_IF_ERROR(ReadRequest(parameters, receipt.request));
  RETURN_IF_ERROR(parameters.End());
  ASSIGN_OR_RETURN(const json::Value outputs, members.Take("outputs"));
  RETURN_IF_ERROR(ReadOutputs(outputs, receipt.outputs));
  ASSIGN_OR_RETURN(const json::Value parts, members.Take("parts"));
  RETURN_IF_ERROR(ReadHashes(parts, receipt.parts));
  RETURN_IF_ERROR(members.Get("digest", receipt.digest));
  RETURN_IF_ERROR(members.End());
  return receipt;
}

std::vector<std::string> ChangedParts(const Receipt& receipt) {
  std::vector<std::string> changed;
  for (const Part& part : kParts)
    if (receipt.parts.*part.hash != PartHash(part.text(receipt))) changed.emplace_back(part.name);
  const bool is_whole = receipt.digest == HashOfText(OpenText(receipt) + "}");
  if (changed.empty() && !is_whole) changed.emplace_back("digest");
  return changed;
}

std::string NoReceiptText(std::string_view not_covered) {
  std::string text;
  json::Writer out(text);
  out.BeginObject().Key(kFormatMember).Int(kFormat);
  out.Key("not_covered").String(not_covered).EndObject();
  return text;
}

Result<std::vector<std::string>> FindReceipts(std::string_view json) {
  std::vector<std::string> found;
  if (json.starts_with("data:") || json.starts_with("event:")) {
    RETURN_IF_ERROR(FindInEvents(json, found));
  } else {
    ASSIGN_OR_RETURN(const json::Value root, json::Value::Parse(json));
    RETURN_IF_ERROR(Find(root, 0, found));
  }
  if (found.empty())
    return NotFound(fmt::format("no receipt is there: neither '{}', nor an answer with '{}'",
                                kFormatMember, kReceipt));
  return found;
}

}  // namespace inflight::receipts
