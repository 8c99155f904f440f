// SPDX-License-Identifier: Apache-2.0
#include "receipts/request_members.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <optional>
#include <type_traits>
#include <utility>
#include <variant>

#include "base/status_macros.h"
#include "parameters/parameters.h"

namespace inflight::receipts {
namespace {

Status ReadInt(const json::Value& from, int64_t least, int64_t most, int64_t& value) {
  ASSIGN_OR_RETURN(value, from.AsInt());
  if (value >= least && value <= most) return Status::Ok();
  return DataLoss(fmt::format("got {}, must be in [{}, {}]", value, least, most));
}

Status ReadIds(const json::Value& from, std::vector<TokenId>& ids) {
  ids.clear();
  return from.ForEachElement([&ids](const json::Value& element) {
    int64_t id = 0;
    RETURN_IF_ERROR(ReadInt(element, std::numeric_limits<TokenId>::min(),
                            std::numeric_limits<TokenId>::max(), id));
    ids.push_back(static_cast<TokenId>(id));
    return Status::Ok();
  });
}

// --- one sampling parameter; seeds as text, since programs lose digits of large numbers ---

void WriteValue(float value, json::Writer& out) { out.Double(static_cast<double>(value)); }
void WriteValue(int value, json::Writer& out) { out.Int(value); }
void WriteValue(bool value, json::Writer& out) { out.Bool(value); }
void WriteValue(uint64_t value, json::Writer& out) { out.String(std::to_string(value)); }

Status ReadValue(const json::Value& from, float& value) {
  ASSIGN_OR_RETURN(const double number, from.AsDouble());
  value = static_cast<float>(number);
  return std::isfinite(value) ? Status::Ok() : DataLoss("is not finite");
}
Status ReadValue(const json::Value& from, int& value) {
  int64_t number = 0;
  RETURN_IF_ERROR(
      ReadInt(from, std::numeric_limits<int>::min(), std::numeric_limits<int>::max(), number));
  value = static_cast<int>(number);
  return Status::Ok();
}
Status ReadValue(const json::Value& from, bool& value) {
  ASSIGN_OR_RETURN(value, from.AsBool());
  return Status::Ok();
}
Status ReadValue(const json::Value& from, uint64_t& value) {
  ASSIGN_OR_RETURN(const std::string digits, from.AsString());
  constexpr size_t kMostDigits = 20;
  if (digits.empty() || digits.size() > kMostDigits ||
      digits.find_first_not_of("0123456789") != std::string::npos)
    return DataLoss("is no text of digits");
  uint64_t number = 0;
  for (const char digit : digits) {
    const auto last = static_cast<uint64_t>(digit - '0');
    if (number > (std::numeric_limits<uint64_t>::max() - last) / 10)
      return DataLoss("is larger than 64 bits");
    number = number * 10 + last;
  }
  value = number;
  return Status::Ok();
}

template <typename T>
Status ReadField(const json::Value& from, T& field) {
  return ReadValue(from, field);
}
template <typename T>
Status ReadField(const json::Value& from, std::optional<T>& field) {
  return ReadValue(from, field.emplace());
}

template <typename T>
void WriteField(std::string_view name, const T& field, const T& unsaid, json::Writer& out) {
  if (field == unsaid) return;
  WriteValue(field, out.Key(name));
}
template <typename T>
void WriteField(std::string_view name, const std::optional<T>& field, const std::optional<T>&,
                json::Writer& out) {
  if (field) WriteValue(*field, out.Key(name));
}

// Visits each parameter that decides tokens, with the member of SamplingParams that it is.
template <typename Visit>
void ForEachParameter(const Visit& visit) {
  for (const parameters::Parameter& parameter : parameters::All())
    std::visit(
        [&](auto member) {
          using Member = decltype(member);
          if constexpr (std::is_invocable_v<Member, SamplingParams&>)
            visit(parameter.field, member);
        },
        parameter.member);
}

}  // namespace

const char* NotCovered(const Request& request) {
  if (request.guide != nullptr) return "guide";
  if (request.prompt_table != nullptr) return "prompt_embedding_table";
  if (request.bad_texts != nullptr) return "bad_words of texts";
  if (request.embedding_bias != nullptr) return "embedding_bias";
  if (!request.draft_ids.empty()) return "draft_ids";
  if (request.lora && !request.lora->is_own) return "lora_task_id";
  return nullptr;
}

Result<Members> Members::Of(const json::Value& object, std::string whole) {
  Members members;
  members.whole_ = std::move(whole);
  if (object.kind() != json::Value::Kind::kObject)
    return DataLoss(members.whole_ + " is no object");
  RETURN_IF_ERROR(object.ForEachMember([&members](std::string_view name, json::Value value) {
    if (members.members_.emplace(name, value).second) return Status::Ok();
    return DataLoss(fmt::format("{} has two members '{}'", members.whole_, name));
  }));
  return members;
}

Result<json::Value> Members::Take(std::string_view name) {
  if (const auto found = TakeIfThere(name)) return *found;
  return DataLoss(fmt::format("{} lacks '{}'", whole_, name));
}

std::optional<json::Value> Members::TakeIfThere(std::string_view name) {
  const auto found = members_.find(name);
  if (found == members_.end()) return std::nullopt;
  const json::Value value = found->second;
  members_.erase(found);
  return value;
}

Status Members::Wrong(std::string_view name, const Status& status) const {
  if (status.ok()) return status;
  return DataLoss(fmt::format("{}: '{}': {}", whole_, name, status.message()));
}

Status Members::Get(std::string_view name, std::string& value) {
  ASSIGN_OR_RETURN(const json::Value from, Take(name));
  auto text = from.AsString();
  if (!text.ok()) return Wrong(name, text.status());
  value = *std::move(text);
  return Status::Ok();
}

Status Members::Get(std::string_view name, int& value) {
  ASSIGN_OR_RETURN(const json::Value from, Take(name));
  return Wrong(name, ReadValue(from, value));
}

Status Members::Get(std::string_view name, int64_t& value) {
  ASSIGN_OR_RETURN(const json::Value from, Take(name));
  return Wrong(name, ReadInt(from, 0, std::numeric_limits<int64_t>::max(), value));
}

Status Members::Get(std::string_view name, bool& value) {
  ASSIGN_OR_RETURN(const json::Value from, Take(name));
  return Wrong(name, ReadValue(from, value));
}

Status Members::Get(std::string_view name, std::vector<TokenId>& ids) {
  ASSIGN_OR_RETURN(const json::Value from, Take(name));
  return Wrong(name, ReadIds(from, ids));
}

Status Members::Get(std::string_view name, std::vector<std::vector<TokenId>>& lists) {
  ASSIGN_OR_RETURN(const json::Value from, Take(name));
  lists.clear();
  return Wrong(name, from.ForEachElement([&lists](const json::Value& element) {
    return ReadIds(element, lists.emplace_back());
  }));
}

Status Members::Get(std::string_view name, std::optional<bool>& value) {
  ASSIGN_OR_RETURN(const json::Value from, Take(name));
  value.reset();
  if (from.kind() == json::Value::Kind::kNull) return Status::Ok();
  return Wrong(name, ReadValue(from, value.emplace()));
}

Status Members::Get(std::string_view name, std::optional<int>& value) {
  ASSIGN_OR_RETURN(const json::Value from, Take(name));
  value.reset();
  if (from.kind() == json::Value::Kind::kNull) return Status::Ok();
  return Wrong(name, ReadValue(from, value.emplace()));
}

Status Members::End() const {
  if (members_.empty()) return Status::Ok();
  return DataLoss(fmt::format("{} has '{}', which this version does not know", whole_,
                              members_.begin()->first));
}

Status ReadIdList(const json::Value& from, std::string_view what, std::vector<TokenId>& ids) {
  const Status status = ReadIds(from, ids);
  return status.ok() ? status : DataLoss(fmt::format("{}: {}", what, status.message()));
}

void WriteIds(std::span<const TokenId> ids, json::Writer& out) {
  out.BeginArray();
  for (const TokenId id : ids) out.Int(id);
  out.EndArray();
}

void WriteRequest(const Request& request, json::Writer& out) {
  const auto write_lists = [&out](std::string_view name,
                                  const std::vector<std::vector<TokenId>>& lists) {
    out.Key(name).BeginArray();
    for (const auto& ids : lists) WriteIds(ids, out);
    out.EndArray();
  };
  out.Key("max_tokens").Int(request.max_tokens);
  WriteIds(request.end_ids, out.Key("end_ids"));
  write_lists("stop_words", request.stop_words);
  write_lists("bad_words", request.bad_words);
  out.Key("log_probs").Bool(request.output.return_log_probs);
  out.Key("normalize_log_probs").Bool(request.output.normalize_log_probs);
  out.Key("sampling").BeginObject();
  const SamplingParams unsaid;
  ForEachParameter([&](std::string_view name, auto member) {
    WriteField(name, request.sampling.*member, unsaid.*member, out);
  });
  out.EndObject();
}

Status ReadRequest(Members& members, Request& request) {
  RETURN_IF_ERROR(members.Get("max_tokens", request.max_tokens));
  RETURN_IF_ERROR(members.Get("end_ids", request.end_ids));
  RETURN_IF_ERROR(members.Get("stop_words", request.stop_words));
  RETURN_IF_ERROR(members.Get("bad_words", request.bad_words));
  RETURN_IF_ERROR(members.Get("log_probs", request.output.return_log_probs));
  RETURN_IF_ERROR(members.Get("normalize_log_probs", request.output.normalize_log_probs));
  ASSIGN_OR_RETURN(const json::Value object, members.Take("sampling"));
  ASSIGN_OR_RETURN(Members sampling, Members::Of(object, "a receipt's sampling"));
  Status status;
  ForEachParameter([&](std::string_view name, auto member) {
    const auto value = sampling.TakeIfThere(name);
    if (!value || !status.ok()) return;
    status = ReadField(*value, request.sampling.*member);
    if (!status.ok())
      status = DataLoss(fmt::format("a receipt's sampling: '{}': {}", name, status.message()));
  });
  RETURN_IF_ERROR(status);
  return sampling.End();
}

}  // namespace inflight::receipts
