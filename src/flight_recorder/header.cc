// SPDX-License-Identifier: Apache-2.0
#include "flight_recorder/header.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <type_traits>
#include <utility>

#include "base/status_macros.h"
#include "json/json_reader.h"
#include "json/json_writer.h"

namespace inflight::flight_recorder {
namespace {

// The same for writing and reading; `fields` gets each by its name.
template <typename Fields, typename H>
void VisitHeader(Fields& fields, H& h) {
  fields("version", h.version);
  fields("run", h.run);
  fields("part", h.part);
  fields("owner", h.owner);
  fields("model", h.model);
  fields("device", h.device);
  fields("process", h.process);
  fields("began_unix_ms", h.began_unix_ms);
  fields("has_prompts", h.has_prompts);
  fields("shape", h.shape);
  fields("least_step_ns", h.least_step_ns);
  auto& open = h.open;
  fields("dtype", open.dtype);
  fields("quant_algo", open.quant_algo);
  fields("fp8_kv_cache", open.fp8_kv_cache);
  fields("quantize_lm_head", open.quantize_lm_head);
  fields("ops", open.ops);
  fields("tensor_parallel_size", open.tensor_parallel_size);
  fields("pipeline_parallel_size", open.pipeline_parallel_size);
  fields.WhereSet("moe_ep_size", open.moe_ep_size);
  fields.WhereSet("moe_tp_size", open.moe_tp_size);
  fields("draft_model", open.draft_model);
  auto& executor = open.executor;
  fields("max_batch_size", executor.max_batch_size);
  fields("max_num_tokens", executor.max_num_tokens);
  fields("max_seq_len", executor.max_seq_len);
  fields("max_kv_tokens", executor.max_kv_tokens);
  fields("kv_cache_free_memory_fraction", executor.kv_cache_free_memory_fraction);
  fields("block_size", executor.block_size);
  fields("gpu_weights", executor.gpu_weights.fraction);
  fields("gpu_weights_auto", executor.gpu_weights.as_many_as_fit);
  fields("attention_windows", executor.attention_windows);
  fields("sink_tokens", executor.sink_tokens);
  fields("kv_cache_host_bytes", executor.kv_cache_host_bytes);
  fields("enable_prefix_reuse", executor.enable_prefix_reuse);
  fields("enable_chunked_prefill", executor.enable_chunked_prefill);
  fields("scheduler_policy", executor.scheduler_policy);
  fields("chunking_policy", executor.chunking_policy);
  fields("drafts", executor.drafts);
  fields("max_draft_len", executor.max_draft_len);
  fields("medusa_choices", executor.medusa_choices);
  fields("max_queue_size", executor.max_queue_size);
  fields("max_queue_delay_us", executor.max_queue_delay_us);
  fields("step_time_goal_ms", executor.step_time_goal_ms);
  fields("deterministic", executor.deterministic);
}

class FieldWriter {
 public:
  explicit FieldWriter(json::Writer& writer) : writer_(writer) {}

  template <typename T>
  void operator()(const char* name, const T& value) {
    writer_.Key(name);
    Put(value);
  }
  template <typename T>
  void WhereSet(const char* name, const std::optional<T>& value) {
    if (value) (*this)(name, value);
  }

 private:
  void Put(const std::string& text) { writer_.String(text); }
  void Put(const std::filesystem::path& path) { writer_.String(path.string()); }
  void Put(bool value) { writer_.Bool(value); }
  void Put(double value) { writer_.Double(value); }
  template <typename T>
    requires(std::is_integral_v<T> && !std::is_same_v<T, bool>)
  void Put(T value) {
    if constexpr (std::is_unsigned_v<T>) {
      writer_.Uint(value);
    } else {
      writer_.Int(value);
    }
  }
  template <typename T>
    requires std::is_enum_v<T>
  void Put(T value) {
    writer_.Int(static_cast<int64_t>(value));
  }
  template <typename T>
  void Put(const std::optional<T>& value) {
    if (value) {
      Put(*value);
    } else {
      writer_.Null();
    }
  }
  template <typename T>
  void Put(const std::vector<T>& values) {
    writer_.BeginArray();
    for (const T& value : values) Put(value);
    writer_.EndArray();
  }

  json::Writer& writer_;
};

int64_t LastOf(SchedulerPolicy /*any*/) {
  return static_cast<int64_t>(SchedulerPolicy::kStaticBatch);
}
int64_t LastOf(ChunkingPolicy /*any*/) {
  return static_cast<int64_t>(ChunkingPolicy::kEqualProgress);
}
int64_t LastOf(DraftSource /*any*/) { return static_cast<int64_t>(DraftSource::kModel); }

class FieldReader {
 public:
  explicit FieldReader(const std::map<std::string, json::Value>& members) : members_(members) {}

  template <typename T>
  void operator()(const char* name, T& value) {
    if (!status_.ok()) return;
    const auto found = members_.find(name);
    if (found == members_.end()) {
      status_ = DataLoss(fmt::format("a journal's header lacks '{}'", name));
      return;
    }
    const Status got = Get(found->second, value);
    if (!got.ok())
      status_ = DataLoss(fmt::format("a journal's header: '{}': {}", name, got.message()));
  }
  // Left out where it is unset.
  template <typename T>
  void WhereSet(const char* name, std::optional<T>& value) {
    value.reset();
    if (members_.contains(name)) (*this)(name, value);
  }
  const Status& status() const { return status_; }

 private:
  static constexpr size_t kMostElements = 4096;

