// SPDX-License-Identifier: Apache-2.0
#include "protocol/kserve/grpc/model_messages.h"

#include <algorithm>

namespace inflight::kserve_grpc {
namespace {

using ::inference::ModelMetadataResponse;
using ::inference::ModelStatisticsResponse;

// The wire's word for a datatype of the configuration; both enums count alike.
std::string DataTypeWord(::inference::DataType type) {
  if (type < ::inference::TYPE_BOOL || type > ::inference::TYPE_BF16) return "<invalid>";
  return std::string(serving::DataTypeName(static_cast<serving::DataType>(type)));
}
static_assert(static_cast<int>(serving::DataType::kBool) == ::inference::TYPE_BOOL);
static_assert(static_cast<int>(serving::DataType::kBytes) == ::inference::TYPE_STRING);
static_assert(static_cast<int>(serving::DataType::kBf16) == ::inference::TYPE_BF16);

template <typename ConfigTensor>
void WriteTensor(const ConfigTensor& tensor, bool has_batch_dim,
                 ModelMetadataResponse::TensorMetadata& out) {
  out.set_name(tensor.name());
  out.set_datatype(DataTypeWord(tensor.data_type()));
  if (has_batch_dim) out.add_shape(-1);
  out.mutable_shape()->MergeFrom(tensor.dims());
}

void WriteDuration(const serving::DurationStat& stat, ::inference::StatisticDuration& out) {
  out.set_count(stat.count);
  out.set_ns(stat.ns);
}

void WriteModelStatistics(serving::Model& model, ::inference::ModelStatistics& out) {
  const serving::StatisticsSnapshot s = model.statistics().Snapshot();
  out.set_name(model.name());
  out.set_version(model.version());
  out.set_last_inference(s.last_inference_ms);
  out.set_inference_count(s.inference_count);
  out.set_execution_count(s.execution_count);
  auto& times = *out.mutable_inference_stats();
  WriteDuration(s.success, *times.mutable_success());
  WriteDuration(s.fail, *times.mutable_fail());
  WriteDuration(s.queue, *times.mutable_queue());
  WriteDuration(s.compute_input, *times.mutable_compute_input());
  WriteDuration(s.compute_infer, *times.mutable_compute_infer());
  WriteDuration(s.compute_output, *times.mutable_compute_output());
  WriteDuration(s.cache_hit, *times.mutable_cache_hit());
  WriteDuration(s.cache_miss, *times.mutable_cache_miss());
  for (const auto& [batch_size, batch] : s.batches) {
    auto& entry = *out.add_batch_stats();
    entry.set_batch_size(batch_size);
    WriteDuration(batch.compute_input, *entry.mutable_compute_input());
    WriteDuration(batch.compute_infer, *entry.mutable_compute_infer());
    WriteDuration(batch.compute_output, *entry.mutable_compute_output());
  }
  for (const serving::MemoryUsage& usage : model.memory_usage()) {
    auto& entry = *out.add_memory_usage();
    entry.set_type(std::string(usage.type));
    entry.set_id(usage.id);
    entry.set_byte_size(usage.bytes);
  }
}

}  // namespace

void WriteServerMetadata(const serving::ServerMetadata& metadata,
                         ::inference::ServerMetadataResponse& out) {
  out.set_name(metadata.name);
  out.set_version(metadata.version);
  for (const std::string& extension : metadata.extensions) out.add_extensions(extension);
}

void WriteModelMetadata(const serving::Model& model, const std::vector<std::string>& versions,
                        ModelMetadataResponse& out) {
  const ::inference::ModelConfig& config = model.config();
  out.set_name(config.name());
  for (const std::string& version : versions) out.add_versions(version);
  out.set_platform(config.platform().empty() ? config.backend() : config.platform());
  const bool has_batch_dim = config.max_batch_size() >= 1;
  for (const auto& input : config.input()) WriteTensor(input, has_batch_dim, *out.add_inputs());
  for (const auto& output : config.output()) WriteTensor(output, has_batch_dim, *out.add_outputs());
}

std::vector<std::string> ReadyVersions(const serving::Server& server, std::string_view name) {
  std::vector<std::string> versions;
  for (const auto& model : server.models()) {
    if (model->name() == name && model->ready()) versions.push_back(model->version());
  }
  // Decimal without leading zeros: shorter is smaller.
  std::sort(versions.begin(), versions.end(), [](const std::string& a, const std::string& b) {
    return a.size() != b.size() ? a.size() < b.size() : a < b;
  });
  return versions;
}

Status WriteStatistics(const serving::Server& server, const std::string& name,
                       const std::string& version, ModelStatisticsResponse& out) {
  std::shared_ptr<serving::Model> wanted;
  if (!name.empty() && !version.empty()) {
    const auto found = server.FindModel(name, version);
    if (found.status().code() == StatusCode::kInvalidArgument) return found.status();
    if (found.ok()) wanted = *found;
  }
  bool is_known = name.empty();
  for (const auto& model : server.models()) {
    if (!name.empty() && model->name() != name) continue;
    is_known = true;
    if (version.empty() || model == wanted || (name.empty() && model->version() == version)) {
      WriteModelStatistics(*model, *out.add_model_stats());
    }
  }
  if (!is_known) return InvalidArgument("requested model '" + name + "' is not available");
  if (!version.empty() && out.model_stats_size() == 0) {
    return InvalidArgument("requested model version is not available for model '" + name + "'");
  }
  return Status::Ok();
}

void WriteIndex(const std::vector<serving::IndexEntry>& entries,
                ::inference::RepositoryIndexResponse& out) {
  for (const serving::IndexEntry& entry : entries) {
    auto& model = *out.add_models();
    model.set_name(entry.name);
    model.set_version(entry.version);
    model.set_state(entry.state);
    model.set_reason(entry.reason);
  }
}

}  // namespace inflight::kserve_grpc
