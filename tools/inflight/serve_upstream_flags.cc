// SPDX-License-Identifier: Apache-2.0
#include "serve_upstream_flags.h"

#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>

#include "base/log.h"

namespace inflight::tool {
namespace {

using config::AtLeast;
using config::Constraint;
using config::Range;
using Schema = config::Schema<ServeOptions>;

constexpr std::string_view kNoEffect = "No effect: ";
constexpr char kComplete[] = "no file of a model is read to complete its config.pbtxt";
constexpr char kNoPool[] = "a model takes of a GPU what its memory plan says, there is no pool";
constexpr char kNoRates[] =
    "an instance runs as soon as it is idle; bound the work with the counts of instance_group and "
    "max_queue_size";

// Its values have to be those of the original all the same.
template <typename T>
void AddUnused(Schema& schema, std::string name, const std::string& reason,
               Constraint constraint = {}) {
  const auto access = [name](ServeOptions& o) -> auto& {
    if constexpr (std::is_same_v<T, bool>) {
      return o.unused_switches[name];
    } else if constexpr (std::is_same_v<T, double>) {
      return o.unused_numbers[name];
    } else {
      return o.unused_texts[name];
    }
  };
  schema.Add(std::move(name), access, std::string(kNoEffect) + reason, std::move(constraint));
}

void Warn(const config::OptionInfo& info, const std::string& value) {
  logging::Warning(
      "option has no effect",
      {{"option", info.flag()}, {"value", value}, {"reason", info.help.substr(kNoEffect.size())}});
}

}  // namespace

void AddUpstreamServeFlags(Schema& schema) {
  schema.Section("Flags of tritonserver without effect here, or refused");
  AddUnused<bool>(schema, "disable_auto_complete_config", kComplete, config::Switch());
  AddUnused<bool>(schema, "strict_model_config", std::string("deprecated; ") + kComplete);
  AddUnused<double>(schema, "model_load_thread_count", "models are loaded one after another",
                    AtLeast(1));
  AddUnused<double>(schema, "grpc_infer_thread_count",
                    "gRPC's callback API sizes its threads by the cores", Range(2, 128));
  AddUnused<double>(schema, "grpc_infer_allocation_pool_size",
                    "states of requests are not recycled", AtLeast(1));
  AddUnused<double>(schema, "buffer_manager_thread_count", "no threads copy tensors", AtLeast(0));
  AddUnused<bool>(schema, "enable_peer_access",
                  "an executor runs on one GPU and reads no other's memory");
  AddUnused<double>(schema, "pinned_memory_pool_byte_size",
                    "pinned memory is taken as the memory plan says, there is no pool", AtLeast(0));
  AddUnused<std::string>(schema, "cuda_memory_pool_byte_size", kNoPool);
  AddUnused<std::string>(schema, "cuda_virtual_address_size", kNoPool);
  AddUnused<double>(schema, "min_supported_compute_capability",
                    "GPUs before 8.0 are never used; CUDA_VISIBLE_DEVICES hides others",
                    Range(0, 8));
  AddUnused<std::string>(schema, "backend_directory", "the back-ends are part of this program");
  AddUnused<std::string>(schema, "repoagent_directory", "there are no repository agents");
  AddUnused<std::string>(schema, "cache_directory", "the cache is part of this program");
  schema.Refuse("model_namespacing",
                "models are found by their name alone; give one of two that share it another",
                "false");
  schema.Refuse("model_config_name", "a model is configured by its config.pbtxt alone");
  schema.Refuse("model_load_retry_count", "a load that failed is not tried again by itself", "0");
  schema.Refuse("reuse_http_port", "an HTTP port belongs to one server", "false");
  schema.Refuse("host_policy",
                "instances are not bound to cores; start the server with numactl or taskset");
  schema.Refuse("rate_limit", kNoRates, "off");
  schema.Refuse("rate_limit_resource", kNoRates);
  schema.Refuse("model_load_gpu_limit",
                "what models may take of a GPU is said with --kv-cache-free-memory-fraction");
}

void WarnOfUnusedFlags(const ServeOptions& options) {
  for (const config::OptionInfo& info : ServeSchema().options()) {
    if (const auto found = options.unused_switches.find(info.name);
        found != options.unused_switches.end())
      Warn(info, *found->second ? "true" : "false");
    if (const auto found = options.unused_numbers.find(info.name);
        found != options.unused_numbers.end())
      Warn(info, config::internal::ToText(*found->second));
    if (const auto found = options.unused_texts.find(info.name);
        found != options.unused_texts.end()) {
      std::string values;
      for (const std::string& value : found->second) values += (values.empty() ? "" : " ") + value;
      Warn(info, values);
    }
  }
}

}  // namespace inflight::tool