  static Status Get(const json::Value& from, std::string& text) {
    ASSIGN_OR_RETURN(text, from.AsString());
    return Status::Ok();
  }
  static Status Get(const json::Value& from, std::filesystem::path& path) {
    ASSIGN_OR_RETURN(path, from.AsString());
    return Status::Ok();
  }
  static Status Get(const json::Value& from, bool& value) {
    ASSIGN_OR_RETURN(value, from.AsBool());
    return Status::Ok();
  }
  static Status Get(const json::Value& from, double& value) {
    ASSIGN_OR_RETURN(value, from.AsDouble());
    return Status::Ok();
  }
  static Status Get(const json::Value& from, uint64_t& value) {
    ASSIGN_OR_RETURN(value, from.AsUint());
    return Status::Ok();
  }
  static Status Get(const json::Value& from, int64_t& value) {
    ASSIGN_OR_RETURN(value, from.AsInt());
    return Status::Ok();
  }
  static Status Get(const json::Value& from, int& value) {
    return GetWithin(from, std::numeric_limits<int>::min(), std::numeric_limits<int>::max(), value);
  }
  template <typename T>
    requires std::is_enum_v<T>
  static Status Get(const json::Value& from, T& value) {
    return GetWithin(from, 0, LastOf(value), value);
  }
  template <typename T>
  static Status GetWithin(const json::Value& from, int64_t least, int64_t most, T& value) {
    ASSIGN_OR_RETURN(const int64_t number, from.AsInt());
    if (number < least || number > most)
      return DataLoss(fmt::format("got {}, must be in [{}, {}]", number, least, most));
    value = static_cast<T>(number);
    return Status::Ok();
  }
  template <typename T>
  static Status Get(const json::Value& from, std::optional<T>& value) {
    value.reset();
    if (from.kind() == json::Value::Kind::kNull) return Status::Ok();
    return Get(from, value.emplace());
  }
  template <typename T>
  static Status Get(const json::Value& from, std::vector<T>& values) {
    values.clear();
    return from.ForEachElement([&values](const json::Value& element) {
      if (values.size() >= kMostElements)
        return DataLoss(fmt::format("has more than {} elements", kMostElements));
      return Get(element, values.emplace_back());
    });
  }

  const std::map<std::string, json::Value>& members_;
  Status status_;
};

// What a step loop reckons with, of which nobody else asks whether it is a time.
Status CheckTimes(const Header& header) {
  constexpr double kMostNs = 7.2e12;  // more than any option may say
  const ExecutorOptions& executor = header.open.executor;
  const std::array<std::pair<const char*, double>, 3> times = {{
      {"least_step_ns", static_cast<double>(header.least_step_ns)},
      {"max_queue_delay_us", static_cast<double>(executor.max_queue_delay_us) * 1e3},
      {"step_time_goal_ms", std::abs(executor.step_time_goal_ms) * 1e6},  // below 0: none
  }};
  for (const auto& [name, ns] : times)
    if (!(ns >= 0 && ns <= kMostNs))
      return DataLoss(
          fmt::format("a journal's header: '{}': is {} ns, must be in [0, {}]", name, ns, kMostNs));
  return Status::Ok();
}

}  // namespace

std::string HeaderText(const Header& header) {
  std::string text;
  json::Writer writer(text);
  writer.BeginObject().Key("inflight_journal").Int(kFormat);
  FieldWriter fields(writer);
  VisitHeader(fields, header);
  writer.EndObject();
  return text;
}

Result<Header> ParseHeader(std::string_view text) {
  const auto bad = [](const Status& status) {
    return DataLoss("a journal's header: " + status.message());
  };
  const Result<json::Value> root = json::Value::Parse(text);
  if (!root.ok()) return bad(root.status());
  std::map<std::string, json::Value> members;
  const Status walked = root->ForEachMember([&members](std::string_view name, json::Value value) {
    members.emplace(name, value);
    return Status::Ok();
  });
  if (!walked.ok()) return bad(walked);
  const auto format = members.find("inflight_journal");
  if (format == members.end()) return DataLoss("a journal's header lacks 'inflight_journal'");
  const Result<int64_t> number = format->second.AsInt();
  if (!number.ok()) return bad(number.status());
  if (*number != kFormat)
    return Unimplemented(fmt::format(
        "a journal of format {}: this version reads format {}; replay it with the program that "
        "recorded it",
        *number, kFormat));
  Header header;
  FieldReader fields(members);
  VisitHeader(fields, header);
  RETURN_IF_ERROR(fields.status());
  RETURN_IF_ERROR(CheckTimes(header));
  return header;
}

std::string ShapeOf(const executor::BackendInfo& info) {
  std::string shape = fmt::format(
      "{} steps at a time, {} slots, {} rows of {} tokens a step, {} tokens and {} drafts a row, "
      "{} "
      "tokens a sequence, vocabulary {}",
      info.depth, info.max_slots, info.max_batch_size, info.max_num_tokens, info.max_tokens_per_row,
      info.makes_drafts ? info.max_drafts : 0, info.max_seq_len, info.vocab_size);
  for (const executor::KvGroup& group : info.kv_groups) {
    shape += fmt::format(", {} blocks of {} tokens", group.num_blocks, group.block_size);
    if (group.window > 0)
      shape += fmt::format(" (window {}, {} first)", group.window, group.num_sinks);
    if (group.num_host_blocks > 0)
      shape += fmt::format(" and {} of the host", group.num_host_blocks);
  }
  return shape;
}

}  // namespace inflight::flight_recorder
